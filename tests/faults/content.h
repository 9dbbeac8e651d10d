/* The calls that read, write and size a file. */

ssize_t pread(int fd, void *data, size_t size, off_t at)
{
    if (watched(fd) && strike(READ, &size))
        return -1;
    return REAL(pread)(fd, data, size, at);
}

ssize_t read(int fd, void *data, size_t size)
{
    if (watched(fd) && strike(READ, &size))
        return -1;
    return REAL(read)(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
    ssize_t done;

    if (!watched(fd))
        return REAL(pwrite)(fd, data, size, at);
    if (strike(WRITE, &size))
        return -1;
    begin();
    done = REAL(pwrite)(fd, data, size, at);
    if (done > 0)
        record_write(fd, data, (size_t)done, at);
    finish();
    return done;
}

ssize_t write(int fd, const void *data, size_t size)
{
    ssize_t done;
    off_t at;

    if (!watched(fd))
        return REAL(write)(fd, data, size);
    if (strike(WRITE, &size))
        return -1;
    begin();
    at = lseek(fd, 0, REAL(fcntl)(fd, F_GETFL, NULL) & O_APPEND ? SEEK_END : SEEK_CUR);
    done = REAL(write)(fd, data, size);
    if (done > 0)
        record_write(fd, data, (size_t)done, at);
    finish();
    return done;
}

/* One piece of memory, which the caller frees. */
static void *gather(const struct iovec *parts, int count, size_t *size)
{
    char *all, *at;

    *size = 0;
    for (int i = 0; i < count; i++)
        *size += parts[i].iov_len;
    all = at = malloc(*size + 1);
    for (int i = 0; i < count && all != NULL; at += parts[i++].iov_len)
        memcpy(at, parts[i].iov_base, parts[i].iov_len);
    return all;
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at)
{
    size_t size;
    void *all;
    ssize_t done;

    if (!watched(fd))
        return REAL(pwritev)(fd, parts, count, at);
    all = gather(parts, count, &size);
    done = pwrite(fd, all, size, at);
    free(all);
    return done;
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    size_t size;
    void *all;
    ssize_t done;

    if (!watched(fd))
        return REAL(writev)(fd, parts, count);
    all = gather(parts, count, &size);
    done = write(fd, all, size);
    free(all);
    return done;
}

ssize_t copy_file_range(int source, off_t *from, int target, off_t *to, size_t size, unsigned flags)
{
    off_t at;
    ssize_t done;

    if (!watched(target))
        return REAL(copy_file_range)(source, from, target, to, size, flags);
    if (strike(COPY, &size))
        return -1;
    begin();
    at = to != NULL ? *to : lseek(target, 0, SEEK_CUR);
    done = REAL(copy_file_range)(source, from, target, to, size, flags);
    if (done > 0)
        record_copied(target, (size_t)done, at);
    finish();
    return done;
}

ssize_t sendfile(int target, int source, off_t *from, size_t size)
{
    off_t at;
    ssize_t done;

    if (!watched(target))
        return REAL(sendfile)(target, source, from, size);
    if (strike(COPY, &size))
        return -1;
    begin();
    at = lseek(target, 0, SEEK_CUR);
    done = REAL(sendfile)(target, source, from, size);
    if (done > 0)
        record_copied(target, (size_t)done, at);
    finish();
    return done;
}

int ftruncate(int fd, off_t size)
{
    int result;

    if (!watched(fd))
        return REAL(ftruncate)(fd, size);
    if (strike(TRUNCATE, NULL))
        return -1;
    begin();
    result = REAL(ftruncate)(fd, size);
    if (result == 0)
        record_size('T', fd, size, 0);
    finish();
    return result;
}

int fallocate(int fd, int mode, off_t at, off_t size)
{
    int result;

    if (!watched(fd))
        return REAL(fallocate)(fd, mode, at, size);
    if (strike(ALLOCATE, NULL))
        return -1;
    begin();
    result = REAL(fallocate)(fd, mode, at, size);
    if (result == 0)
        record_size('A', fd, at, size);
    finish();
    return result;
}

int posix_fallocate(int fd, off_t at, off_t size)
{
    return !watched(fd) ? REAL(posix_fallocate)(fd, at, size) : fallocate(fd, 0, at, size) == 0 ? 0 : errno;
}
