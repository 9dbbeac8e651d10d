/* Errors and log lines of a client. librdkafka reports them in any of its threads, which must not touch Python: they
 * are written down here, and a call of the client hands them out. */
#pragma once

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

#include "kafka/librdkafka.h"

#define JLOG_NOTES_MAX 64u                               /* a full ring takes no line; an error replaces the oldest note */

struct jlog_note {
    int code;                                            /* of an error; 0: a line of the log */
    int level;                                           /* of a line, as syslog has them */
    char facility[32];
    char text[472];
};

/* The delivery that says why a transaction fails. Only calls of the client write it, in the thread that calls. */
struct jlog_failure {
    int code;                                            /* 0: all deliveries were acknowledged so far */
    uint32_t alike;                                      /* deliveries that failed by this code, with this one */
    uint32_t others;                                     /* deliveries that failed because of another record */
    uint64_t place;                                      /* sequence of the record + 1; 0: not a record of the journal */
    char topic[256];
};

struct jlog_notes {
    pthread_mutex_t mutex;
    uint64_t written, taken;                             /* since the client was created */
    struct jlog_note ring[JLOG_NOTES_MAX];
    const struct jlog_rdkafka *calls;
    struct jlog_failure failure;
};

static inline void jlog_note(struct jlog_notes *notes, int code, int level, const char *facility, const char *text)
{
    struct jlog_note *note;

    pthread_mutex_lock(&notes->mutex);
    if (code == 0 && notes->written - notes->taken >= JLOG_NOTES_MAX) { /* a line never takes the place of an error */
        pthread_mutex_unlock(&notes->mutex);
        return;
    }
    note = &notes->ring[notes->written++ % JLOG_NOTES_MAX];
    note->code = code;
    note->level = level;
    snprintf(note->facility, sizeof note->facility, "%s", facility);
    snprintf(note->text, sizeof note->text, "%s", text);
    pthread_mutex_unlock(&notes->mutex);
}

/* Takes the oldest note. Returns 0 if there is none. */
static inline int jlog_take_note(struct jlog_notes *notes, struct jlog_note *note)
{
    int found;

    pthread_mutex_lock(&notes->mutex);
    if (notes->written - notes->taken > JLOG_NOTES_MAX)
        notes->taken = notes->written - JLOG_NOTES_MAX;
    found = notes->taken < notes->written;
    if (found)
        *note = notes->ring[notes->taken++ % JLOG_NOTES_MAX];
    pthread_mutex_unlock(&notes->mutex);
    return found;
}

static inline void jlog_note_error(rd_kafka_t *client, int code, const char *text, void *notes)
{
    (void)client;
    jlog_note(notes, code, 0, "", text);
}

/* Keeps the first failure. Most records of a refused batch fail because of another one, whose own error says more. A
 * purged message has not failed. */
static inline void jlog_note_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque)
{
    struct jlog_notes *const notes = opaque;
    struct jlog_failure *const failure = &notes->failure;

    (void)client;
    if (message->err == 0 || message->err == JLOG_RDKAFKA_PURGED_QUEUE || message->err == JLOG_RDKAFKA_PURGED_INFLIGHT)
        return;
    failure->others += message->err == JLOG_RDKAFKA_ANOTHER_RECORD;
    failure->alike += message->err == failure->code;
    if (failure->code != 0 && failure->code != JLOG_RDKAFKA_ANOTHER_RECORD)
        return;
    failure->alike = 1;
    failure->code = message->err;
    failure->place = (uint64_t)(uintptr_t)message->opaque;
    snprintf(failure->topic, sizeof failure->topic, "%s", notes->calls->topic_name(message->rkt));
}
