from libc.stdint cimport int64_t, uint8_t

from jlog._core.records.encode cimport EncodedRecords, jlog_encoded


cdef extern from "records/rows.h" nogil:
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

    struct jlog_indirect:
        jlog_arrow plain
        const uint8_t *views
        const void **buffers
        const int64_t *buffer_sizes
        int64_t buffer_count
        const uint8_t *indices
        const uint8_t *validity
        int64_t start
        int64_t count
        int index_bytes
        bint is_signed

    int jlog_flatten(const jlog_indirect *arrays, int64_t *row, int64_t count, int64_t *size, uint8_t *validity,
                     uint8_t *offsets, uint8_t *to_data)
    int64_t jlog_arrow_span(const jlog_arrow *array, int64_t count)
    int jlog_put_rows(jlog_encoded *to, const jlog_rows *rows, int64_t *row, int64_t count)


cdef EncodedRecords body_of_arrow(data)
