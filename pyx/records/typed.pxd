from jlog._core.records.record cimport Record, RecordBatch

cdef class TypedRecord(Record):
    cdef object decoder

cdef class TypedBatch(RecordBatch):
    cdef Typing typing

cdef class Typing:
    cdef object decoder

    cdef TypedRecord of(self, Record record)
