"""Iterators over a cursor's records, up to the noted end. The cursor's position moves with every record or batch."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from jlog._core.read.blocks cimport BlockReader
from jlog._core.read.cursor cimport Cursor
from jlog._core.read.position cimport FREE, OWED, begin_use, end_use, is_own
from jlog._core.records.columns cimport Columns
from jlog._core.format.format cimport JLOG_NONE, JLOG_SHORT_BYTES, JLOG_SHORT_VALUE_MAX, JLOG_TAG_LONG, jlog_load32, jlog_record


cdef extern from "read/recent.h":
    struct jlog_recent:
        pass
    bytes jlog_recent_bytes(jlog_recent *recent, const char *data, Py_ssize_t size)
    void jlog_recent_clear(jlog_recent *recent)


cdef class ValueIterator:
    """Iterates over values, up to the journal's end as it was when iteration began."""

    cdef Cursor cursor
    cdef BlockReader blocks
    cdef jlog_recent recent

    def __init__(self, Cursor cursor not None):
        cursor.refresh()
        self.cursor, self.blocks = cursor, cursor.blocks

    def __dealloc__(self):
        jlog_recent_clear(&self.recent)

    def __iter__(self):
        return self

    def __next__(self):
        # No local variable for self.blocks and self.cursor: each would cost a count of references up and down.
        cdef const uint8_t *at = self.blocks.at
        cdef size_t size
        cdef uint32_t tag
        # The cursor is not taken, because nothing here lets another thread run. But another thread may have taken it, and be
        # loading the next block.
        if (<size_t> (self.blocks.end - at) >= JLOG_SHORT_BYTES and self.cursor.use == FREE
                and self.cursor.process[0] == self.cursor.token):
            __builtin_prefetch(at + PREFETCH_BYTES)
            tag = jlog_load32(at)
            size = tag & JLOG_SHORT_VALUE_MAX
            if not tag & JLOG_TAG_LONG and JLOG_SHORT_BYTES + size <= <size_t> (self.blocks.end - at):
                value = jlog_recent_bytes(&self.recent, <const char *> at + JLOG_SHORT_BYTES, size)
                self.blocks.at = at + JLOG_SHORT_BYTES + size  # the object is created: without memory no record is skipped
                self.blocks.sequence += 1
                return value
        return self.next_of_any_form()

    cdef object next_of_any_form(self):
        """Returns the next value, also of a record in the long form, or of the next block."""
        cdef Cursor cursor = self.cursor
        cdef jlog_record record
        cdef size_t size
        begin_use(cursor)
        try:
            if not to_next_record(self.blocks, &record, &size):
                raise StopIteration
            value = None
            if record.value != NULL:
                value = PyBytes_FromStringAndSize(<const char *> record.value, record.value_bytes)
            self.blocks.at += size
            self.blocks.sequence += 1
            return value
        finally:
            end_use(cursor)


cdef class RecordIterator:
    """Iterates over records, up to the journal's end as it was when iteration began."""

    cdef Cursor cursor
    cdef BlockReader blocks

    def __init__(self, Cursor cursor not None):
        cursor.refresh()
        self.cursor, self.blocks = cursor, cursor.blocks

    def __iter__(self):
        return self

    def __next__(self):
        cdef Cursor cursor = self.cursor
        begin_use(cursor)
        try:
            record = next_record(self.blocks)
        finally:
            end_use(cursor)
        if record is None:
            raise StopIteration
        return record


cdef class ArrowIterator:
    """Iterates over ArrowBatches with these fields, or over what `convert` turns them into, up to the journal's end as it was
    when iteration began, or to the sequence `end`. With a needle, it may leave out any record whose value does not have these
    bytes. After 32 MiB without such a record it hands out an empty batch, so that the caller can stop. With `stand_in_us`, of
    whole blocks only the headers are read: the fields are the sequence and the timestamp at most, the records of such a block
    have this timestamp, and a batch may hold a block with more records than `max_records`."""

    cdef Cursor cursor
    cdef Py_ssize_t max_records
    cdef Py_ssize_t max_bytes
    cdef tuple fields
    cdef object convert
    cdef uint64_t end
    cdef bytes needle
    cdef object stand_in_us
    cdef uint64_t rows  # of the batch before: the next one will have about as many
    cdef uint64_t value_bytes  # of the batch before
    cdef uint64_t key_bytes  # of the batch before

    def __init__(self, Cursor cursor not None, Py_ssize_t max_records, Py_ssize_t max_bytes, fields, *, end=None,
                 bytes needle=None, convert=None, stand_in_us=None):
        self.fields, self.convert, self.needle = tuple(fields), convert, needle or None
        self.stand_in_us = stand_in_us
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
        if self.stand_in_us is not None:
            columns.by_headers, columns.stand_in_us = True, self.stand_in_us
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
