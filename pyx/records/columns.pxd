from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from jlog._core.records.arrow cimport ArrowArray, ArrowBatch


cdef extern from "records/columns.h" nogil:
    struct jlog_array:
        uint8_t *validity
        int32_t *offsets
        uint8_t *data
        uint64_t count
        uint32_t used
        uint32_t room

    struct jlog_columns:
        int64_t *sequence
        int64_t *timestamp_us
        jlog_array value
        jlog_array key
        jlog_array headers
        jlog_array name
        jlog_array header_value
        uint64_t rows
        uint64_t null_values
        uint64_t null_header_values

    struct jlog_sizes:
        uint64_t keys
        uint64_t key_bytes
        uint64_t headers
        uint64_t name_bytes
        uint64_t header_value_bytes

    enum:
        JLOG_PIECE_OF_VALUE
    const uint8_t *jlog_fill_plain(jlog_columns *to, const uint8_t *at, const uint8_t *end, int64_t base_time_us, uint64_t most)
    const uint8_t *jlog_fill_ready(jlog_columns *to, const uint8_t *at, const uint8_t *end, int64_t base_time_us, uint64_t most,
                                   bint with_key)
    void jlog_measure(const uint8_t *at, const uint8_t *end, jlog_sizes *sizes)
    void jlog_fill(jlog_columns *to, const uint8_t *at, const uint8_t *end, int64_t base_time_us)
    void jlog_fill_sequence(jlog_columns *to, uint64_t from_row, uint64_t first_sequence)
    void jlog_catch_up(jlog_array *array, uint64_t count)
    bint jlog_drop_repeated(jlog_columns *to, uint8_t *repeated)
    int64_t jlog_first_not_utf8(const jlog_array *array)
    int64_t jlog_row_of(const jlog_array *lists, int64_t entry)


cdef class Batch:
    cdef readonly Py_ssize_t count
    cdef bytes needle  # None: all records are wanted
    cdef bint by_headers  # takes add_by_header() for the records of whole blocks

    cdef int add(self, const uint8_t *data, size_t size, int64_t base_time_us, uint64_t first_sequence,
                 Py_ssize_t count) except -1
    cdef const uint8_t *add_ready(self, const uint8_t *at, const uint8_t *end, int64_t base_time_us, uint64_t first_sequence,
                                  uint64_t most) except NULL
    cdef int add_by_header(self, uint64_t first_sequence, uint64_t count) except -1


cdef class Memory:
    cdef uint8_t *data
    cdef uint64_t room

    cdef uint8_t *reserve(self, uint64_t size) except NULL
    cdef uint8_t *hand_over(self, uint64_t size) except NULL


cdef class Strings:
    cdef Memory validity
    cdef Memory offsets
    cdef Memory data
    cdef int preset

    cdef int reserve(self, jlog_array *array, uint64_t count, uint64_t size) except -1
    cdef int hand_rows_over(self, ArrowArray *to, const jlog_array *array, bint nullable) except -1
    cdef int hand_over(self, ArrowArray *to, const jlog_array *array, bint nullable, str format) except -1


cdef class Columns(Batch):
    cdef readonly tuple fields
    cdef tuple names
    cdef bint only_sequence
    cdef bint with_key
    cdef int64_t stand_in_us  # the timestamp of records that add_by_header() adds
    cdef object path
    cdef list runs  # (row, sequence) where the sequences do not go on from the row before
    cdef uint64_t expected  # the sequence that goes on
    cdef jlog_columns to
    cdef Memory sequence
    cdef Memory timestamp
    cdef Strings value
    cdef Strings key
    cdef Strings headers
    cdef Strings name
    cdef Strings header_value

    cdef int begin_run(self, uint64_t first_sequence) except -1
    cdef int reserve(self, uint64_t rows, uint64_t value_bytes) except -1
    cdef int reserve_rest(self, uint64_t rows, const jlog_sizes *more) except -1
    cdef int set_sequences(self, list sequences) except -1
    cdef ArrowBatch hand_over(self)
    cdef int hand_column_over(self, ArrowArray *to, field) except -1
    cdef int complete(self, Strings strings, jlog_array *array) except -1
    cdef int hand_headers_over(self, ArrowArray *to, field) except -1
    cdef int check_text(self, str name, str format, const jlog_array *array) except -1
