"""Reads partitions of topics, from offsets that it is told, as no member of a group."""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cython cimport no_gc_clear

from jlog._core.kafka.client cimport Client, milliseconds
from jlog._core.kafka.library cimport (
    JLOG_RDKAFKA_CONSUMER,
    Library,
    rd_kafka_message_t,
    rd_kafka_queue_t,
    rd_kafka_t,
    rd_kafka_topic_partition_list_t,
    rd_kafka_topic_partition_t,
)
from jlog._core.kafka.messages cimport take_messages

cdef enum:
    AT_ONCE_MAX = 100_000


cdef void note_commit(rd_kafka_t *handle, int error, rd_kafka_topic_partition_list_t *offsets, void *to) noexcept nogil:
    (<int *> to)[0] = error


@no_gc_clear  # the library is needed until the client is destroyed
cdef class Consumer(Client):
    """A consumer of librdkafka. One thread uses it. What it has fetched stays valid after close().

    commit_error: the error of the last commit; 0: there was none.
    """

    cdef rd_kafka_queue_t *queue  # what librdkafka has fetched, and what it has to tell
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

        places: (topic, partition, offset of the next message, leader epoch of the last one or -1). Raises ClientError.
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

    def consume(self, size_t count, double seconds):
        """Returns Messages: waits up to `seconds` for the first one, and takes up to `count` of those that are there then."""
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
