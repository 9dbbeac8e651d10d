cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint64_t

from jlog._core.records.arrow cimport ArrowBatch
from jlog._core.records.columns cimport Batch
from jlog._core.format.format cimport jlog_record


@cython.no_gc  # record.pyx says why
cdef class Record:
    cdef readonly bytes value
    cdef readonly uint64_t sequence
    cdef readonly int64_t timestamp_us
    cdef readonly bytes key
    cdef bytes raw_headers
    cdef object decoder

cdef inline int fill_record(Record made, const jlog_record *record, uint64_t sequence) except -1:
    """Copies what was decoded to a new Record."""
    made.sequence = sequence
    made.timestamp_us = record.timestamp_us
    if record.value != NULL:
        made.value = PyBytes_FromStringAndSize(<char *> record.value, record.value_bytes)
    if record.key != NULL:
        made.key = PyBytes_FromStringAndSize(<char *> record.key, record.key_bytes)
    if record.headers_bytes:
        made.raw_headers = PyBytes_FromStringAndSize(<char *> record.headers, record.headers_bytes)
    return 0

cdef class RecordBatch(Batch):
    cdef list chunks  # (records as bytes, base time, first sequence, number of records)
    cdef list starts  # of find_starts(), created when first needed
    cdef object decoder  # of its records

    cdef list find_starts(self)
    cdef ArrowBatch in_columns(self, tuple fields)
