from jlog._core.kafka.client cimport Client
from jlog._core.kafka.library cimport rd_kafka_message_t

cdef class Messages:
    cdef Client client
    cdef rd_kafka_message_t **messages
    cdef size_t owned  # messages that are to be freed
    cdef size_t count  # those of them that belong to the sequence: the first ones
    cdef readonly list events

    cdef Message message(self, size_t at)
    cdef size_t expected_bytes(self, size_t first)

cdef class Message:
    cdef Messages messages  # keeps alive what `at` points to
    cdef rd_kafka_message_t *at

cdef Messages take_messages(Client client, rd_kafka_message_t **fetched, size_t count)
cdef object bytes_or_none(const void *data, size_t size)
cdef str reason_of(int status)
