"""A client of librdkafka: its settings, its errors and log lines, and its end."""

from collections import namedtuple

from cython cimport no_gc_clear
from libc.limits cimport INT_MAX
from libc.stdlib cimport calloc, free

from jlog._core.kafka.library cimport (
    JLOG_RDKAFKA_INVALID_ARG, jlog_rdkafka_load, jlog_rdkafka_metadata, rd_kafka_conf_t, rd_kafka_t, rd_kafka_topic_t)
from jlog._core.system.file cimport process_token

Note = namedtuple("Note", "code level facility text")
Note.__doc__ = """An error that the client reports outside its calls; or a line of its log, with code 0 and syslog's level."""

# librdkafka gives a callback for the log no argument of ours. This call finds it, and is the same for all clients.
cdef void *(*opaque_of)(const rd_kafka_t *) noexcept nogil


cdef object exception(int code, const char *text, bint fatal=False, bint retriable=False, bint abortable=False):
    """Returns an error of librdkafka as the Python client raises it, so that one handling knows those of both."""
    from confluent_kafka import KafkaError, KafkaException  # not needed by a program without Kafka

    return KafkaException(KafkaError(code, text.decode("utf-8", "replace"), fatal, retriable, abortable))


cdef void note_line(const rd_kafka_t *client, int level, const char *facility, const char *text) noexcept nogil:
    if client != NULL:  # a line about a configuration belongs to no client
        jlog_note_line(<jlog_notes *> opaque_of(client), 0, level, facility, text)


class LibraryUnavailable(Exception):
    """The library is not there, lacks a call, or has a version that jlog does not know."""


cdef class Library:
    """The calls of the librdkafka that the module at `path` is linked with. The module must be loaded, and stays so until the
    process ends."""

    def __init__(self, str path not None):
        cdef char problem[1024]
        cdef bytes name = path.encode("utf-8", "surrogateescape")
        if jlog_rdkafka_load(&self.calls, name, problem, sizeof(problem)) < 0:
            raise LibraryUnavailable(problem.decode("utf-8", "replace"))

    @property
    def version(self):
        """The version of librdkafka, such as 2.6.0."""
        return self.calls.version_str().decode()


@no_gc_clear  # the library is needed until the client is destroyed
cdef class Client:
    """One rd_kafka_t. Any thread may call it, but a child of a fork may not. It is destroyed by close(), or with the object.

    settings: names and values of librdkafka's, all of them text. Raises KafkaException for one that librdkafka refuses.
    """

    def __cinit__(self, Library library not None, *args, **kwargs):
        self.library = library
        self.calls = &library.calls
        self.process = process_token()
        self.token = self.process[0]
        self.notes = <jlog_notes *> calloc(1, sizeof(jlog_notes))
        if self.notes == NULL or pthread_mutex_init(&self.notes.mutex, NULL) != 0:
            raise MemoryError
        self.notes.calls = self.calls

    def __dealloc__(self):
        if self.is_foreign():
            return  # the threads that own the rest are in the parent alone
        if self.handle != NULL:
            with nogil:
                self.calls.destroy(self.handle)
        if self.notes != NULL:
            pthread_mutex_destroy(&self.notes.mutex)
            free(self.notes)

    def __init__(self, Library library not None, dict settings not None):
        raise TypeError("a Client is not created itself: create a Producer or a Consumer")

    cdef rd_kafka_conf_t *configured(self, dict settings) except NULL:
        """Returns librdkafka's object for these settings. The caller hands it on or destroys it."""
        global opaque_of
        cdef char problem[512]
        cdef bytes name, value
        cdef rd_kafka_conf_t *conf = self.calls.conf_new()
        opaque_of = self.calls.opaque
        self.calls.conf_set_opaque(conf, self.notes)
        self.calls.conf_set_error_cb(conf, jlog_note_error)
        self.calls.conf_set_log_cb(conf, note_line)
        try:
            for given, wanted in settings.items():
                name, value = given.encode(), wanted.encode("utf-8", "surrogateescape")
                if self.calls.conf_set(conf, name, value, problem, sizeof(problem)) != 0:
                    raise exception(JLOG_RDKAFKA_INVALID_ARG, problem)
        except BaseException:
            self.calls.conf_destroy(conf)
            raise
        return conf

    cdef int start(self, int kind, rd_kafka_conf_t *conf) except -1:
        """Creates the client, which takes `conf` over."""
        cdef char problem[512]
        with nogil:
            self.handle = self.calls.new_(kind, conf, problem, sizeof(problem))
        if self.handle == NULL:
            code = self.calls.last_error()
            self.calls.conf_destroy(conf)
            raise exception(code, problem)
        return 0

    # --- Calls ------------------------------------------------------------------------------------------------------

    cdef bint is_foreign(self) noexcept:
        """Returns whether another process has created the client, before a fork. getpid() would take longer than a message."""
        return self.process == NULL or self.process[0] != self.token

    cdef int enter(self) except -1:
        """Begins a call that uses the handle. leave() ends it."""
        if self.is_foreign():
            raise ValueError("this client belongs to the process that this one was forked from")
        if self.handle == NULL or self.closing:
            raise ValueError("this client is closed")
        self.users += 1
        return 0

    cdef int leave(self) except -1:
        self.users -= 1
        return self.release() if self.closing else 0

    cdef int release(self) except -1:
        cdef rd_kafka_t *handle = self.handle
        if self.users == 0 and handle != NULL:
            self.handle = NULL
            self.let_go()
            with nogil:
                self.calls.destroy(handle)
        return 0

    cdef void let_go(self) noexcept:
        """Frees what belongs to the handle, which is destroyed next."""

    def close(self):
        """Ends the client, with all that it has not sent. Where another thread is in a call, that call ends it."""
        if not self.is_foreign():
            self.closing = True
            self.release()

    def poll(self, double seconds):
        """Waits until there is something to handle, and handles it. Returns how many events that were. fatal_error() says
        whether the client can still be used."""
        cdef int wait = milliseconds(seconds)
        cdef int found
        self.enter()
        try:
            with nogil:
                found = self.calls.poll(self.handle, wait)
        finally:
            self.leave()
        return found

    def fatal_error(self):
        """Returns the error after which the client cannot be used any more, or None."""
        cdef char text[512]
        cdef int code
        self.enter()
        try:
            code = self.calls.fatal_error(self.handle, text, sizeof(text))
        finally:
            self.leave()
        return exception(code, text, True) if code else None

    def take_notes(self):
        """Returns the errors and log lines since the last call, at most 64 of them."""
        cdef jlog_note note
        found = []
        if self.is_foreign():
            return found
        while jlog_take_note(self.notes, &note):
            found.append(Note(note.code, note.level, note.facility.decode("utf-8", "replace"),
                              note.text.decode("utf-8", "replace")))
        return found

    def partitions(self, str topic not None, double seconds):
        """Asks for the number of the topic's partitions, which the client goes by from then on. Raises KafkaException."""
        cdef const jlog_rdkafka_metadata *found = NULL
        cdef rd_kafka_topic_t *asked
        cdef bytes encoded = topic.encode()
        cdef const char *name = encoded
        cdef int wait = milliseconds(seconds)
        cdef int code, count = 0
        self.enter()
        try:
            with nogil:
                asked = self.calls.topic_new(self.handle, name, NULL)
                code = self.calls.last_error() if asked == NULL else (
                    self.calls.metadata(self.handle, 0, asked, &found, wait))
                if found != NULL:
                    if found.topic_count == 1:
                        code = found.topics[0].err
                        count = found.topics[0].partition_count
                    self.calls.metadata_destroy(found)
                if asked != NULL:
                    self.calls.topic_destroy(asked)
        finally:
            self.leave()
        if code:
            raise self.error_of(code)
        return count

    # --- Errors -----------------------------------------------------------------------------------------------------

    cdef object error(self, rd_kafka_error_t *found):
        """Returns the exception for librdkafka's error, and frees that."""
        try:
            return exception(self.calls.error_code(found), self.calls.error_string(found), self.calls.error_is_fatal(found),
                             self.calls.error_is_retriable(found), self.calls.error_txn_requires_abort(found))
        finally:
            self.calls.error_destroy(found)

    cdef object error_of(self, int code):
        return exception(code, self.calls.err2str(code))


cdef int milliseconds(object seconds) except -2:
    """Returns a time for librdkafka, where -1 waits for ever. A time above 0 is at least a millisecond."""
    if seconds < 0:
        return -1
    return min(<long long> (seconds * 1000 + 0.999), INT_MAX)
