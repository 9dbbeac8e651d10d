from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t


cdef extern from "records/arrow.h" nogil:
    enum:
        ARROW_FLAG_NULLABLE

    struct ArrowSchema:
        const char *format
        const char *name
        int64_t flags
        int64_t n_children
        ArrowSchema **children
        ArrowSchema *dictionary
        void (*release)(ArrowSchema *) noexcept nogil

    struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void **buffers
        ArrowArray **children
        ArrowArray *dictionary
        void (*release)(ArrowArray *) noexcept nogil

    struct ArrowArrayStream:
        int (*get_schema)(ArrowArrayStream *, ArrowSchema *) noexcept nogil
        int (*get_next)(ArrowArrayStream *, ArrowArray *) noexcept nogil
        const char *(*get_last_error)(ArrowArrayStream *) noexcept nogil
        void (*release)(ArrowArrayStream *) noexcept nogil
        void *private_data

    bint jlog_begin_schema(ArrowSchema *to, const char *format, const char *name, int64_t flags, int64_t children)
    bint jlog_begin_array(ArrowArray *to, int64_t length, int64_t buffers, int64_t children)
    int64_t jlog_count_zeros(const uint8_t *bits, int64_t count)
    void *jlog_new_memory(uint64_t *size)
    void jlog_release_memory(void *memory)
    void jlog_widen(int64_t *to, const int32_t *offsets, int64_t count)
    void jlog_view(uint8_t *to, const int32_t *offsets, const uint8_t *data, int64_t count)


cdef class ArrowBatch:
    cdef ArrowArray array
    cdef readonly tuple fields

    cdef int begin(self, tuple fields, int64_t length) except -1
    cdef int move_to(self, ArrowArray *to) except -1
