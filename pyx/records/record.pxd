from libc.stdint cimport int64_t, uint64_t

from jlog._core.records.arrow cimport ArrowBatch
from jlog._core.records.columns cimport Batch
from jlog._core.format.format cimport jlog_record

cdef class Record:
    cdef readonly object value
    cdef readonly uint64_t sequence
    cdef readonly int64_t timestamp_us
    cdef readonly object key
    cdef object raw_headers

cdef Record make_record(const jlog_record *record, uint64_t sequence)

cdef class RecordBatch(Batch):
    cdef list chunks  # (records as bytes, base time, first sequence, number of records)
    cdef list starts  # (chunk, offset, sequence) of each record, created when first needed

    cdef ArrowBatch in_columns(self, tuple fields)
