/* The part of librdkafka's public interface that jlog uses, as a table of pointers. They are looked up at run time, in the very
 * library that the Python client is linked with, so that jlog needs no header and no library when it is built or imported.
 *
 * The layouts and numbers are those of librdkafka's documented interface, which has kept them in all of 1.x and 2.x. */
#pragma once

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#define JLOG_RDKAFKA_OLDEST 0x02000000                   /* 2.0.0 */
#define JLOG_RDKAFKA_BEYOND 0x03000000                   /* the next major version may change what is declared here */

enum { JLOG_RDKAFKA_PRODUCER = 0, JLOG_RDKAFKA_CONSUMER = 1 };
enum { JLOG_RDKAFKA_BY_KEY = -1 };                       /* partition of a message: the partitioner chooses it */
enum { JLOG_RDKAFKA_COPY = 2 };                          /* flag of a message: the call copies its value */
enum { JLOG_RDKAFKA_PURGE_ALL = 3 };                     /* messages in the queue, and those on their way */
enum { JLOG_RDKAFKA_NO_TIME = 0 };                        /* kind of the time of a message that has none */

/* Numbers of errors. */
enum {
    JLOG_RDKAFKA_INVALID_ARG = -186,
    JLOG_RDKAFKA_BAD_MSG = -199,
    JLOG_RDKAFKA_PURGED_QUEUE = -152,
    JLOG_RDKAFKA_PURGED_INFLIGHT = -151,
    JLOG_RDKAFKA_ANOTHER_RECORD = -138,                  /* another record of the same batch was refused */
};

/* Kinds of the arguments of produceva. */
enum {
    JLOG_RDKAFKA_TOPIC = 2,                              /* by its handle */
    JLOG_RDKAFKA_PARTITION = 3,
    JLOG_RDKAFKA_VALUE = 4,
    JLOG_RDKAFKA_KEY = 5,
    JLOG_RDKAFKA_OPAQUE = 6,
    JLOG_RDKAFKA_FLAGS = 7,
    JLOG_RDKAFKA_TIMESTAMP = 8,
    JLOG_RDKAFKA_HEADERS = 10,
};

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_error_s rd_kafka_error_t;
typedef struct rd_kafka_headers_s rd_kafka_headers_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;

typedef struct {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *opaque;
} rd_kafka_message_t;

typedef struct {
    int vtype;
    union {
        const char *cstr;
        rd_kafka_topic_t *rkt;
        int i;
        int32_t i32;
        int64_t i64;
        struct {
            void *ptr;
            size_t size;
        } mem;
        rd_kafka_headers_t *headers;
        void *ptr;
        char padding[64];
    } u;
} rd_kafka_vu_t;

struct jlog_rdkafka_partition {
    int32_t id;
    int err;
    int32_t leader;
    int replica_count;
    int32_t *replicas;
    int isr_count;
    int32_t *isrs;
};

struct jlog_rdkafka_topic {
    char *topic;
    int partition_count;
    struct jlog_rdkafka_partition *partitions;
    int err;
};

struct jlog_rdkafka_metadata {
    int broker_count;
    void *brokers;
    int topic_count;
    struct jlog_rdkafka_topic *topics;
    int32_t broker_id;
    char *broker_name;
};

typedef struct rd_kafka_topic_partition_list_s rd_kafka_topic_partition_list_t;

typedef struct {
    char *topic;
    int32_t partition;
    int64_t offset;
    void *metadata;
    size_t metadata_size;
    void *opaque;
    int err;
    void *hidden;
} rd_kafka_topic_partition_t;

typedef void (*jlog_on_error)(rd_kafka_t *, int, const char *, void *);
typedef void (*jlog_on_log)(const rd_kafka_t *, int, const char *, const char *);
typedef void (*jlog_on_delivery)(rd_kafka_t *, const rd_kafka_message_t *, void *);
typedef void (*jlog_on_commit)(rd_kafka_t *, int, rd_kafka_topic_partition_list_t *, void *);

/* Every call that is used: what it returns, its name without rd_kafka_, its arguments. */
#define JLOG_RDKAFKA_CALLS(CALL)                                                                                            \
    CALL(int, version, (void))                                                                                              \
    CALL(const char *, version_str, (void))                                                                                 \
    CALL(const char *, err2str, (int))                                                                                      \
    CALL(int, last_error, (void))                                                                                           \
    CALL(int, fatal_error, (rd_kafka_t *, char *, size_t))                                                                  \
    CALL(int, error_code, (const rd_kafka_error_t *))                                                                       \
    CALL(const char *, error_string, (const rd_kafka_error_t *))                                                            \
    CALL(int, error_is_fatal, (const rd_kafka_error_t *))                                                                   \
    CALL(int, error_is_retriable, (const rd_kafka_error_t *))                                                               \
    CALL(int, error_txn_requires_abort, (const rd_kafka_error_t *))                                                         \
    CALL(void, error_destroy, (rd_kafka_error_t *))                                                                         \
    CALL(rd_kafka_conf_t *, conf_new, (void))                                                                               \
    CALL(void, conf_destroy, (rd_kafka_conf_t *))                                                                           \
    CALL(int, conf_set, (rd_kafka_conf_t *, const char *, const char *, char *, size_t))                                    \
    CALL(void, conf_set_opaque, (rd_kafka_conf_t *, void *))                                                                \
    CALL(void, conf_set_error_cb, (rd_kafka_conf_t *, jlog_on_error))                                                       \
    CALL(void, conf_set_log_cb, (rd_kafka_conf_t *, jlog_on_log))                                                           \
    CALL(void, conf_set_dr_msg_cb, (rd_kafka_conf_t *, jlog_on_delivery))                                                   \
    CALL(rd_kafka_t *, new, (int, rd_kafka_conf_t *, char *, size_t))                                                       \
    CALL(void *, opaque, (const rd_kafka_t *))                                                                              \
    CALL(void, destroy, (rd_kafka_t *))                                                                                     \
    CALL(int, poll, (rd_kafka_t *, int))                                                                                    \
    CALL(int, outq_len, (rd_kafka_t *))                                                                                     \
    CALL(int, metadata, (rd_kafka_t *, int, rd_kafka_topic_t *, const struct jlog_rdkafka_metadata **, int))                \
    CALL(void, metadata_destroy, (const struct jlog_rdkafka_metadata *))                                                    \
    CALL(rd_kafka_topic_t *, topic_new, (rd_kafka_t *, const char *, rd_kafka_topic_conf_t *))                              \
    CALL(void, topic_destroy, (rd_kafka_topic_t *))                                                                         \
    CALL(const char *, topic_name, (const rd_kafka_topic_t *))                                                              \
    CALL(rd_kafka_headers_t *, headers_new, (size_t))                                                                       \
    CALL(void, headers_destroy, (rd_kafka_headers_t *))                                                                     \
    CALL(int, header_add, (rd_kafka_headers_t *, const char *, ssize_t, const void *, ssize_t))                             \
    CALL(rd_kafka_error_t *, produceva, (rd_kafka_t *, const rd_kafka_vu_t *, size_t))                                      \
    CALL(int, poll_set_consumer, (rd_kafka_t *))                                                                            \
    CALL(rd_kafka_queue_t *, queue_get_consumer, (rd_kafka_t *))                                                            \
    CALL(void, queue_destroy, (rd_kafka_queue_t *))                                                                         \
    CALL(ssize_t, consume_batch_queue, (rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t))                            \
    CALL(int, assign, (rd_kafka_t *, const rd_kafka_topic_partition_list_t *))                                              \
    CALL(int, commit_queue,                                                                                                 \
         (rd_kafka_t *, const rd_kafka_topic_partition_list_t *, rd_kafka_queue_t *, jlog_on_commit, void *))               \
    CALL(rd_kafka_topic_partition_list_t *, topic_partition_list_new, (int))                                                \
    CALL(rd_kafka_topic_partition_t *, topic_partition_list_add, (rd_kafka_topic_partition_list_t *, const char *, int32_t)) \
    CALL(void, topic_partition_list_destroy, (rd_kafka_topic_partition_list_t *))                                           \
    CALL(void, topic_partition_set_leader_epoch, (rd_kafka_topic_partition_t *, int32_t))                                   \
    CALL(const char *, message_errstr, (const rd_kafka_message_t *))                                                        \
    CALL(int64_t, message_timestamp, (const rd_kafka_message_t *, int *))                                                   \
    CALL(int32_t, message_leader_epoch, (const rd_kafka_message_t *))                                                       \
    CALL(int, message_headers, (const rd_kafka_message_t *, rd_kafka_headers_t **))                                         \
    CALL(int, header_get_all, (const rd_kafka_headers_t *, size_t, const char **, const void **, size_t *))                 \
    CALL(void, message_destroy, (rd_kafka_message_t *))                                                                     \
    CALL(int, flush, (rd_kafka_t *, int))                                                                                   \
    CALL(int, purge, (rd_kafka_t *, int))                                                                                   \
    CALL(rd_kafka_error_t *, init_transactions, (rd_kafka_t *, int))                                                        \
    CALL(rd_kafka_error_t *, begin_transaction, (rd_kafka_t *))                                                             \
    CALL(rd_kafka_error_t *, commit_transaction, (rd_kafka_t *, int))                                                       \
    CALL(rd_kafka_error_t *, abort_transaction, (rd_kafka_t *, int))

#define JLOG_RDKAFKA_POINTER(type, name, arguments) type(*name) arguments;
#define JLOG_RDKAFKA_NAME(type, name, arguments) "rd_kafka_" #name,

struct jlog_rdkafka {
    JLOG_RDKAFKA_CALLS(JLOG_RDKAFKA_POINTER)
};

/* Fills the table from the libraries that the module at `path` is linked with. The module must be loaded already, and stays so.
 * A search by its handle goes through all of its dependencies, whatever they are called and wherever they are. Returns 0, or -1
 * with what is missing in `problem`. */
static int jlog_rdkafka_load(struct jlog_rdkafka *calls, const char *path, char *problem, size_t problem_bytes)
{
    static const char *const names[] = {JLOG_RDKAFKA_CALLS(JLOG_RDKAFKA_NAME)};
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD | RTLD_NODELETE);

    _Static_assert(sizeof *calls == sizeof names / sizeof names[0] * sizeof(void *), "a pointer for each name");
    if (library == NULL) {
        snprintf(problem, problem_bytes, "%s is not loaded", path);
        return -1;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *const found = dlsym(library, names[i]);

        if (found == NULL) {
            snprintf(problem, problem_bytes, "%s is not linked with a library that has %s", path, names[i]);
            return -1;
        }
        memcpy((char *)calls + i * sizeof found, &found, sizeof found);
    }
    if (calls->version() < JLOG_RDKAFKA_OLDEST || calls->version() >= JLOG_RDKAFKA_BEYOND) {
        snprintf(problem, problem_bytes, "%s is linked with librdkafka %s; jlog calls 2.x", path, calls->version_str());
        return -1;
    }
    return 0;
}
