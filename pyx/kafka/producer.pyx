"""A transactional producer, which takes the records of a journal batch by batch."""

from collections import namedtuple

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.dict cimport PyDict_Next
from cpython.object cimport PyObject
from cython cimport no_gc_clear
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from jlog._core.kafka.client cimport Client, Library, jlog_failure, jlog_note_delivery, milliseconds
from jlog._core.kafka.library cimport (
    JLOG_RDKAFKA_PRODUCER, JLOG_RDKAFKA_PURGE_ALL, jlog_rdkafka, rd_kafka_conf_t, rd_kafka_error_t, rd_kafka_headers_t,
    rd_kafka_t, rd_kafka_topic_t)
from jlog._core.records.record cimport RecordBatch

cdef extern from "kafka/send.h" nogil:
    enum:
        JLOG_SENT
        JLOG_NOT_PLAIN

    struct jlog_sending:
        rd_kafka_t *client
        rd_kafka_topic_t *topic

    struct jlog_rules:
        int32_t partition
        uint32_t spread_over
        uint32_t spread_bits
        int without_key
        int needs_key
        int64_t limit_bytes
        int64_t earliest_ms
        int64_t latest_ms
        const char *ours
        size_t ours_bytes
        const char *sequence_header
        const char *timestamp_header
        int64_t value_bytes
        int64_t beside_bytes

    struct jlog_message:
        int32_t partition
        const uint8_t *value
        const uint8_t *key
        size_t value_bytes
        size_t key_bytes
        int64_t time_ms

    int jlog_produce(const jlog_rdkafka *calls, const jlog_sending *to, const jlog_message *message,
                     rd_kafka_headers_t *headers, uint64_t place)
    int jlog_send_records(const jlog_rdkafka *calls, const jlog_sending *to, jlog_rules *rules, const uint8_t *data,
                          size_t bytes, int64_t base_time_us, size_t *at, uint64_t *sequence)
    void jlog_pass_record(const uint8_t *data, size_t bytes, size_t *at, uint64_t *sequence)

ctypedef rd_kafka_error_t *(*TimedCall)(rd_kafka_t *, int) noexcept nogil

SENT = JLOG_SENT
NOT_PLAIN = JLOG_NOT_PLAIN

Failure = namedtuple("Failure", "code topic sequence")
Failure.__doc__ = """A message that the brokers did not take. sequence: of the record that alone is the cause, or None."""


@no_gc_clear  # the topics are given back before the client is destroyed
cdef class Producer(Client):
    """A producer with a transactional id. Its calls raise KafkaException."""

    cdef dict topics  # addresses of handles by name

    def __cinit__(self, *args, **kwargs):
        self.topics = {}

    def __dealloc__(self):
        if self.handle != NULL and not self.is_foreign():
            self.let_go()

    def __init__(self, Library library not None, dict settings not None):
        cdef rd_kafka_conf_t *conf = self.configured(settings)
        self.calls.conf_set_dr_msg_cb(conf, jlog_note_delivery)
        self.start(JLOG_RDKAFKA_PRODUCER, conf)

    def init_transactions(self, double seconds):
        self.wait_for(self.calls.init_transactions, seconds)

    def begin_transaction(self):
        cdef rd_kafka_error_t *failed
        self.enter()
        try:
            with nogil:
                failed = self.calls.begin_transaction(self.handle)
        finally:
            self.leave()
        self.raise_if(failed)

    def commit_transaction(self, double seconds):
        self.wait_for(self.calls.commit_transaction, seconds)

    def abort_transaction(self, double seconds):
        self.wait_for(self.calls.abort_transaction, seconds)

    cdef int wait_for(self, TimedCall call, double seconds) except -1:
        cdef int wait = milliseconds(seconds)
        cdef rd_kafka_error_t *failed
        self.enter()
        try:
            with nogil:
                failed = call(self.handle, wait)
        finally:
            self.leave()
        return self.raise_if(failed)

    cdef int raise_if(self, rd_kafka_error_t *failed) except -1:
        if failed != NULL:
            raise self.error(failed)
        return 0

    def flush(self, double seconds):
        """Waits until all messages are acknowledged. Returns how many are not."""
        cdef int wait = milliseconds(seconds)
        cdef int left
        self.enter()
        try:
            with nogil:
                self.calls.flush(self.handle, wait)
                left = self.calls.outq_len(self.handle)
        finally:
            self.leave()
        return left

    def purge(self):
        """Drops all messages that are not acknowledged."""
        self.enter()
        try:
            with nogil:
                self.calls.purge(self.handle, JLOG_RDKAFKA_PURGE_ALL)
        finally:
            self.leave()

    @property
    def failure(self):
        """The failed delivery that says why the transaction cannot be committed; None so far. Only poll, flush and the calls
        that end a transaction hear of one."""
        cdef jlog_failure *found = &self.notes.failure
        if found.code == 0:
            return None
        # Where a batch fails as a whole, all of its messages have the same error, and none is known to be the cause.
        is_cause = found.alike == 1 and found.others > 0 and found.place != 0
        sequence = found.place - 1 if is_cause else None
        return Failure(found.code, found.topic.decode("utf-8", "replace"), sequence)

    def forget_failure(self):
        memset(&self.notes.failure, 0, sizeof(self.notes.failure))

    def produce(self, str topic not None, bytes value=None, bytes key=None, int partition=-1, _callback=None,
                _on_delivery=None, int64_t timestamp=0, headers=()):
        """Puts one message into the queue, as the Python client's produce() does. partition -1: chosen by the key. timestamp:
        in milliseconds; 0: now. Raises KafkaException, with QUEUE_FULL if poll() has to free room first."""
        cdef jlog_message message
        cdef jlog_sending to
        cdef rd_kafka_headers_t *list = NULL
        cdef bytes text, content
        cdef int code
        memset(&message, 0, sizeof(message))
        message.partition, message.time_ms = partition, timestamp
        if value is not None:
            message.value, message.value_bytes = <const uint8_t *> PyBytes_AS_STRING(value), len(value)
        if key is not None:
            message.key, message.key_bytes = <const uint8_t *> PyBytes_AS_STRING(key), len(key)
        encoded = [(name.encode(), content) for name, content in headers]
        self.enter()
        try:
            to.client, to.topic = self.handle, self.topic(topic)
            if encoded:
                list = self.calls.headers_new(len(encoded))
            for text, content in encoded:
                self.calls.header_add(list, text, len(text), NULL if content is None else PyBytes_AS_STRING(content),
                                      0 if content is None else len(content))
            code = jlog_produce(self.calls, &to, &message, list, 0)
        finally:
            self.leave()
        if code != JLOG_SENT:
            raise self.error_of(code)

    cdef rd_kafka_topic_t *topic(self, str name) except NULL:
        """Returns the handle of a topic, which the producer owns."""
        cdef rd_kafka_topic_t *found
        cdef bytes encoded
        known = self.topics.get(name)
        if known is not None:
            return <rd_kafka_topic_t *> <size_t> known
        encoded = name.encode()
        found = self.calls.topic_new(self.handle, encoded, NULL)
        if found == NULL:
            raise self.error_of(self.calls.last_error())
        self.topics[name] = <size_t> found
        return found

    cdef void let_go(self) noexcept:
        cdef Py_ssize_t at = 0
        cdef PyObject *known
        while PyDict_Next(self.topics, &at, NULL, &known):  # an iterator would need memory
            self.calls.topic_destroy(<rd_kafka_topic_t *> <size_t> <object> known)
        self.topics.clear()


cdef class Sending:
    """Sends records to one topic. `value_bytes` and `beside_bytes` count values, and keys with headers, sent so far.

    partition: of all records; None: that of the key, and records without one are spread over `partitions` by their sequence,
    2 ** spread_bits at a time.
    limit_bytes, times_ms, needs_key: a record against these rules is not sent.
    ours: headers that begin so are not sent. sequence_header, timestamp_header: names of added headers.
    """

    cdef Producer producer
    cdef str name
    cdef jlog_rules rules
    cdef list kept  # texts to which the rules point
    cdef list chunks  # of the batch
    cdef Py_ssize_t chunk
    cdef uint64_t passed  # records in the chunks before this one
    cdef bytes data
    cdef int64_t base_time_us
    cdef uint64_t first
    cdef uint64_t sequence
    cdef size_t at

    def __init__(self, Producer producer not None, str topic not None, str ours not None, *, partition, int partitions,
                 int spread_bits, bint without_key, bint needs_key, int64_t limit_bytes, tuple times_ms, sequence_header=None,
                 timestamp_header=None):
        cdef jlog_rules *rules = &self.rules
        self.producer, self.name = producer, topic
        self.chunks = []
        self.kept = [text and text.encode() for text in (ours, sequence_header, timestamp_header)]
        rules.ours, rules.ours_bytes = <bytes> self.kept[0], len(self.kept[0])
        if sequence_header is not None:
            rules.sequence_header = <bytes> self.kept[1]
        if timestamp_header is not None:
            rules.timestamp_header = <bytes> self.kept[2]
        rules.partition = partition or 0
        rules.spread_over = partitions if partition is None and partitions > 1 else 0
        rules.spread_bits, rules.limit_bytes = spread_bits, limit_bytes
        rules.without_key, rules.needs_key = without_key, needs_key
        rules.earliest_ms, rules.latest_ms = times_ms

    @property
    def value_bytes(self):
        return self.rules.value_bytes

    @property
    def beside_bytes(self):
        return self.rules.beside_bytes

    def begin(self, RecordBatch batch not None):
        """Takes a batch, from its first record on."""
        self.chunks = batch.chunks
        self.chunk = 0
        self.passed = 0
        self.enter_chunk()

    cdef int enter_chunk(self) except -1:
        if self.chunk < len(self.chunks):
            self.at = 0
            self.data, self.base_time_us, self.first, _ = self.chunks[self.chunk]
            self.sequence = self.first
        return 0

    def send(self):
        """Sends the rest of the batch. Returns SENT; or why the record at `index` was not sent: NOT_PLAIN where it is against a
        rule or has a header whose name has a NUL, or the number of librdkafka's error. Another call tries that record again."""
        cdef int code
        while self.chunk < len(self.chunks):
            code = self.send_chunk()
            if code != JLOG_SENT:
                return code
            self.passed += self.sequence - self.first
            self.chunk += 1
            self.enter_chunk()
        return JLOG_SENT

    cdef int send_chunk(self) except? -1:
        cdef Producer producer = self.producer
        cdef const uint8_t *data = <const uint8_t *> PyBytes_AS_STRING(self.data)
        cdef size_t size = len(self.data)
        cdef jlog_sending to
        cdef int code
        producer.enter()
        try:
            to.client, to.topic = producer.handle, producer.topic(self.name)
            with nogil:
                code = jlog_send_records(producer.calls, &to, &self.rules, data, size, self.base_time_us, &self.at,
                                         &self.sequence)
        finally:
            producer.leave()
        return code

    @property
    def index(self):
        """The index in the batch of the next record to send."""
        return self.passed + (self.sequence - self.first if self.chunk < len(self.chunks) else 0)

    def skip(self):
        """Passes over the next record."""
        if self.chunk < len(self.chunks):
            jlog_pass_record(<const uint8_t *> PyBytes_AS_STRING(self.data), len(self.data), &self.at, &self.sequence)
