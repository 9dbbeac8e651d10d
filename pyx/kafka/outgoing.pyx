"""Records on their way to a topic: which of them are sent, and what of each."""

from cpython.bytes cimport PyBytes_AS_STRING

from jlog._core.records.record cimport RecordBatch

SENT = JLOG_SENT
NOT_PLAIN = JLOG_NOT_PLAIN
FULL = JLOG_FULL


cdef class Outgoing:
    """A way of records to one topic. `value_bytes` and `beside_bytes` count values, and keys with headers, sent so far.

    partition: of all records; None: that of the key, and records without one are spread over `partitions` by their sequence,
    2 ** spread_bits at a time.
    limit_bytes, times_ms, needs_key: a record against these rules is not sent.
    ours: headers that begin so are not sent. sequence_header, timestamp_header: names of added headers.
    """

    def __init__(self, str ours not None, *, partition, int partitions, int spread_bits, bint without_key, bint needs_key,
                 int64_t limit_bytes, tuple times_ms, sequence_header=None, timestamp_header=None):
        cdef jlog_outgoing *rules = &self.rules
        self.chunks = []
        # The rules point to these texts.
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

    cdef int next_chunk(self) except -1:
        self.passed += self.sequence - self.first
        self.chunk += 1
        return self.enter_chunk()

    cdef int pass_on(self, const uint8_t *data, size_t size) except? -1:
        """Passes the records of a chunk on, from `at`. Returns SENT, or why it has stopped."""
        raise NotImplementedError

    def send(self):
        """Sends the rest of the batch. Returns SENT; or why the record at `index` was not sent: NOT_PLAIN where it is against a
        rule or has a header whose name has a NUL, or the number of another reason. Another call tries that record again."""
        cdef int code
        while self.chunk < len(self.chunks):
            code = self.pass_on(<const uint8_t *> PyBytes_AS_STRING(self.data), len(self.data))
            if code != JLOG_SENT:
                return code
            self.next_chunk()
        return JLOG_SENT

    @property
    def index(self):
        """The index in the batch of the next record to send."""
        return self.passed + (self.sequence - self.first if self.chunk < len(self.chunks) else 0)

    def skip(self):
        """Passes over the next record."""
        if self.chunk < len(self.chunks):
            jlog_pass_record(<const uint8_t *> PyBytes_AS_STRING(self.data), len(self.data), &self.at, &self.sequence)
