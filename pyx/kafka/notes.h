/* Errors and log lines of a client. librdkafka tells them in any of its threads, which must not touch Python: they are written
 * down here, and a call of the client hands them out. */
#ifndef JLOG_NOTES_H
#define JLOG_NOTES_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

#include "kafka/librdkafka.h"

#define JLOG_NOTES_MAX 64u                               /* the oldest ones give way: a log of debug lines must not grow */

struct jlog_note {
    int code;                                            /* of an error; 0: a line of the log */
    int level;                                           /* of a line, as syslog has them */
    char facility[32];
    char text[472];
};

struct jlog_notes {
    pthread_mutex_t mutex;
    uint64_t written, taken;                             /* since the client was made */
    struct jlog_note ring[JLOG_NOTES_MAX];
};

static inline void jlog_note(struct jlog_notes *notes, int code, int level, const char *facility, const char *text)
{
    struct jlog_note *note;

    pthread_mutex_lock(&notes->mutex);
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

#endif
