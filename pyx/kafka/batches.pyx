"""Record batches for the partitions of a topic, made without an object for each record."""

from collections import namedtuple

import lz4.frame
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.buffer cimport PyBUF_READ
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from jlog._core.format.format cimport JLOG_NULL_BYTES, jlog_record, jlog_store32
from jlog._core.kafka.outgoing cimport JLOG_FULL, JLOG_SENT, Outgoing, jlog_message, jlog_outgoing

cdef extern from "kafka/batches.h" nogil:
    enum:
        JLOG_BATCH_HEADER_BYTES
        JLOG_BATCH_LZ4
        JLOG_BATCH_TRANSACTIONAL
        JLOG_NO_MEMORY

    struct jlog_batch:
        uint8_t *data
        size_t bytes
        uint64_t *sequences
        uint32_t count

    struct jlog_batch_headers:
        pass

    struct jlog_packing:
        jlog_batch *batches
        uint32_t partitions
        size_t limit
        int32_t full

    int jlog_measure_headers(const jlog_outgoing *rules, const jlog_record *record, uint64_t sequence,
                             jlog_batch_headers *headers)
    int jlog_pack_message(jlog_packing *to, const jlog_outgoing *rules, const jlog_record *record, jlog_message *message,
                          const jlog_batch_headers *headers)
    int jlog_pack_records(jlog_packing *to, jlog_outgoing *rules, const uint8_t *data, size_t bytes, int64_t base_time_us,
                          size_t *at, uint64_t *sequence)
    void jlog_put_batch_header(uint8_t *header, const jlog_batch *batch, const uint8_t *data, size_t bytes, int attributes,
                               int64_t producer, int16_t epoch, int32_t sequence)

NOT_OF_A_JOURNAL = (1 << 64) - 1  # in place of the sequence of such a record

Batch = namedtuple("Batch", "pieces size records sequences")
Batch.__doc__ = """A batch as a broker takes it. sequences: those of its records, 8 bytes each in the machine's order."""


cdef class Batches:
    """The batches of one topic, one for each partition. Each begins anew when it is taken.

    limit_bytes: of a batch before compression. A record that is larger has a batch of its own.
    """

    cdef jlog_packing packing
    cdef uint64_t spread

    def __cinit__(self, uint32_t partitions, size_t limit_bytes):
        self.packing.batches = <jlog_batch *> calloc(partitions, sizeof(jlog_batch))
        if self.packing.batches == NULL:
            raise MemoryError
        self.packing.partitions = partitions
        self.packing.limit = limit_bytes - min(limit_bytes, <size_t> JLOG_BATCH_HEADER_BYTES)

    def __dealloc__(self):
        cdef uint32_t partition
        if self.packing.batches != NULL:
            for partition in range(self.packing.partitions):
                free(self.packing.batches[partition].data)
                free(self.packing.batches[partition].sequences)
            free(self.packing.batches)

    @property
    def full(self):
        """The partition whose batch has to be taken, after FULL."""
        return self.packing.full

    def put(self, bytes value, bytes key, int partition, int64_t time_ms, headers):
        """Adds one message. partition -1: chosen by the key. Returns SENT, or FULL without having added it."""
        cdef jlog_outgoing rules
        cdef jlog_record record
        cdef jlog_message message
        cdef jlog_batch_headers measured
        cdef bytes encoded = encoded_headers(headers)
        memset(&rules, 0, sizeof(rules))
        memset(&record, 0, sizeof(record))
        memset(&message, 0, sizeof(message))
        if not -1 <= partition < <int64_t> self.packing.partitions:
            raise IndexError(f"there is no partition {partition}")
        rules.ours, rules.ours_bytes = "jlog", 1 << 30  # no name is as long: all headers are sent
        record.headers, record.headers_bytes = <const uint8_t *> PyBytes_AS_STRING(encoded), len(encoded)
        if value is not None:
            message.value, message.value_bytes = <const uint8_t *> PyBytes_AS_STRING(value), len(value)
        if key is not None:
            message.key, message.key_bytes = <const uint8_t *> PyBytes_AS_STRING(key), len(key)
        message.partition, message.time_ms = partition, time_ms
        message.sequence = NOT_OF_A_JOURNAL
        if partition < 0 and key is None:
            message.partition = self.spread % self.packing.partitions
        if jlog_measure_headers(&rules, &record, 0, &measured) != JLOG_SENT:
            raise ValueError("the name of a header has a NUL")
        code = jlog_pack_message(&self.packing, &rules, &record, &message, &measured)
        if code == JLOG_NO_MEMORY:
            raise MemoryError
        self.spread += code == JLOG_SENT
        return code

    def filled(self):
        """Returns the partitions whose batches have records."""
        return [partition for partition in range(self.packing.partitions) if self.packing.batches[partition].count]

    def clear(self):
        """Drops all records."""
        cdef uint32_t partition
        for partition in range(self.packing.partitions):
            self.drop(&self.packing.batches[partition])

    cdef void drop(self, jlog_batch *batch) noexcept:
        batch.count = 0
        batch.bytes = 0

    def take(self, uint32_t partition, bint compress, int64_t producer, int16_t epoch, int32_t sequence):
        """Returns the batch of a partition, as part of a transaction. producer, epoch: of the producer's id. sequence: the
        number of its first record among those that this producer has sent to the partition."""
        cdef jlog_batch *batch
        cdef bytes header, records
        if partition >= self.packing.partitions or self.packing.batches[partition].count == 0:
            raise IndexError(f"there is no batch for partition {partition}")
        batch = &self.packing.batches[partition]
        attributes = JLOG_BATCH_TRANSACTIONAL
        records = None
        if compress:
            records = lz4.frame.compress(PyMemoryView_FromMemory(<char *> batch.data, batch.bytes, PyBUF_READ),
                                         block_linked=False, store_size=False)
            attributes |= JLOG_BATCH_LZ4
        if records is None or <size_t> len(records) >= batch.bytes:
            records = PyBytes_FromStringAndSize(<char *> batch.data, batch.bytes)
            attributes = JLOG_BATCH_TRANSACTIONAL
        header = PyBytes_FromStringAndSize(NULL, JLOG_BATCH_HEADER_BYTES)
        jlog_put_batch_header(<uint8_t *> PyBytes_AS_STRING(header), batch, <const uint8_t *> PyBytes_AS_STRING(records),
                              len(records), attributes, producer, epoch, sequence)
        sequences = PyBytes_FromStringAndSize(<char *> batch.sequences, batch.count * sizeof(uint64_t))
        taken = Batch([header, records], len(header) + len(records), batch.count, sequences)
        self.drop(batch)
        return taken


cdef bytes encoded_headers(headers):
    """Returns headers as a record of a journal has them."""
    cdef bytes name, content
    cdef uint8_t sizes[8]
    found = []
    for text, content in headers:
        name = text.encode()
        jlog_store32(sizes, len(name))
        jlog_store32(sizes + 4, JLOG_NULL_BYTES if content is None else <uint32_t> len(content))
        found += [<bytes> (<char *> sizes)[:8], name, content or b""]
    return b"".join(found)


cdef class Packing(Outgoing):
    """A way of records into batches. Another reason of send() is FULL.

    make_room: is called with the partition whose batch is full. It takes that, or returns False where this is not the time.
    """

    cdef Batches batches
    cdef object make_room

    def __init__(self, Batches batches not None, make_room, **rules):
        Outgoing.__init__(self, **rules)
        if self.rules.partition < 0 or self.rules.partition >= <int64_t> batches.packing.partitions or (
                self.rules.spread_over > batches.packing.partitions):
            raise IndexError(f"there are {batches.packing.partitions} partitions")
        self.batches, self.make_room = batches, make_room

    cdef int pass_on(self, const uint8_t *data, size_t size) except? -1:
        cdef jlog_packing *packing = &self.batches.packing
        cdef int code
        while True:
            with nogil:
                code = jlog_pack_records(packing, &self.rules, data, size, self.base_time_us, &self.at, &self.sequence)
            if code == JLOG_NO_MEMORY:
                raise MemoryError
            if code != JLOG_FULL or not self.make_room(packing.full):
                return code
