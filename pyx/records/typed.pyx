"""Records, batches and iterators of a reader with a codec. The others carry nothing of it.

All steps are compiled, so that no exception of a signal's handler comes between a record and the caller.
"""

from jlog._core.records.record cimport Record, RecordBatch


cdef class TypedRecord(Record):
    """A record whose value the reader's codec decodes."""

    cdef object decoder

    @property
    def decoded(self):
        """The object that the codec decodes the value to; None for a value that is None. It is decoded anew each time. Raises
        DecodeError if the codec cannot; the reader goes on all the same."""
        return self.decoder.decode(self)

    def __reduce__(self):
        return restore_typed, (self.decoder, Record.__reduce__(self))


cdef class Typing


cdef class TypedBatch(RecordBatch):
    """Records that were read together, by a reader with a codec."""

    cdef Typing typing

    def decoded(self):
        """Returns the objects that the codec decodes the values to, as a list. Raises DecodeError at the first record that the
        codec cannot decode; `record.decoded` of each record finds the others."""
        return [self.typing.decoder.decode(record) for record in RecordBatch.__iter__(self)]

    def __iter__(self):
        return map(self.typing, RecordBatch.__iter__(self))

    def __getitem__(self, index):
        found = RecordBatch.__getitem__(self, index)
        return found if isinstance(index, slice) else self.typing.of(found)

    def __reduce__(self):
        return restore_typed, (self.typing.decoder, RecordBatch.__reduce__(self))


cdef class Typing:
    """Gives records, batches and asynchronous iterators a decoder, which has decode(record)."""

    cdef object decoder

    def __init__(self, decoder):
        self.decoder = decoder

    cdef TypedRecord of(self, Record record):
        cdef TypedRecord typed = TypedRecord.__new__(TypedRecord)
        typed.sequence, typed.timestamp_us = record.sequence, record.timestamp_us
        typed.value, typed.key, typed.raw_headers = record.value, record.key, record.raw_headers
        typed.decoder = self.decoder
        return typed

    def __call__(self, Record record not None):
        return self.of(record)

    def batch(self, RecordBatch batch not None) -> TypedBatch:
        cdef TypedBatch typed = TypedBatch.__new__(TypedBatch)
        typed.chunks, typed.count, typed.typing = batch.chunks, batch.count, self
        return typed


cdef class AsyncTyped:
    """Iterates over the records of another asynchronous iterator."""

    cdef Typing typing
    cdef object records

    def __init__(self, Typing typing not None, records):
        self.typing, self.records = typing, records

    def __aiter__(self):
        return self

    async def __anext__(self):
        return self.typing.of(await self.records.__anext__())

    async def aclose(self):
        """Ends the iteration."""
        await self.records.aclose()


def restore_typed(decoder, tuple reduced not None):
    """Returns the record or the batch that was pickled or copied."""
    cdef Typing typing = Typing(decoder)
    restore, arguments = reduced
    found = restore(*arguments)
    return typing.of(found) if isinstance(found, Record) else typing.batch(found)
