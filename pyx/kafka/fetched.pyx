"""Messages that jlog has fetched itself, as whole record batches, and the records that are made of them in C."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport SIZE_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t

from jlog._core.format.format cimport JLOG_LONG_BYTES, JLOG_RAW_BYTES_MAX
from jlog._core.kafka.consumer cimport bytes_or_none, reason_of
from jlog._core.records.encode cimport (
    JLOG_ENCODE_DONE,
    JLOG_ENCODE_NO_ROOM,
    EncodedRecords,
    jlog_encoded,
)

cdef extern from "kafka/fetched.h" nogil:
    enum:
        JLOG_PLACE_BYTES_MAX
        JLOG_BATCH_CODEC
        JLOG_BATCH_TRANSACTIONAL
        JLOG_BATCH_CONTROL
        JLOG_BATCH_LZ4
        JLOG_BATCH_PARTIAL
        JLOG_BATCH_DAMAGED

    struct jlog_fetched_batch:
        const uint8_t *at
        const uint8_t *end
        size_t bytes
        int64_t last_offset
        int64_t producer
        int32_t count
        uint32_t attributes

    struct jlog_fetched:
        const uint8_t *key
        const uint8_t *value
        const uint8_t *headers
        int64_t offset
        int64_t time_ms
        uint32_t key_bytes
        uint32_t value_bytes
        uint32_t header_count
        uint32_t headers_bytes
        int32_t leader_epoch
        uint16_t kind
        uint16_t place

    struct jlog_unread:
        int32_t left

    struct jlog_part:
        pass

    int jlog_varbytes(const uint8_t **at, const uint8_t *end, const uint8_t **found, uint32_t *bytes)
    int jlog_read_batch(const uint8_t *at, size_t left, jlog_fetched_batch *batch)
    bint jlog_batch_crc_valid(const jlog_fetched_batch *batch)
    int64_t jlog_batches_end(const uint8_t *at, size_t left, int64_t offset, int32_t *leader_epoch, int *damaged)
    void jlog_begin_records(jlog_unread *unread, const jlog_fetched_batch *batch, const uint8_t *at, const uint8_t *end)
    bint jlog_next_fetched(jlog_unread *unread, jlog_fetched *record)
    size_t jlog_take_fetched(jlog_unread *unread, int64_t first, uint16_t place, jlog_fetched *records, size_t room,
                             size_t *bytes)
    void jlog_begin_part(jlog_part *part, const char *topic, int32_t partition)
    int jlog_put_all_fetched(jlog_encoded *to, const jlog_fetched *records, const jlog_part *parts, size_t *at, size_t count,
                             size_t *value_bytes)

cdef enum:
    PLACES_MAX = 65_000
    PART_BYTES = 80  # headers that name the place, with a short name of a topic


cdef class FetchedBatches:
    """The batches of one partition, as a broker has sent them. A partial one at the end is left out.

    aborted: pairs of a producer's number and the offset where its aborted transaction begins, the latest first.
    unpack: returns the bytes of an LZ4 frame, or None.

    offset: of the next record, behind the last one that was taken; leader_epoch: that of the last one, or -1.
    end, end_epoch: the offset behind the batches, and the leader epoch of the last one.
    is_damaged: whether something else stands behind them.
    """

    cdef readonly str topic
    cdef readonly int partition
    cdef readonly int64_t offset
    cdef readonly int leader_epoch
    cdef readonly int64_t end
    cdef readonly int end_epoch
    cdef readonly bint is_damaged
    cdef readonly size_t size
    cdef object data  # a memoryview
    cdef Py_buffer view
    cdef size_t at
    cdef list aborted
    cdef object unpack
    cdef set aborting  # numbers of producers whose transaction at this offset is aborted
    cdef jlog_unread unread
    cdef object buffer  # has the records of `unread`

    def __cinit__(self, str topic not None, int partition, data, int64_t offset, list aborted not None, unpack):
        cdef int damaged = 0
        cdef int32_t end_epoch = -1
        self.data = memoryview(data)
        PyObject_GetBuffer(self.data, &self.view, PyBUF_SIMPLE)
        self.topic, self.partition, self.offset, self.leader_epoch = topic, partition, offset, -1
        self.size = self.view.len
        self.aborted, self.unpack = aborted, unpack
        self.aborting = set()
        self.end = jlog_batches_end(<const uint8_t *> self.view.buf, self.size, offset, &end_epoch, &damaged)
        self.end_epoch, self.is_damaged = end_epoch, damaged != 0

    def __dealloc__(self):
        PyBuffer_Release(&self.view)

    def take(self, FetchedMessages into not None, size_t count, size_t size):
        """Adds up to `count` messages, and none where the messages have more than `size` bytes. Returns why the next batch
        cannot be decoded, or None."""
        cdef uint16_t place = 0
        cdef size_t got
        cdef jlog_fetched *records
        while count and into.size < size:
            while not self.unread.left:
                if self.at == self.size:
                    return None
                reason = self.next_batch()
                if reason is not None:
                    return reason
            into.keep(self.buffer)
            place = into.place_of(self.topic, self.partition)
            got = min(count, <size_t> self.unread.left)
            records = into.reserve(got)
            with nogil:
                got = jlog_take_fetched(&self.unread, self.offset, place, records, got, &into.size)
            if got == SIZE_MAX:
                return "a batch whose records cannot be read"
            if got:
                into.count += got
                count -= got
                self.offset = records[got - 1].offset + 1
                self.leader_epoch = records[got - 1].leader_epoch
        return None

    @property
    def is_taken(self):
        """Whether nothing is left to take."""
        return not self.unread.left and self.at == self.size

    cdef object next_batch(self):
        """Goes to the next batch, or passes over it where it has no records to hand out. Returns why it cannot be decoded, or
        None."""
        cdef jlog_fetched_batch batch
        cdef bint valid
        cdef int status = jlog_read_batch(<const uint8_t *> self.view.buf + self.at, self.size - self.at, &batch)
        if status == JLOG_BATCH_DAMAGED:
            return "a batch that cannot be read"
        if status == JLOG_BATCH_PARTIAL:
            self.at = self.size
            return None
        if not batch.count or batch.last_offset < self.offset and not batch.attributes & JLOG_BATCH_CONTROL:
            self.at += batch.bytes
            return None
        with nogil:
            valid = jlog_batch_crc_valid(&batch)
        if not valid:
            return "a batch with a wrong checksum"
        if not self.is_left_out(&batch):
            reason = self.begin(&batch)
            if reason is not None:
                return reason
        self.at += batch.bytes
        return None

    cdef bint is_left_out(self, const jlog_fetched_batch *batch) except -1:
        """Says whether the batch is of an aborted transaction, or its end."""
        cdef jlog_unread unread
        cdef jlog_fetched record
        while self.aborted and self.aborted[-1][1] <= batch.last_offset:
            self.aborting.add(self.aborted.pop()[0])
        if batch.attributes & JLOG_BATCH_CONTROL:
            jlog_begin_records(&unread, batch, batch.at, batch.end)
            # The key is the version of the marker and its type, of two bytes each. Type 0 is that of an abort.
            if jlog_next_fetched(&unread, &record) and record.key_bytes >= 4 and not record.key[2] and not record.key[3]:
                self.aborting.discard(batch.producer)
            return True
        return batch.attributes & JLOG_BATCH_TRANSACTIONAL and batch.producer in self.aborting

    cdef object begin(self, const jlog_fetched_batch *batch):
        """Makes ready to take the records of a batch. Returns why they cannot be decoded, or None."""
        cdef const uint8_t *at = batch.at
        cdef const uint8_t *end = batch.end
        cdef uint32_t codec = batch.attributes & JLOG_BATCH_CODEC
        self.buffer = self.data
        if codec == JLOG_BATCH_LZ4:
            self.buffer = self.unpack(self.data[self.at + batch.bytes - (end - at):self.at + batch.bytes])
            if self.buffer is None:
                return "a batch that cannot be decompressed"
            at = <const uint8_t *> PyBytes_AS_STRING(self.buffer)
            end = at + PyBytes_GET_SIZE(self.buffer)
        elif codec:
            return f"a batch with another compression ({codec})"
        jlog_begin_records(&self.unread, batch, at, end)
        return None


cdef class FetchedMessages:
    """A sequence of FetchedMessage, in the bytes that a broker has sent. A FetchedMessage is made when it is asked for.

    size: the bytes that the messages take in their batches.
    """

    cdef jlog_fetched *records
    cdef size_t count, room
    cdef readonly size_t size
    cdef list buffers  # what the records point into
    cdef list places

    def __cinit__(self):
        self.buffers, self.places = [], []

    def __dealloc__(self):
        PyMem_Free(self.records)

    cdef jlog_fetched *reserve(self, size_t more) except NULL:
        """Returns where `more` records can be written."""
        cdef size_t room = max(self.count + more, 2 * self.room)
        cdef void *larger
        if self.count + more > self.room or self.records == NULL:
            larger = PyMem_Realloc(self.records, room * sizeof(jlog_fetched))
            if larger == NULL:
                raise MemoryError
            self.records, self.room = <jlog_fetched *> larger, room
        return self.records + self.count

    cdef int keep(self, buffer) except -1:
        if not self.buffers or self.buffers[-1] is not buffer:
            self.buffers.append(buffer)
        return 0

    cdef uint16_t place_of(self, str topic, int partition) except? 0xFFFF:
        place = topic, partition
        if not self.places or self.places[-1] != place:
            self.places.append(place)
        return len(self.places) - 1

    @property
    def is_full(self):
        """Whether batches of no further partition can be taken."""
        return len(self.places) == PLACES_MAX

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self.message(at) for at in range(*index.indices(self.count))]
        if index < 0:
            index += self.count
        if not 0 <= index < <Py_ssize_t> self.count:
            raise IndexError(f"there are {self.count} messages, and none at {index}")
        return self.message(index)

    def __iter__(self):
        return iter(self[:])

    cdef FetchedMessage message(self, size_t at):
        cdef FetchedMessage made = FetchedMessage.__new__(FetchedMessage)
        made.messages = self
        made.at = self.records[at]
        return made

    def cut(self, size_t count):
        """Leaves out all but the first `count` messages."""
        self.count = min(self.count, count)

    def ends(self):
        """Returns, for each (topic, partition), the offset behind its last message, and the leader epoch of that one, or -1."""
        cdef size_t at
        found = {}
        for at in range(self.count):
            if at + 1 == self.count or self.records[at + 1].place != self.records[at].place:
                found[self.places[self.records[at].place]] = self.records[at].offset + 1, self.records[at].leader_epoch
        return found

    @property
    def value_bytes(self):
        cdef size_t at, total = 0
        for at in range(self.count):
            total += self.records[at].value_bytes
        return total

    def add_to(self, EncodedRecords body not None, bint with_topic, size_t first):
        """Adds a record for each message from index `first` on to the body of a journal's writer, as Messages does."""
        cdef jlog_part *parts = <jlog_part *> PyMem_Malloc((len(self.places) + 1) * sizeof(jlog_part))
        cdef jlog_encoded to
        cdef size_t at = first, done, number, value_bytes = 0
        cdef int status = JLOG_ENCODE_NO_ROOM
        cdef const char *name
        cdef tuple place
        if parts == NULL:
            raise MemoryError
        try:
            body.take()
            try:
                for number in range(len(self.places)):
                    place = <tuple> self.places[number]
                    encoded = (<str> place[0]).encode()
                    name = encoded
                    jlog_begin_part(parts + number, name if with_topic else NULL, place[1])
                body.reserve(min(self.expected_bytes(first), JLOG_RAW_BYTES_MAX - body.size))
                while status == JLOG_ENCODE_NO_ROOM:
                    body.lend(&to)
                    done = at
                    with nogil:
                        status = jlog_put_all_fetched(&to, self.records, parts, &at, self.count, &value_bytes)
                    body.take_back(&to, at - done)
                    if status == JLOG_ENCODE_NO_ROOM:
                        body.reserve(body.room - body.size + 1)
            finally:
                body.taken = False
        finally:
            PyMem_Free(parts)
        return at, value_bytes, None if status == JLOG_ENCODE_DONE else reason_of(status)

    cdef size_t expected_bytes(self, size_t first):
        """Returns the bytes for which an encoder asks room."""
        cdef size_t at, total = 0
        cdef jlog_fetched *record
        for at in range(first, self.count):
            record = self.records + at
            total += record.value_bytes + record.key_bytes + record.headers_bytes + 6 * <size_t> record.header_count
            total += JLOG_LONG_BYTES + 8 + PART_BYTES
        return total + JLOG_PLACE_BYTES_MAX


cdef class FetchedMessage:
    """One message, with the methods of confluent_kafka's. It keeps all messages alive that were fetched together with it."""

    cdef FetchedMessages messages  # keeps alive what `at` points to
    cdef jlog_fetched at

    def __init__(self):
        raise TypeError("messages come from a consumer")

    def __len__(self):
        return self.at.value_bytes

    def error(self):
        return None

    def value(self):
        return bytes_or_none(self.at.value, self.at.value_bytes)

    def key(self):
        return bytes_or_none(self.at.key, self.at.key_bytes)

    def topic(self):
        return self.messages.places[self.at.place][0]

    def partition(self):
        return self.messages.places[self.at.place][1]

    def offset(self):
        return self.at.offset

    def leader_epoch(self):
        return None if self.at.leader_epoch < 0 else self.at.leader_epoch

    def timestamp(self):
        """Returns the kind of the time, and the milliseconds since 1970."""
        return self.at.kind, self.at.time_ms

    def headers(self):
        """Returns the headers; None if there are none. Raises UnicodeDecodeError where a name is no UTF-8."""
        cdef const uint8_t *at = self.at.headers
        cdef const uint8_t *end = at + self.at.headers_bytes
        cdef const uint8_t *name
        cdef const uint8_t *value
        cdef uint32_t name_bytes, value_bytes
        found = []
        while at < end and jlog_varbytes(&at, end, &name, &name_bytes) and jlog_varbytes(&at, end, &value, &value_bytes):
            found.append((name[:name_bytes].decode(), bytes_or_none(value, value_bytes)))
        return found or None
