from libc.stdint cimport int64_t, uint8_t, uint64_t

from jlog._core.format cimport jlog_record

cdef class Record:
    cdef readonly object value
    cdef readonly uint64_t sequence
    cdef readonly int64_t timestamp_us
    cdef readonly object key
    cdef object raw_headers

cdef Record make_record(const jlog_record *record, uint64_t sequence)

cdef class RecordBatch:
    cdef list chunks  # (records as bytes, base time, first sequence, how many)
    cdef readonly Py_ssize_t count
    cdef list starts  # of each record: (chunk, offset), made when first needed

    cdef int add(self, const uint8_t *data, size_t size, int64_t base_time_us, uint64_t first_sequence,
                 Py_ssize_t count) except -1
