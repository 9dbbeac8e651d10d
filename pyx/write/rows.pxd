from libc.stdint cimport int64_t, uint8_t, uint64_t

from jlog._core.write.encode cimport EncodedRecords


cdef extern from "write/rows.h" nogil:
    enum:
        JLOG_ROWS_DONE
        JLOG_ROWS_NO_ROOM
        JLOG_ROWS_OUTSIDE
        JLOG_ROWS_TOO_LARGE
        JLOG_ROWS_NULL_HEADER
        JLOG_ROWS_NOT_UTF8
        JLOG_ROWS_TOO_MANY_HEADERS
        JLOG_ROWS_TIME_OUT_OF_RANGE

    struct jlog_arrow:
        const uint8_t *validity
        const uint8_t *offsets
        const uint8_t *data
        int64_t size
        int64_t start
        bint wide

    struct jlog_arrow_times:
        const uint8_t *validity
        const uint8_t *data
        int64_t start
        int64_t multiply
        int64_t divide

    struct jlog_rows:
        jlog_arrow value
        jlog_arrow key
        jlog_arrow headers
        jlog_arrow name
        jlog_arrow header_value
        const uint8_t *header_validity
        int64_t header_start
        jlog_arrow_times timestamp

    struct jlog_encoded:
        uint8_t *data
        size_t size
        size_t room
        uint64_t explicit_count
        int64_t explicit_max_us

    int64_t jlog_arrow_span(const jlog_arrow *array, int64_t count)
    int jlog_put_rows(jlog_encoded *to, const jlog_rows *rows, int64_t *row, int64_t count)


cdef EncodedRecords body_of_arrow(data)
