from libc.stdint cimport uint32_t, uint64_t

from jlog._core.kafka.library cimport jlog_rdkafka, rd_kafka_conf_t, rd_kafka_error_t, rd_kafka_message_t, rd_kafka_t


cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *, void *)
    int pthread_mutex_destroy(pthread_mutex_t *)


cdef extern from "kafka/notes.h" nogil:
    struct jlog_note:
        int code
        int level
        char *facility
        char *text

    struct jlog_failure:
        int code
        uint32_t alike
        uint32_t others
        uint64_t place
        char *topic

    struct jlog_notes:
        pthread_mutex_t mutex
        const jlog_rdkafka *calls
        jlog_failure failure

    void jlog_note_line "jlog_note"(jlog_notes *notes, int code, int level, const char *facility, const char *text)
    bint jlog_take_note(jlog_notes *notes, jlog_note *note)
    void jlog_note_error(rd_kafka_t *, int, const char *, void *) noexcept
    void jlog_note_delivery(rd_kafka_t *, const rd_kafka_message_t *, void *) noexcept


cdef class Library:
    cdef jlog_rdkafka calls


cdef class Client:
    cdef Library library
    cdef jlog_rdkafka *calls  # those of the library
    cdef rd_kafka_t *handle  # NULL: closed
    cdef jlog_notes *notes
    cdef const uint64_t *process
    cdef uint64_t token  # of the process that has created it
    cdef int users  # calls under way, without the GIL
    cdef bint closing

    cdef bint is_foreign(self) noexcept
    cdef rd_kafka_conf_t *configured(self, dict settings) except NULL
    cdef int start(self, int kind, rd_kafka_conf_t *conf) except -1
    cdef int enter(self) except -1
    cdef int leave(self) except -1
    cdef int release(self) except -1
    cdef void let_go(self) noexcept
    cdef object error(self, rd_kafka_error_t *found)
    cdef object error_of(self, int code)

cdef int milliseconds(object seconds) except -2
