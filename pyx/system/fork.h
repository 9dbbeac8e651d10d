/* Keeps a child process from inheriting locks. Parent and child share the locks of an open file description, and an unlock in
 * the child would free the parent's. So a child closes those descriptors at once and unlocks nothing. Objects of the parent
 * learn from the token that they are in a child. Only lock.pyx includes this file, because it holds the process's state. */
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "system/file.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

static struct {
    pthread_mutex_t mutex;
    uint64_t *token;                                     /* reads 0 in every child until it opens a journal itself */
    uint64_t tokens;                                     /* tokens given out so far, by this process and its ancestors */
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

/* Prepares the process for forks. Called once, at import. Returns 0 or an errno. */
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

/* Returns the address of the process's token, which is not 0 after this call. */
static const uint64_t *jlog_process_token(void)
{
    if (*jlog_process.token == 0)
        *jlog_process.token = ++jlog_process.tokens;
    return jlog_process.token;
}

/* Makes room in the list for one descriptor more. Under the mutex. Returns 0 or ENOMEM. */
static int jlog_make_room(void)
{
    const size_t room = jlog_process.room * 2 + 16;
    int *larger;

    if (jlog_process.count < jlog_process.room)
        return 0;
    larger = realloc(jlog_process.descriptors, room * sizeof *larger);
    if (larger == NULL)
        return ENOMEM;
    jlog_process.descriptors = larger;
    jlog_process.room = room;
    return 0;
}

/* Opens a regular file, or with O_DIRECTORY a directory, relative to `directory` as openat() does, never a symbolic link, and
 * adds the descriptor to the list that a child closes. A fork waits for the mutex, so it sees both steps or none: no child ever
 * keeps the descriptor, and its locks are free once this process dies. Called without the GIL, because a thread that forks
 * keeps the GIL while it waits. Returns the descriptor, which is above those of standard input, output and error, or -errno:
 * EISDIR for everything else that is not a regular file. O_NONBLOCK keeps the opening of a pipe from waiting. */
static int jlog_open_for_locks(int directory, const char *path, int flags, unsigned mode)
{
    struct stat found;
    int fd = -1, error;

    flags |= O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    pthread_mutex_lock(&jlog_process.mutex);
    error = jlog_make_room();
    while (error == 0 && (fd = openat(directory, path, flags, (mode_t)mode)) < 0 && errno == EINTR)
        ;
    if (error == 0 && fd < 0)
        error = errno;
    if (error == 0) {
        fd = jlog_above_standard(fd);
        error = fd < 0 ? -fd : 0;
    }
    if (error == 0 && (fstat(fd, &found) != 0 || !(S_ISREG(found.st_mode) || flags & O_DIRECTORY))) {
        error = EISDIR;
        close(fd);
    }
    if (error == 0)
        jlog_process.descriptors[jlog_process.count++] = fd;
    pthread_mutex_unlock(&jlog_process.mutex);
    return error == 0 ? fd : -error;
}

/* Closes the descriptor, if it still is that of this file, and takes it off the list; a fork sees both or none. Its locks are
 * released first: a child that was forked a moment ago may not have closed its copy yet, and until then the locks would stay. */
static void jlog_close_now(int fd, const struct jlog_identity *file)
{
    struct flock all = {.l_type = F_UNLCK, .l_whence = SEEK_SET};

    pthread_mutex_lock(&jlog_process.mutex);
    for (size_t i = 0; i < jlog_process.count; i++)
        if (jlog_process.descriptors[i] == fd) {
            jlog_process.descriptors[i] = jlog_process.descriptors[--jlog_process.count];
            break;
        }
    if (jlog_is_file(fd, file)) {
        fcntl(fd, F_OFD_SETLK, &all);
        close(fd);
    }
    pthread_mutex_unlock(&jlog_process.mutex);
}
