"""Reads records straight into Arrow columns, without a RecordBatch in between."""

from libc.stdint cimport uint64_t

from jlog._core.records.columns cimport Columns
from jlog._core.read.cursor cimport Cursor
from jlog._core.read.position cimport OWED, begin_use, end_use, is_own
from jlog._core.format.format cimport JLOG_NONE


cdef class ArrowIterator:
    """Iterates over ArrowBatches with these fields, or over what `convert` turns them into, up to the journal's end as it was
    when iteration began, or to the sequence `end`. With a needle, it may leave out any record whose value does not have these
    bytes. After 32 MiB without such a record it hands out an empty batch, so that the caller can stop."""

    cdef Cursor cursor
    cdef Py_ssize_t max_records
    cdef Py_ssize_t max_bytes
    cdef tuple fields
    cdef object convert
    cdef uint64_t end
    cdef bytes needle
    cdef uint64_t rows  # of the batch before: the next one will have about as many
    cdef uint64_t value_bytes  # of the batch before
    cdef uint64_t key_bytes  # of the batch before

    def __init__(self, Cursor cursor not None, Py_ssize_t max_records, Py_ssize_t max_bytes, fields, *, end=None,
                 bytes needle=None, convert=None):
        self.fields, self.convert, self.needle = tuple(fields), convert, needle or None
        self.max_records, self.max_bytes = max_records, max_bytes
        self.end = JLOG_NONE if end is None else end
        cursor.refresh()
        self.cursor = cursor

    def __iter__(self):
        return self

    def __next__(self):
        cdef Columns columns = Columns(self.fields, self.cursor.path, self.rows, self.value_bytes + self.value_bytes // 8,
                                       self.key_bytes + self.key_bytes // 8)
        cdef bint more
        columns.needle = self.needle
        begin_use(self.cursor)
        try:
            self.cursor.owe()
            more = self.cursor.read_into(columns, self.max_records, self.max_bytes, self.end)
            if columns.count == 0 and not more:
                raise StopIteration
            self.rows, self.value_bytes, self.key_bytes = columns.to.rows, columns.to.value.used, columns.to.key.used
            batch = columns.hand_over()
            if self.convert is not None:
                batch = self.convert(batch)
        except BaseException as error:
            if columns.count == 0 or is_own(error):
                self.cursor.use &= ~OWED  # else the next call goes back: no record may be skipped
            raise
        else:
            self.cursor.use &= ~OWED
        finally:
            end_use(self.cursor)
        return batch
