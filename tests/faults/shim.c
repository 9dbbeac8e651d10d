/* Stands between a process and the kernel, by LD_PRELOAD, for the files below one directory.
 *
 * Fault: the n-th call of a kind fails with an errno, or transfers less than it was asked to. shim_arm() says which.
 * Memory: the n-th allocation of a thread fails, and some after it. shim_arm_memory() says which.
 * Record: each change of a file or directory is written to a log, in order over all processes that share it, with what
 * the mapped files held just before. shim_log() begins it; so does JLOG_SHIM_LOG in the environment. record.h has the
 * log's form. What is not below the directory goes to the kernel unseen. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) (__extension__({ \
    static __typeof__(&name) real_; \
    if (real_ == NULL) \
        real_ = (__typeof__(&name))dlsym(RTLD_NEXT, #name); \
    real_; }))

static char below[PATH_MAX];                             /* the directory; empty: nothing is watched */
static int dry_sync;                                     /* a sync returns at once, and nothing has been done */

#include "fault.h"
#include "record.h"
#include "memory.h"

static const char boot_id[] = "/proc/sys/kernel/random/boot_id";

void shim_below(const char *path) { snprintf(below, sizeof below, "%s", path); }
void shim_log(const char *path) { open_log(path); }
void shim_note(const char *text, size_t size) { note(text, size); }
void shim_dry_sync(int dry) { dry_sync = dry; }

__attribute__((constructor)) static void begin_by_environment(void)
{
    if (getenv("JLOG_SHIM_BELOW") != NULL)
        shim_below(getenv("JLOG_SHIM_BELOW"));
    dry_sync = getenv("JLOG_SHIM_DRY_SYNC") != NULL;
    if (getenv("JLOG_SHIM_LOG") != NULL)
        shim_log(getenv("JLOG_SHIM_LOG"));
}

/* --- Which files ------------------------------------------------------------------------------------------------ */

static int is_below(const char *path)
{
    const size_t length = strlen(below);
    return length != 0 && strncmp(path, below, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

static int path_of(int fd, char *path)
{
    char link[64];
    ssize_t length;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = '\0';
    return length > 0;
}

static int watched(int fd)
{
    char path[PATH_MAX];
    const int before = errno, found = below[0] != '\0' && path_of(fd, path) && is_below(path);

    errno = before;
    return found;
}

/* The whole path of a name in a directory, and whether it is watched. */
static int watched_at(int directory, const char *name, char *path)
{
    char folder[PATH_MAX];
    const int before = errno;

    if (name[0] == '/')
        snprintf(path, PATH_MAX, "%s", name);
    else if (directory == AT_FDCWD ? getcwd(folder, sizeof folder) != NULL : path_of(directory, folder))
        snprintf(path, PATH_MAX, "%.2000s/%.2000s", folder, name);
    else
        path[0] = '\0';
    errno = before;
    return is_below(path);
}

/* --- Opening ---------------------------------------------------------------------------------------------------- */

static int open_any(int directory, const char *name, int flags, mode_t mode)
{
    char path[PATH_MAX];
    struct stat found;
    int fd, existed;

    if (strcmp(name, boot_id) == 0 && getenv("JLOG_SHIM_NO_BOOT_ID") != NULL) {
        errno = ENOENT;
        return -1;
    }
    if (!watched_at(directory, name, path))
        return REAL(openat)(directory, name, flags, mode);
    if (strike(OPEN, NULL))
        return -1;
    begin();
    existed = lstat(path, &found) == 0;
    fd = REAL(openat)(directory, name, flags, mode);
    if (fd >= 0 && !existed)
        record_name('C', fd, path);
    else if (fd >= 0 && flags & O_TRUNC)
        record_size('T', fd, 0, 0);
    finish();
    return fd;
}

/* The argument behind the flags, in a function that ends with `int flags, ...`. */
#define MODE_BEHIND(flags) (__extension__({ \
    va_list more_; \
    mode_t mode_ = 0; \
    va_start(more_, flags); \
    if (flags & (O_CREAT | O_TMPFILE)) \
        mode_ = va_arg(more_, mode_t); \
    va_end(more_); \
    mode_; }))

int open(const char *name, int flags, ...)
{
    return open_any(AT_FDCWD, name, flags, MODE_BEHIND(flags));
}

int openat(int directory, const char *name, int flags, ...)
{
    return open_any(directory, name, flags, MODE_BEHIND(flags));
}

DIR *opendir(const char *name)
{
    char path[PATH_MAX];

    /* Signals interrupt neither this nor a dup, and Python makes neither again. */
    if (watched_at(AT_FDCWD, name, path) && strike(OPEN, NULL) && errno != EINTR)
        return NULL;
    return REAL(opendir)(name);
}

int fcntl(int fd, int command, ...)
{
    va_list more;
    void *argument;

    va_start(more, command);
    argument = va_arg(more, void *);
    va_end(more);
    if ((command == F_DUPFD_CLOEXEC || command == F_DUPFD) && watched(fd) && strike(OPEN, NULL) && errno != EINTR)
        return -1;
    if ((command == F_OFD_SETLK || command == F_OFD_SETLKW || command == F_OFD_GETLK) && watched(fd) && strike(LOCK, NULL))
        return -1;
    return REAL(fcntl)(fd, command, argument);
}

#include "content.h"
#include "names.h"

/* --- Syncs and mappings ------------------------------------------------------------------------------------------ */

/* Two events, with nothing locked between them: others write meanwhile, and that is not what it has made durable. */
static int sync_any(int fd, int (*real)(int))
{
    int result, number;

    if (!watched(fd))
        return real(fd);
    if (strike(SYNC, NULL))
        return -1;
    number = record_sync(fd);
    result = dry_sync ? 0 : real(fd);
    if (result == 0)
        record_synced(fd, number);
    return result;
}

int fsync(int fd) { return sync_any(fd, REAL(fsync)); }
int fdatasync(int fd) { return sync_any(fd, REAL(fdatasync)); }
int sync_file_range(int fd, off64_t at, off64_t size, unsigned flags)
{
    return dry_sync ? 0 : REAL(sync_file_range)(fd, at, size, flags);
}

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t at)
{
    void *found;

    if (fd < 0 || flags & MAP_ANONYMOUS || !watched(fd))
        return REAL(mmap)(address, size, protection, flags, fd, at);
    if (strike(MAP, NULL))
        return MAP_FAILED;
    found = REAL(mmap)(address, size, protection, flags, fd, at);
    if (found != MAP_FAILED && protection & PROT_WRITE && flags & MAP_SHARED)
        record_mapping(fd, found, size);
    return found;
}

int munmap(void *address, size_t size)
{
    forget_mapping(address);
    return REAL(munmap)(address, size);
}

/* Every failpoint of the core asks for this variable: what the mapped files hold there is an event. */
char *getenv(const char *name)
{
    if (log_fd >= 0 && strcmp(name, "JLOG_FAILPOINTS") == 0) {
        begin();
        finish();
    }
    return REAL(getenv)(name);
}

/* Where offsets have 64 bits anyway, libc has each of these twice. */
#define TWICE(type, name, parameters) type name##64 parameters __attribute__((alias(#name)))
TWICE(int, open, (const char *, int, ...));
TWICE(int, openat, (int, const char *, int, ...));
TWICE(int, fcntl, (int, int, ...));
TWICE(ssize_t, pread, (int, void *, size_t, off64_t));
TWICE(ssize_t, pwrite, (int, const void *, size_t, off64_t));
TWICE(ssize_t, pwritev, (int, const struct iovec *, int, off64_t));
TWICE(ssize_t, sendfile, (int, int, off64_t *, size_t));
TWICE(int, ftruncate, (int, off64_t));
TWICE(int, fallocate, (int, int, off64_t, off64_t));
TWICE(int, posix_fallocate, (int, off64_t, off64_t));
TWICE(void *, mmap, (void *, size_t, int, int, int, off64_t));
