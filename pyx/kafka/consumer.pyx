"""Reads partitions of topics from given offsets, without being a member of a group. Fetched messages become records in C."""

from collections import namedtuple

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cython cimport no_gc_clear
from libc.stdint cimport int64_t

from jlog._core.kafka.client cimport Client, Library, milliseconds
from jlog._core.kafka.library cimport (
    JLOG_RDKAFKA_CONSUMER, jlog_rdkafka, rd_kafka_headers_t, rd_kafka_message_t, rd_kafka_queue_t, rd_kafka_t,
    rd_kafka_topic_partition_list_t, rd_kafka_topic_partition_t)
from jlog._core.format.format cimport JLOG_LONG_BYTES, JLOG_RAW_BYTES_MAX
from jlog._core.records.encode cimport (
    JLOG_ENCODE_DONE, JLOG_ENCODE_NO_ROOM, JLOG_ENCODE_NOT_UTF8, JLOG_ENCODE_TIME_OUT_OF_RANGE, JLOG_ENCODE_TOO_LARGE,
    JLOG_ENCODE_TOO_MANY_HEADERS, EncodedRecords, jlog_encoded)

Event = namedtuple("Event", "code reason topic partition offset")
Event.__doc__ = """The end of a partition, or an error, between messages. `code` and `reason` are librdkafka's; topic "": the
error is not of a topic."""

cdef enum:
    AT_ONCE_MAX = 100_000

cdef extern from "kafka/messages.h" nogil:
    enum:
        JLOG_PLACE_BYTES_MAX
    int jlog_put_messages(jlog_encoded *to, jlog_rdkafka *calls, rd_kafka_message_t **messages, bint with_topic,
                          size_t *at, size_t count, size_t *value_bytes)

cdef dict REASONS = {
    JLOG_ENCODE_NOT_UTF8: "the name of one of its headers is not UTF-8",
    JLOG_ENCODE_TIME_OUT_OF_RANGE: "its time in microseconds does not fit into 64 bits",
    JLOG_ENCODE_TOO_LARGE: "its value, its key, or its headers together, have more than 1 GiB",
    JLOG_ENCODE_TOO_MANY_HEADERS: "it has too many headers",
}


cdef str reason_of(int status):
    """Returns why a message cannot become a record."""
    return REASONS[status]


cdef int64_t _held = 0


def held():
    """Returns how many messages of librdkafka's all Messages hold."""
    return _held


cdef Messages take_messages(Client client, rd_kafka_message_t **fetched, size_t count):
    """Takes over the fetched messages. They are freed also if this fails."""
    global _held
    cdef Messages taken = Messages.__new__(Messages)
    cdef size_t at = 0
    taken.client = client
    client.users += 1  # until they are freed it is not destroyed
    taken.events = []
    try:
        taken.messages = <rd_kafka_message_t **> PyMem_Malloc((count + 1) * sizeof(rd_kafka_message_t *))
        if taken.messages == NULL:
            raise MemoryError
        while at < count:
            if fetched[at].err == 0:
                taken.messages[taken.count] = fetched[at]
                taken.count += 1
            else:
                taken.events.append((taken.count, event_of(client.calls, fetched[at])))
                client.calls.message_destroy(fetched[at])
            at += 1
    finally:
        taken.owned = taken.count
        _held += taken.owned
        for rest in range(at, count):
            client.calls.message_destroy(fetched[rest])
    return taken


cdef object event_of(jlog_rdkafka *calls, const rd_kafka_message_t *message):
    topic = "" if message.rkt == NULL else calls.topic_name(message.rkt).decode()
    return Event(message.err, calls.message_errstr(message).decode("utf-8", "replace"), topic, message.partition,
                 message.offset)


@no_gc_clear  # the client is needed until the messages are freed
cdef class Messages:
    """A sequence of Message, in the memory of librdkafka. A Message is created when it is asked for.

    events: each Event between them, with the number of messages before it.
    """

    def __dealloc__(self):
        global _held
        cdef jlog_rdkafka *calls
        cdef size_t at
        if self.client is not None and not self.client.is_foreign():  # a child leaves them alone
            calls = self.client.calls
            with nogil:
                for at in range(self.owned):
                    calls.message_destroy(self.messages[at])
            _held -= self.owned
            self.client.leave()
        PyMem_Free(self.messages)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self.message(at) for at in range(*index.indices(self.count))]
        if index < 0:
            index += self.count
        if not 0 <= index < <Py_ssize_t> self.count:
            raise IndexError(f"message {index} is out of range: there are {self.count}")
        return self.message(index)

    def __iter__(self):
        return iter(self[:])

    cdef Message message(self, size_t at):
        cdef Message message = Message.__new__(Message)
        message.messages = self
        message.at = self.messages[at]
        return message

    def cut(self, size_t count):
        """Leaves out all but the first `count` messages."""
        self.count = min(self.count, count)

    def ends(self):
        """Returns, for each (topic, partition), the offset after its last message, and the leader epoch of that one, or -1."""
        cdef jlog_rdkafka *calls = self.client.calls
        cdef const rd_kafka_message_t *message
        cdef size_t at
        found = {}
        for at in range(self.count):
            message = self.messages[at]
            if at + 1 < self.count and self.messages[at + 1].rkt == message.rkt and (
                    self.messages[at + 1].partition == message.partition):
                continue
            found[calls.topic_name(message.rkt).decode(), message.partition] = (
                message.offset + 1, calls.message_leader_epoch(message))
        return found

    @property
    def value_bytes(self):
        cdef size_t at, total = 0
        for at in range(self.count):
            total += self.messages[at].len
        return total

    def add_to(self, EncodedRecords body not None, bint with_topic, size_t first):
        """Adds a record for each message from index `first` on to the body of a journal's writer. After its own headers come
        those of its place in Kafka: partition and offset, and the topic before them if `with_topic`. Stops at a message that
        cannot become a record. Returns the index after the last record, the bytes of the values, and the reason for a stop,
        or None."""
        cdef jlog_rdkafka *calls = self.client.calls
        cdef jlog_encoded to
        cdef size_t at = first, done, value_bytes = 0
        cdef int status = JLOG_ENCODE_NO_ROOM
        body.take()
        try:
            body.reserve(min(self.expected_bytes(first), JLOG_RAW_BYTES_MAX - body.size))
            while status == JLOG_ENCODE_NO_ROOM:
                body.lend(&to)
                done = at
                with nogil:
                    status = jlog_put_messages(&to, calls, self.messages, with_topic, &at, self.count, &value_bytes)
                body.take_back(&to, at - done)
                if status == JLOG_ENCODE_NO_ROOM:
                    body.reserve(body.room - body.size + 1)
        finally:
            body.taken = False
        return at, value_bytes, None if status == JLOG_ENCODE_DONE else reason_of(status)

    cdef size_t expected_bytes(self, size_t first):
        """Returns the bytes of the records, but for headers that the messages have themselves."""
        cdef size_t at, total = 0
        for at in range(first, self.count):
            total += self.messages[at].len + self.messages[at].key_len + JLOG_LONG_BYTES + 8 + JLOG_PLACE_BYTES_MAX
        return total


cdef class Message:
    """One message, with the methods of confluent_kafka's. It keeps alive all messages that were fetched together with it."""

    def __init__(self):
        raise TypeError("messages are created by a consumer")

    def __len__(self):
        return self.at.len

    def value(self):
        return bytes_or_none(self.at.payload, self.at.len)

    def key(self):
        return bytes_or_none(self.at.key, self.at.key_len)

    def topic(self):
        return self.messages.client.calls.topic_name(self.at.rkt).decode()

    def partition(self):
        return self.at.partition

    def offset(self):
        return self.at.offset

    def leader_epoch(self):
        epoch = self.messages.client.calls.message_leader_epoch(self.at)
        return None if epoch < 0 else epoch

    def timestamp(self):
        """Returns the kind of the time, and the milliseconds since 1970."""
        cdef int kind
        time_ms = self.messages.client.calls.message_timestamp(self.at, &kind)
        return <int> kind, time_ms

    def headers(self):
        """Returns the headers; None if there are none. Raises UnicodeDecodeError where a name is not UTF-8."""
        cdef jlog_rdkafka *calls = self.messages.client.calls
        cdef rd_kafka_headers_t *headers
        cdef const char *name
        cdef const void *value
        cdef size_t size, at = 0
        if calls.message_headers(self.at, &headers):
            return None
        found = []
        while not calls.header_get_all(headers, at, &name, &value, &size):
            found.append((name.decode(), bytes_or_none(value, size)))
            at += 1
        return found


cdef object bytes_or_none(const void *data, size_t size):
    return None if data == NULL else PyBytes_FromStringAndSize(<const char *> data, size)


cdef void note_commit(rd_kafka_t *handle, int error, rd_kafka_topic_partition_list_t *offsets, void *to) noexcept nogil:
    (<int *> to)[0] = error


@no_gc_clear  # the library is needed until the client is destroyed
cdef class Consumer(Client):
    """A consumer of librdkafka. One thread uses it. What it has fetched stays valid after close().

    commit_error: the error of the last commit; 0: there was none.
    """

    cdef rd_kafka_queue_t *queue  # fetched messages and events
    cdef readonly int commit_error

    def __init__(self, Library library not None, dict settings not None):
        self.start(JLOG_RDKAFKA_CONSUMER, self.configured(settings))
        self.calls.poll_set_consumer(self.handle)
        self.queue = self.calls.queue_get_consumer(self.handle)

    def __dealloc__(self):
        self.give_queue_back()

    cdef int give_queue_back(self) except -1:
        queue, self.queue = self.queue, NULL
        if queue != NULL and not self.is_foreign():
            self.calls.queue_destroy(queue)
        return 0

    cdef int release(self) except -1:
        if self.users == 0:
            self.give_queue_back()
        return Client.release(self)

    def assign(self, places not None):
        """Reads these partitions from now on, and no others. What was fetched ahead is forgotten.

        places: (topic, partition, offset of the next message, leader epoch of the last one or -1). Raises KafkaException.
        """
        self.with_list(places, False)

    def commit(self, places not None):
        """Commits these offsets for the group of the settings, without waiting for it. places: as assign takes them."""
        self.with_list(places, True)

    cdef int with_list(self, places, bint commits) except -1:
        cdef rd_kafka_topic_partition_list_t *found
        cdef rd_kafka_topic_partition_t *part
        cdef int code
        self.enter()
        found = self.calls.topic_partition_list_new(len(places))
        try:
            for topic, partition, offset, leader_epoch in places:
                part = self.calls.topic_partition_list_add(found, (<str> topic).encode(), partition)
                part.offset = offset
                if leader_epoch >= 0:
                    self.calls.topic_partition_set_leader_epoch(part, leader_epoch)
            with nogil:
                if commits:
                    code = self.calls.commit_queue(self.handle, found, self.queue, note_commit, &self.commit_error)
                else:
                    code = self.calls.assign(self.handle, found)
        finally:
            self.calls.topic_partition_list_destroy(found)
            self.leave()
        if code:
            raise self.error_of(code)
        return 0

    def fetch(self, size_t count, double seconds):
        """Waits up to `seconds` for a message, then returns up to `count` messages that have arrived, as Messages."""
        cdef rd_kafka_message_t **fetched
        cdef ssize_t got = 0, more = 0
        cdef int wait = milliseconds(seconds)
        count = max(1, min(count, AT_ONCE_MAX))
        self.enter()
        fetched = <rd_kafka_message_t **> PyMem_Malloc(count * sizeof(rd_kafka_message_t *))
        try:
            if fetched == NULL:
                raise MemoryError
            with nogil:
                got = self.calls.consume_batch_queue(self.queue, wait, fetched, 1)
                if got == 1 and count > 1:
                    more = self.calls.consume_batch_queue(self.queue, 0, fetched + 1, count - 1)
            if got < 0:
                raise self.error_of(self.calls.last_error())
            return take_messages(self, fetched, got + max(more, 0))
        finally:
            PyMem_Free(fetched)
            self.leave()
