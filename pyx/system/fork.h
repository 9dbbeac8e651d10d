/* The list of the descriptors that this process has of journals' files. A child of a fork closes all of them at once, and unlocks
 * nothing: parent and child share the locks of an open file description, so that an unlock in the child would free the parent's;
 * and a descriptor that the child kept would keep the blocks of a segment that is removed later. Objects of the parent learn
 * from the token that they are in a child. Only file.pyx includes this file, because it holds the process's state. */
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

#define JLOG_LOWEST_DESCRIPTOR 3 /* printing writes to those below, even in a process that was started with them closed */

/* A file, whatever descriptors and names it has; and the ticket of one opening of it. Once a file is removed and closed, its
 * inode is given to another file, which has another time of birth. A child may open the same file under the same number, so that
 * only the ticket tells its descriptor from the one of its parent that it has closed. */
struct jlog_identity {
    uint64_t device, inode, birth_ns, ticket;
};

static struct {
    pthread_mutex_t mutex;
    uint64_t *token;                                     /* reads 0 in every child until it opens a journal itself */
    uint64_t tokens;                                     /* tokens given out so far, by this process and its ancestors */
    uint64_t tickets;                                    /* likewise */
    struct jlog_identity *files;                         /* by descriptor; ticket 0: it is not one of ours */
    size_t room;
} jlog_process = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Finds out what file a descriptor has, without its ticket. Returns 0 or an errno. The time of birth is 0 where the file system
 * does not keep it, or a container does not let it be asked for. */
static int jlog_look_at(int fd, struct jlog_identity *found)
{
    struct statx status;
    struct stat plain;

    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &status) == 0) {
        found->device = (uint64_t)makedev(status.stx_dev_major, status.stx_dev_minor);
        found->inode = status.stx_ino;
        found->birth_ns = status.stx_mask & STATX_BTIME
                              ? (uint64_t)status.stx_btime.tv_sec * 1000000000u + status.stx_btime.tv_nsec
                              : 0;
        return 0;
    }
    if (fstat(fd, &plain) != 0)
        return errno;
    found->device = (uint64_t)plain.st_dev;
    found->inode = (uint64_t)plain.st_ino;
    found->birth_ns = 0;
    return 0;
}

/* Returns whether the descriptor still is the one that was opened with this identity. A program may close every descriptor that
 * it finds, as daemons do at their start, and open files of its own under the same numbers: nothing may be written there. Under
 * the mutex, or in a child. */
static int jlog_is_listed(int fd, const struct jlog_identity *file)
{
    struct jlog_identity found;

    return fd >= 0 && (size_t)fd < jlog_process.room && file->ticket != 0 && jlog_process.files[fd].ticket == file->ticket &&
           jlog_look_at(fd, &found) == 0 && found.device == file->device && found.inode == file->inode &&
           found.birth_ns == file->birth_ns;
}

static void jlog_before_fork(void) { pthread_mutex_lock(&jlog_process.mutex); }
static void jlog_fork_in_parent(void) { pthread_mutex_unlock(&jlog_process.mutex); }

static void jlog_fork_in_child(void)
{
    for (size_t fd = 0; fd < jlog_process.room; fd++) {
        if (jlog_is_listed((int)fd, &jlog_process.files[fd]))
            close((int)fd);
        jlog_process.files[fd].ticket = 0;
    }
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

/* Puts a descriptor on the list. Under the mutex. Returns 0 or an errno. */
static int jlog_list(int fd)
{
    struct jlog_identity *file;

    if ((size_t)fd >= jlog_process.room) {
        const size_t room = (size_t)fd * 2 + 16;
        struct jlog_identity *larger = realloc(jlog_process.files, room * sizeof *larger);

        if (larger == NULL)
            return ENOMEM;
        memset(larger + jlog_process.room, 0, (room - jlog_process.room) * sizeof *larger);
        jlog_process.files = larger;
        jlog_process.room = room;
    }
    file = &jlog_process.files[fd];
    file->ticket = ++jlog_process.tickets;
    return jlog_look_at(fd, file);
}

/* Takes a descriptor off the list. Under the mutex. */
static void jlog_unlist(int fd)
{
    if (fd >= 0 && (size_t)fd < jlog_process.room)
        jlog_process.files[fd].ticket = 0;
}

/* Opens a file as openat() does, or with `name` NULL duplicates the descriptor `from`, and puts the new descriptor on the list.
 * A fork waits for the mutex, so it sees both steps or none: no child ever keeps the descriptor, and its locks are free once
 * this process dies. Called without the GIL, because a thread that forks keeps the GIL while it waits. Returns the descriptor,
 * which is above those of standard input, output and error, or -errno. */
static int jlog_open_listed(int from, const char *name, int flags, unsigned mode)
{
    int fd, error;

    pthread_mutex_lock(&jlog_process.mutex);
    fd = name != NULL ? openat(from, name, flags | O_CLOEXEC, (mode_t)mode)
                      : fcntl(from, F_DUPFD_CLOEXEC, JLOG_LOWEST_DESCRIPTOR);
    error = fd < 0 ? errno : 0;
    if (fd >= 0 && fd < JLOG_LOWEST_DESCRIPTOR) {
        const int low = fd;

        fd = fcntl(low, F_DUPFD_CLOEXEC, JLOG_LOWEST_DESCRIPTOR);
        error = fd < 0 ? errno : 0;
        close(low);
    }
    if (error == 0)
        error = jlog_list(fd);
    if (error != 0 && fd >= 0) {
        jlog_unlist(fd);
        close(fd);
    }
    pthread_mutex_unlock(&jlog_process.mutex);
    return error == 0 ? fd : -error;
}

/* Finds out what a descriptor on the list is. Returns 0 or an errno. */
static int jlog_identify(int fd, struct jlog_identity *found)
{
    int error = EBADF;

    pthread_mutex_lock(&jlog_process.mutex);
    if (fd >= 0 && (size_t)fd < jlog_process.room) {
        error = jlog_look_at(fd, found);
        found->ticket = jlog_process.files[fd].ticket;
    }
    pthread_mutex_unlock(&jlog_process.mutex);
    return error;
}

static int jlog_is_file(int fd, const struct jlog_identity *file)
{
    int is_file;

    pthread_mutex_lock(&jlog_process.mutex);
    is_file = jlog_is_listed(fd, file);
    pthread_mutex_unlock(&jlog_process.mutex);
    return is_file;
}

/* Closes the descriptor, if it still is the one that was opened with this identity; a fork sees it open and listed, or neither. */
static void jlog_close_file(int fd, const struct jlog_identity *file)
{
    pthread_mutex_lock(&jlog_process.mutex);
    if (jlog_is_listed(fd, file)) {
        jlog_unlist(fd);
        close(fd);
    }
    pthread_mutex_unlock(&jlog_process.mutex);
}

/* Takes the descriptor off the list, for an owner that closes it itself; with `closes` closes it too. Only for the call that
 * has opened it. */
static void jlog_drop(int fd, int closes)
{
    pthread_mutex_lock(&jlog_process.mutex);
    jlog_unlist(fd);
    if (closes)
        close(fd);
    pthread_mutex_unlock(&jlog_process.mutex);
}
