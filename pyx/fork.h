/* What a fork must not carry over. The locks of an open file description belong to parent and child together, and an
 * unlock in the child would free the parent's: so a child closes those descriptors at once and unlocks nothing. Objects
 * of the parent tell by the token that they are in a child. Included by lock.pyx alone: this is the process's state. */
#ifndef JLOG_FORK_H
#define JLOG_FORK_H

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

static struct {
    pthread_mutex_t mutex;
    uint64_t *token;                                     /* reads 0 in a child, however it was made, until it opens a journal */
    uint64_t tokens;                                     /* given out so far, by this process and those it came from */
    int *descriptors;                                    /* to be closed in a child */
    size_t count, room;
} jlog_process = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void jlog_before_fork(void) { pthread_mutex_lock(&jlog_process.mutex); }
static void jlog_fork_in_parent(void) { pthread_mutex_unlock(&jlog_process.mutex); }

static void jlog_fork_in_child(void)
{
    for (size_t i = 0; i < jlog_process.count; i++)
        close(jlog_process.descriptors[i]);
    jlog_process.count = 0;
    *jlog_process.token = 0; /* a kernel before 4.14 has not wiped it */
    pthread_mutex_unlock(&jlog_process.mutex);
}

/* Once, at import. Returns 0 or an errno. */
static int jlog_process_start(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED)
        return errno;
    madvise(page, 4096, MADV_WIPEONFORK);
    jlog_process.token = page;
    *jlog_process.token = ++jlog_process.tokens;
    return pthread_atfork(jlog_before_fork, jlog_fork_in_parent, jlog_fork_in_child);
}

/* Where the process's token stands, which is not 0 after this. */
static const uint64_t *jlog_process_token(void)
{
    if (*jlog_process.token == 0)
        *jlog_process.token = ++jlog_process.tokens;
    return jlog_process.token;
}

/* Returns 0 or ENOMEM. */
static int jlog_close_in_child(int fd)
{
    int error = 0;

    pthread_mutex_lock(&jlog_process.mutex);
    if (jlog_process.count == jlog_process.room) {
        const size_t room = jlog_process.room * 2 + 16;
        int *larger = realloc(jlog_process.descriptors, room * sizeof *larger);

        if (larger == NULL)
            error = ENOMEM;
        else
            jlog_process.descriptors = larger, jlog_process.room = room;
    }
    if (error == 0)
        jlog_process.descriptors[jlog_process.count++] = fd;
    pthread_mutex_unlock(&jlog_process.mutex);
    return error;
}

/* Closes it here and takes it off the list, in one step for a fork. */
static void jlog_close_now(int fd)
{
    pthread_mutex_lock(&jlog_process.mutex);
    for (size_t i = 0; i < jlog_process.count; i++)
        if (jlog_process.descriptors[i] == fd) {
            jlog_process.descriptors[i] = jlog_process.descriptors[--jlog_process.count];
            break;
        }
    close(fd);
    pthread_mutex_unlock(&jlog_process.mutex);
}

#endif
