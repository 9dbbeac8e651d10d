/* System calls on files as the core needs them: whole transfers, an errno as the result, and a failpoint before each call.
 * Nothing here needs the interpreter. file.pyx opens and closes files, and has the list of those that are open. */
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>
#ifndef STATX_BTIME /* musl has statx since 1.2.5, and from then on the kernel's header would declare it a second time */
#include <linux/stat.h>
#endif

#include "system/failpoint.h"

#define JLOG_RENAME_NOREPLACE 1u
#define JLOG_INTERRUPTIONS_MAX 20

/* Returns the number of bytes read, fewer only at the end of the file; or -errno. */
static inline int64_t jlog_read_at(int fd, void *target, size_t bytes, uint64_t offset)
{
    size_t done = 0;
    const int failure = JLOG_FAILPOINT("file.read");

    if (failure != 0)
        return -failure;
    if (offset > (uint64_t)INT64_MAX - bytes) /* no file reaches there, even if its data state such an offset */
        return 0;
    while (done < bytes) {
        const ssize_t got = pread(fd, (char *)target + done, bytes - done, (off_t)(offset + done));

        if (got < 0 && errno != EINTR)
            return -errno;
        if (got == 0)
            break;
        if (got > 0)
            done += (size_t)got;
    }
    return (int64_t)done;
}

/* Returns 0 or an errno. After an error any part of the bytes may be in the file. */
static inline int jlog_write_at(int fd, const void *source, size_t bytes, uint64_t offset)
{
    const int failure = JLOG_FAILPOINT("file.write");
    size_t done = 0;

    if (failure != 0)
        return failure;
    while (done < bytes) {
        const ssize_t put = pwrite(fd, (const char *)source + done, bytes - done, (off_t)(offset + done));

        if (put < 0 && errno != EINTR)
            return errno;
        if (put == 0)
            return EIO; /* the file system writes no more, and does not say why */
        if (put > 0)
            done += (size_t)put;
    }
    return 0;
}

/* Writes a header and the bytes that follow it, in one system call if the kernel takes all of them. */
static inline int jlog_write_two_at(int fd, const void *first, size_t first_bytes, const void *second,
                                    size_t second_bytes, uint64_t offset)
{
    const struct iovec parts[2] = {{(void *)first, first_bytes}, {(void *)second, second_bytes}};
    const int failure = JLOG_FAILPOINT("file.write_block");
    ssize_t put;

    if (failure != 0)
        return failure;
    do
        put = pwritev(fd, parts, 2, (off_t)offset);
    while (put < 0 && errno == EINTR);
    if (put < 0)
        return errno;
    if ((size_t)put < first_bytes) {
        const int error = jlog_write_at(fd, (const char *)first + put, first_bytes - (size_t)put, offset + (size_t)put);

        if (error != 0)
            return error;
        put = (ssize_t)first_bytes;
    }
    return jlog_write_at(fd, (const char *)second + ((size_t)put - first_bytes), first_bytes + second_bytes - (size_t)put,
                         offset + (size_t)put);
}

static inline int jlog_sync_data(int fd)
{
    const int failure = JLOG_FAILPOINT("file.sync");

    if (failure != 0)
        return failure;
    return fdatasync(fd) == 0 ? 0 : errno;
}

static inline int jlog_sync_directory(int fd)
{
    const int failure = JLOG_FAILPOINT("file.sync_directory");

    if (failure != 0)
        return failure;
    return fsync(fd) == 0 ? 0 : errno;
}

/* Gives a file the directory's owner, its group and its permissions to read and write, as far as this user may. */
static inline void jlog_share(int fd, int directory)
{
    struct stat wanted, found;
    mode_t mode;

    if (fstat(directory, &wanted) != 0 || fstat(fd, &found) != 0)
        return;
    mode = wanted.st_mode & 0666;
    if (found.st_uid != wanted.st_uid && geteuid() == 0) {
        if (fchown(fd, wanted.st_uid, wanted.st_gid) != 0)
            return;
    } else if (found.st_gid != wanted.st_gid && fchown(fd, (uid_t)-1, wanted.st_gid) != 0)
        return; /* another user's file: it was shared when it was created */
    if ((found.st_mode & 07777) != mode)
        (void)fchmod(fd, mode);
}

static inline int jlog_unlink_at(int directory, const char *name)
{
    const int failure = JLOG_FAILPOINT("file.unlink");

    if (failure != 0)
        return failure;
    return unlinkat(directory, name, 0) == 0 ? 0 : errno;
}

/* Renames a file; fails with EEXIST instead of replacing another one. On a file system that cannot do this in one step, the
 * file gets the new name and then loses the old one. If that fails it has both: its next user, or the next process that opens
 * the journal alone, removes the old name. */
static inline int jlog_rename_new(int directory, const char *from, const char *to)
{
    const int failure = JLOG_FAILPOINT("file.rename");

    if (failure != 0)
        return failure;
    errno = JLOG_FAILPOINT("file.renameat2");
    if (errno == 0 && syscall(SYS_renameat2, directory, from, directory, to, JLOG_RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    if (linkat(directory, from, directory, to, 0) != 0)
        return errno;
    (void)jlog_unlink_at(directory, from);
    return 0;
}

/* Renames a file, and replaces the one that had the name. The replaced file lives on for processes that have it open. */
static inline int jlog_rename_over(int directory, const char *from, const char *to)
{
    const int failure = JLOG_FAILPOINT("file.rename");

    if (failure != 0)
        return failure;
    return renameat(directory, from, directory, to) == 0 ? 0 : errno;
}

static inline int jlog_inode_at(int directory, const char *name, uint64_t *inode)
{
    const int failure = JLOG_FAILPOINT("file.stat");
    struct stat found;

    if (failure != 0)
        return failure;
    if (fstatat(directory, name, &found, AT_SYMLINK_NOFOLLOW) != 0)
        return errno;
    *inode = (uint64_t)found.st_ino;
    return 0;
}

static inline uint64_t jlog_inode(int fd)
{
    struct stat found;
    return fstat(fd, &found) == 0 ? (uint64_t)found.st_ino : 0;
}

/* Returns the file's size, or -errno. */
static inline int64_t jlog_file_bytes(int fd)
{
    struct stat found;
    return fstat(fd, &found) == 0 ? (int64_t)found.st_size : -errno;
}

/* Reserves space for [start, end). The caller usually holds a lock, and endless signals must not keep it here: after some
 * interruptions it gives up with EINTR. */
static inline int jlog_reserve(int fd, uint64_t start, uint64_t end)
{
    const int failure = JLOG_FAILPOINT("file.allocate");
    int result, turns = 0;

    if (failure != 0)
        return failure;
    if (start >= end)
        return 0;
    do {
        errno = JLOG_FAILPOINT("file.fallocate");
        result = errno != 0 ? -1 : fallocate(fd, 0, (off_t)start, (off_t)(end - start));
    } while (result < 0 && errno == EINTR && ++turns < JLOG_INTERRUPTIONS_MAX);
    return result < 0 ? errno : 0;
}

/* Extends the file to `end` with zeros. It never writes below the file's end, because a block may stand there. */
static inline int jlog_write_zeros(int fd, uint64_t end)
{
    static const char zeros[1 << 16];
    const int64_t found = jlog_file_bytes(fd);

    if (found < 0)
        return (int)-found;
    for (uint64_t at = (uint64_t)found; at < end; at += sizeof zeros) {
        const size_t bytes = end - at < sizeof zeros ? (size_t)(end - at) : sizeof zeros;
        const int error = jlog_write_at(fd, zeros, bytes, at);

        if (error != 0)
            return error;
    }
    return 0;
}

/* Reserves space up to `wanted`, or at least up to `needed`; `reached` says which. Bytes below the file's end stay. */
static inline int jlog_allocate(int fd, uint64_t start, uint64_t needed, uint64_t wanted, uint64_t *reached)
{
    int error = jlog_reserve(fd, start, wanted);

    *reached = wanted;
    if (error == EOPNOTSUPP || error == ENOSYS)
        error = jlog_write_zeros(fd, wanted);
    if (error != 0 && wanted > needed) {
        *reached = needed;
        error = jlog_reserve(fd, start, needed);
    }
    /* EINTR: signals have interrupted the reservation too often. */
    if (error == EOPNOTSUPP || error == ENOSYS || error == EINTR)
        error = jlog_write_zeros(fd, needed);
    return error;
}

static inline int jlog_has_no_name(int fd)
{
    struct stat found;
    return fstat(fd, &found) == 0 && found.st_nlink == 0;
}

/* Time when the file was created, in microseconds; 0 if the file system does not keep it. */
static inline int64_t jlog_birth_us(int fd)
{
    struct statx found;

    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_BTIME, &found) != 0 || !(found.stx_mask & STATX_BTIME))
        return 0;
    return found.stx_btime.tv_sec * 1000000 + found.stx_btime.tv_nsec / 1000;
}

/* Time when the content was changed last, in microseconds by the kernel's coarse clock; -1 if the file has no name any more. */
static inline int64_t jlog_changed_us(int fd)
{
    struct stat found;

    if (fstat(fd, &found) != 0 || found.st_nlink == 0)
        return -1;
    return found.st_mtim.tv_sec * 1000000 + found.st_mtim.tv_nsec / 1000;
}

static inline void jlog_start_writeback(int fd, uint64_t bytes)
{
    (void)sync_file_range(fd, 0, (off_t)bytes, SYNC_FILE_RANGE_WRITE);
}

/* --- fcntl locks of an open file description ------------------------------------------------------------------ */

static inline int jlog_ofd_lock(int fd, int operation, short type, uint64_t start, uint64_t bytes)
{
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)start, .l_len = (off_t)bytes};
    return fcntl(fd, operation, &range) == 0 ? 0 : errno;
}

/* Returns 0 with the range locked; EAGAIN while another description holds any of it. */
static inline int jlog_try_lock_range(int fd, short type, uint64_t start, uint64_t bytes)
{
    const int error = jlog_ofd_lock(fd, F_OFD_SETLK, type, start, bytes);
    return error == EACCES ? EAGAIN : error;
}

static inline int jlog_unlock_range(int fd, uint64_t start, uint64_t bytes)
{
    return jlog_ofd_lock(fd, F_OFD_SETLK, F_UNLCK, start, bytes);
}

/* Returns 1 while another description holds any of the range, 0 if none does, or -errno. */
static inline int jlog_range_is_held(int fd, uint64_t start, uint64_t bytes)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)start, .l_len = (off_t)bytes};

    if (fcntl(fd, F_OFD_GETLK, &range) != 0)
        return -errno;
    return range.l_type != F_UNLCK;
}
