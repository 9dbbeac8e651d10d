from libc.stdint cimport int32_t, int64_t


cdef extern from "kafka/librdkafka.h" nogil:
    enum:
        JLOG_RDKAFKA_PRODUCER
        JLOG_RDKAFKA_CONSUMER
        JLOG_RDKAFKA_PURGE_ALL
        JLOG_RDKAFKA_INVALID_ARG
    ctypedef struct rd_kafka_t
    ctypedef struct rd_kafka_conf_t
    ctypedef struct rd_kafka_topic_t
    ctypedef struct rd_kafka_topic_conf_t
    ctypedef struct rd_kafka_error_t
    ctypedef struct rd_kafka_headers_t
    ctypedef struct rd_kafka_queue_t
    ctypedef struct rd_kafka_topic_partition_list_t
    ctypedef struct rd_kafka_topic_partition_t:
        int64_t offset
    ctypedef struct rd_kafka_message_t:
        int err
        rd_kafka_topic_t *rkt
        int32_t partition
        void *payload
        size_t len
        void *key
        size_t key_len
        int64_t offset
        void *opaque

    struct jlog_rdkafka_topic:
        int partition_count
        int err

    struct jlog_rdkafka_metadata:
        int topic_count
        jlog_rdkafka_topic *topics

    ctypedef void (*jlog_on_error)(rd_kafka_t *, int, const char *, void *) noexcept nogil
    ctypedef void (*jlog_on_log)(const rd_kafka_t *, int, const char *, const char *) noexcept nogil
    ctypedef void (*jlog_on_delivery)(rd_kafka_t *, const rd_kafka_message_t *, void *) noexcept nogil

    ctypedef void (*jlog_on_commit)(rd_kafka_t *, int, rd_kafka_topic_partition_list_t *, void *) noexcept nogil

    struct jlog_rdkafka:
        int version() noexcept nogil
        const char *version_str() noexcept nogil
        const char *err2str(int) noexcept nogil
        int last_error() noexcept nogil
        int fatal_error(rd_kafka_t *, char *, size_t) noexcept nogil
        int error_code(const rd_kafka_error_t *) noexcept nogil
        const char *error_string(const rd_kafka_error_t *) noexcept nogil
        int error_is_fatal(const rd_kafka_error_t *) noexcept nogil
        int error_is_retriable(const rd_kafka_error_t *) noexcept nogil
        int error_txn_requires_abort(const rd_kafka_error_t *) noexcept nogil
        void error_destroy(rd_kafka_error_t *) noexcept nogil
        rd_kafka_conf_t *conf_new() noexcept nogil
        void conf_destroy(rd_kafka_conf_t *) noexcept nogil
        int conf_set(rd_kafka_conf_t *, const char *, const char *, char *, size_t) noexcept nogil
        void conf_set_opaque(rd_kafka_conf_t *, void *) noexcept nogil
        void conf_set_error_cb(rd_kafka_conf_t *, jlog_on_error) noexcept nogil
        void conf_set_log_cb(rd_kafka_conf_t *, jlog_on_log) noexcept nogil
        void conf_set_dr_msg_cb(rd_kafka_conf_t *, jlog_on_delivery) noexcept nogil
        rd_kafka_t *new_ "new"(int, rd_kafka_conf_t *, char *, size_t) noexcept nogil
        void *opaque(const rd_kafka_t *) noexcept nogil
        void destroy(rd_kafka_t *) noexcept nogil
        int poll(rd_kafka_t *, int) noexcept nogil
        int outq_len(rd_kafka_t *) noexcept nogil
        int metadata(rd_kafka_t *, int, rd_kafka_topic_t *, const jlog_rdkafka_metadata **, int) noexcept nogil
        void metadata_destroy(const jlog_rdkafka_metadata *) noexcept nogil
        rd_kafka_topic_t *topic_new(rd_kafka_t *, const char *, rd_kafka_topic_conf_t *) noexcept nogil
        void topic_destroy(rd_kafka_topic_t *) noexcept nogil
        const char *topic_name(const rd_kafka_topic_t *) noexcept nogil
        int poll_set_consumer(rd_kafka_t *) noexcept nogil
        rd_kafka_queue_t *queue_get_consumer(rd_kafka_t *) noexcept nogil
        void queue_destroy(rd_kafka_queue_t *) noexcept nogil
        ssize_t consume_batch_queue(rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t) noexcept nogil
        int assign(rd_kafka_t *, const rd_kafka_topic_partition_list_t *) noexcept nogil
        int commit_queue(rd_kafka_t *, const rd_kafka_topic_partition_list_t *, rd_kafka_queue_t *, jlog_on_commit,
                         void *) noexcept nogil
        rd_kafka_topic_partition_list_t *topic_partition_list_new(int) noexcept nogil
        rd_kafka_topic_partition_t *topic_partition_list_add(rd_kafka_topic_partition_list_t *, const char *,
                                                             int32_t) noexcept nogil
        void topic_partition_list_destroy(rd_kafka_topic_partition_list_t *) noexcept nogil
        void topic_partition_set_leader_epoch(rd_kafka_topic_partition_t *, int32_t) noexcept nogil
        const char *message_errstr(const rd_kafka_message_t *) noexcept nogil
        int64_t message_timestamp(const rd_kafka_message_t *, int *) noexcept nogil
        int32_t message_leader_epoch(const rd_kafka_message_t *) noexcept nogil
        int message_headers(const rd_kafka_message_t *, rd_kafka_headers_t **) noexcept nogil
        int header_get_all(const rd_kafka_headers_t *, size_t, const char **, const void **, size_t *) noexcept nogil
        void message_destroy(rd_kafka_message_t *) noexcept nogil
        rd_kafka_headers_t *headers_new(size_t) noexcept nogil
        int header_add(rd_kafka_headers_t *, const char *, ssize_t, const void *, ssize_t) noexcept nogil
        int flush(rd_kafka_t *, int) noexcept nogil
        int purge(rd_kafka_t *, int) noexcept nogil
        rd_kafka_error_t *init_transactions(rd_kafka_t *, int) noexcept nogil
        rd_kafka_error_t *begin_transaction(rd_kafka_t *) noexcept nogil
        rd_kafka_error_t *commit_transaction(rd_kafka_t *, int) noexcept nogil
        rd_kafka_error_t *abort_transaction(rd_kafka_t *, int) noexcept nogil

    int jlog_rdkafka_load(jlog_rdkafka *calls, const char *path, char *problem, size_t problem_bytes)
