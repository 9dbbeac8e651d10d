# cython: freelist=64
"""The results of reading: a Record, or many of them in a RecordBatch."""

from datetime import timedelta

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint32_t, uint64_t

from jlog._core.records.arrow cimport ArrowBatch
from jlog._core.records.columns cimport Batch, Columns
from jlog._core.records.encode cimport EncodedRecords
from jlog._core.records.rows cimport body_of_arrow
from jlog._core.format.format cimport (
    JLOG_TAG_EXPLICIT, jlog_decode_header, jlog_decode_record, jlog_is_state, jlog_record, jlog_record_id)

from jlog._core.records.arrow import fields_of, requested_fields, schema_of
from jlog._core.records.columns import import_pyarrow
from jlog._core.records.encode import EPOCH
from jlog.errors import JournalError
from jlog.html import SHOWN_ROWS, records_table


# The garbage collector does not track records: it would cost 16 bytes for each and, in a program that keeps records, most of
# the time of reading. So no record may be a part of a circle. `decoder` is the reader's Decoder, which refers to the codec and
# to no record. The codec is given a copy without the decoder, so that one which keeps records closes no circle either.
@cython.no_gc
cdef class Record:
    """One record. It owns its bytes, and stays valid whatever happens to the journal."""

    def __init__(self):
        raise TypeError("records come from reading a journal")

    @property
    def timestamp(self):
        """The time of the append, or the time that the writer gave, as an aware datetime in UTC. Raises OverflowError outside
        the years 1 to 9999, which timestamp_us can hold."""
        return EPOCH + timedelta(microseconds=self.timestamp_us)

    @property
    def headers(self):
        """The headers as a list of (name, value). A value may be None."""
        cdef bytes raw = self.raw_headers
        cdef const uint8_t *at
        cdef const uint8_t *name
        cdef const uint8_t *value
        cdef uint32_t name_bytes, value_bytes
        cdef size_t left, size
        found = []
        if raw is None:
            return found
        at = raw
        left = len(raw)
        while left:
            size = jlog_decode_header(at, left, &name, &name_bytes, &value, &value_bytes)
            if size == 0:
                break
            found.append((name[:name_bytes].decode("utf-8", "surrogateescape"),
                          None if value == NULL else value[:value_bytes]))
            at += size
            left -= size
        return found

    @property
    def id(self):
        """The id with which the record was appended, `append(value, id=...)`; None without one."""
        cdef bytes raw = self.raw_headers
        cdef jlog_record record
        cdef const uint8_t *found
        cdef uint32_t size = 0
        if raw is None:
            return None
        record.headers, record.headers_bytes = raw, <uint32_t> len(raw)
        found = jlog_record_id(&record, &size)
        return None if found == NULL else found[:size]

    @property
    def decoded(self):
        """The object that the reader's codec decodes the value to; None for a value that is None. It is decoded anew each time.
        Raises DecodeError if the codec cannot; the reader goes on all the same. Raises JournalError if the reader has no
        codec."""
        if self.decoder is None:
            raise no_codec()
        return self.decoder.decode(with_decoder(self, None))

    def __repr__(self):
        value = self.value if self.value is None or len(self.value) <= 40 else self.value[:40] + b"..."
        return f"<jlog.Record {self.sequence} {value!r}>"

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return (self.sequence, self.timestamp_us, self.key, self.value, self.headers) == (
            other.sequence, other.timestamp_us, other.key, other.value, other.headers)

    def __hash__(self):
        return hash((self.sequence, self.timestamp_us, self.value))

    def __reduce__(self):
        return restore_record, (self.sequence, self.timestamp_us, self.key, self.value, self.raw_headers, self.decoder)


def no_codec() -> JournalError:
    """Returns the error of a record that nothing decodes."""
    return JournalError("only a reader with a codec decodes records; open it with codec=jlog.typed.json(…), or another codec")


def restore_record(uint64_t sequence, int64_t timestamp_us, bytes key, bytes value, bytes raw_headers, decoder=None) -> Record:
    """Returns the record that was pickled or copied."""
    cdef Record restored = Record.__new__(Record)
    restored.sequence, restored.timestamp_us = sequence, timestamp_us
    restored.key, restored.value, restored.raw_headers, restored.decoder = key, value, raw_headers, decoder
    return restored


def with_decoder(Record record not None, decoder) -> Record:
    """Returns the same record, which this decoder decodes."""
    return restore_record(record.sequence, record.timestamp_us, record.key, record.value, record.raw_headers, decoder)


cdef inline Record make_record(const jlog_record *record, uint64_t sequence, object decoder):
    cdef Record made = Record.__new__(Record)
    fill_record(made, record, sequence)
    if decoder is not None:
        made.decoder = decoder
    return made


cdef inline bint next_record(const uint8_t **at, bytes body, int64_t base_time_us, jlog_record *record) noexcept:
    """Decodes the next record that has a sequence, and moves past it. Returns False at the end of the body."""
    cdef const uint8_t *end = <const uint8_t *> body + len(body)
    while at[0] != end:
        at[0] += jlog_decode_record(at[0], end - at[0], base_time_us, record)
        if not jlog_is_state(record):
            return True
    return False


cdef class RecordBatch(Batch):
    """Records that were read together: a sequence of Record objects, each created when it is asked for."""

    def __cinit__(self):
        self.chunks = []

    cdef int add(self, const uint8_t *data, size_t size, int64_t base_time_us, uint64_t first_sequence,
                 Py_ssize_t count) except -1:
        self.chunks.append((PyBytes_FromStringAndSize(<char *> data, size), base_time_us, first_sequence, count))
        self.count += count
        self.starts = None
        return 0

    def __len__(self):
        return self.count

    def _ids(self):
        """Returns [id, sequence, time] of each record that has an id. It was appended at this time of the clock, or earlier:
        the time of the record, or of the next one in the batch that has the clock's; None where there is none."""
        cdef jlog_record record
        cdef const uint8_t *at
        cdef const uint8_t *id
        cdef uint32_t id_bytes = 0
        cdef uint64_t sequence
        cdef list found = [], waiting = [], entry
        for data, base_time_us, first_sequence, _ in self.chunks:
            at, sequence = <const uint8_t *> <bytes> data, first_sequence
            while next_record(&at, data, base_time_us, &record):
                id = jlog_record_id(&record, &id_bytes)
                if id != NULL:
                    entry = [id[:id_bytes], sequence, None]
                    found.append(entry)
                    waiting.append(entry)
                if waiting and not record.tag & JLOG_TAG_EXPLICIT:
                    for entry in waiting:
                        entry[2] = record.timestamp_us
                    waiting.clear()
                sequence += 1
        return found

    def values(self):
        """Returns the values alone, as a list. No other way to get them all is cheaper."""
        cdef jlog_record record
        cdef const uint8_t *at
        cdef list found = []
        for data, _, _, _ in self.chunks:
            at = <const uint8_t *> <bytes> data
            while next_record(&at, data, 0, &record):
                found.append(None if record.value == NULL
                             else PyBytes_FromStringAndSize(<char *> record.value, record.value_bytes))
        return found

    def decoded(self):
        """Returns the objects that the reader's codec decodes the values to, as a list. Raises DecodeError at the first record
        that the codec cannot decode; `record.decoded` of each record finds the others. Raises JournalError if the reader has no
        codec."""
        if self.decoder is None:
            raise no_codec()
        return [self.decoder.decode(record) for record in restore_batch(self.chunks)]

    def to_arrow(self):
        """Returns the records as a pyarrow.RecordBatch, without a Python object per record. Its columns are sequence int64,
        timestamp timestamp[us, UTC], key binary, value binary, headers list<struct<key: string, value: binary>>.

        A missing key is null, and so is a null value (a tombstone). headers is null for a record without headers. In a header's
        name that is not UTF-8, which jlog's writers refuse, U+FFFD replaces the wrong bytes. Raises ImportError without
        pyarrow: pip install 'pyjlog[arrow]'.
        """
        pyarrow = import_pyarrow()
        return pyarrow.record_batch(self.in_columns(fields_of()))

    def __arrow_c_schema__(self):
        return schema_of(fields_of())

    def __arrow_c_array__(self, requested_schema=None):
        """Returns the records with the columns of to_arrow(), as every library for Arrow takes them; pyarrow is not needed. A
        requested schema is followed where that loses nothing; else ValueError, with the record."""
        return self.in_columns(requested_fields(requested_schema, fields_of())).__arrow_c_array__()

    cdef ArrowBatch in_columns(self, tuple fields):
        cdef Columns columns
        cdef size_t size = sum(len(data) for data, _, _, _ in self.chunks)
        columns = Columns(fields, None, self.count, size)
        for data, base_time_us, first_sequence, count in self.chunks:
            columns.add(<const uint8_t *> <bytes> data, len(data), base_time_us, first_sequence, count)
        return columns.hand_over()

    def _repr_html_(self):
        last = max(SHOWN_ROWS, self.count - SHOWN_ROWS)
        return records_table(repr(self), self[:SHOWN_ROWS], self[last:])

    def __iter__(self):
        cdef jlog_record record
        cdef const uint8_t *at
        cdef uint64_t sequence
        for data, base_time_us, first_sequence, _ in self.chunks:
            at, sequence = <const uint8_t *> <bytes> data, first_sequence
            while next_record(&at, data, base_time_us, &record):
                yield make_record(&record, sequence, self.decoder)
                sequence += 1

    def __getitem__(self, index):
        cdef jlog_record record
        cdef const uint8_t *at
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self.count))]
        if index < 0:
            index += self.count
        if not 0 <= index < self.count:
            raise IndexError(f"record {index} is out of range: the batch has {self.count} records")
        if self.starts is None:
            self.starts = self.find_starts()
        chunk, offset, sequence = self.starts[index]
        data, base_time_us, _, _ = self.chunks[chunk]
        at = <const uint8_t *> <bytes> data + <size_t> offset
        next_record(&at, data, base_time_us, &record)
        return make_record(&record, sequence, self.decoder)

    cdef list find_starts(self):
        """Returns, for each record, its chunk, where the record before it ends there, and its sequence."""
        cdef jlog_record record
        cdef const uint8_t *begin
        cdef const uint8_t *at
        cdef size_t offset
        cdef list starts = []
        for number, (data, _, sequence, _) in enumerate(self.chunks):
            begin = at = <const uint8_t *> <bytes> data
            offset = 0
            while next_record(&at, data, 0, &record):
                starts.append((number, offset, sequence))
                offset = at - begin
                sequence += 1
        return starts

    def __eq__(self, other):
        if not isinstance(other, RecordBatch):
            return NotImplemented
        return list(self) == list(other)

    def __hash__(self):
        return hash((self.count, self.chunks[0][2] if self.chunks else 0))

    def __repr__(self):
        return f"<jlog.RecordBatch of {self.count} records>"

    def __reduce__(self):
        return restore_batch, (self.chunks, self.decoder)


def columns_of(records, tuple fields not None, path=None) -> ArrowBatch:
    """Returns columns of other records than a journal's, which have the same attributes."""
    cdef EncodedRecords body = EncodedRecords()
    cdef Columns columns
    cdef list sequences = []
    for record in records:
        body.add(record.value, record.key, record.headers, record.timestamp_us)
        sequences.append(record.sequence)
    columns = Columns(fields, path, body.count, body.size)
    if sequences:
        columns.add(body.data, body.size, 0, sequences[0], body.count)
        columns.set_sequences(sequences)
    return columns.hand_over()


def records_of_arrow(data) -> RecordBatch:
    """Returns the records of Arrow data, as Writer.extend_arrow takes it. A record without a time has the time INT64_MIN."""
    cdef EncodedRecords body = body_of_arrow(data)
    cdef RecordBatch batch = RecordBatch()
    if body.count:
        batch.add(body.data, body.size, INT64_MIN, 0, body.count)
    return batch


def restore_batch(list chunks not None, decoder=None) -> RecordBatch:
    """Returns the batch that was pickled or copied."""
    cdef RecordBatch restored = RecordBatch()
    restored.chunks, restored.decoder = chunks, decoder
    restored.count = sum(count for _, _, _, count in chunks)
    return restored
