/* The log: for each event a line `KIND PROCESS INODE X Y BYTES`, and so many bytes. One writer at a time, over all
 * processes, from before the system call until its event is in the log.
 *
 *   C  a file was made            its path            T  cut or grown      X: its size now
 *   W  written                    X: at, the bytes    A  allocated         X: at, Y: size
 *   M  a directory was made       its path            U  a name removed    its path
 *   R  renamed                    old, 0, new         L  linked            old, 0, new
 *   S  a sync begins              X: its number, Y: whether of a directory, the path
 *   E  the same sync has ended    X: its number
 *   P  what a mapping holds       all of it, where that is not what it held at the last event
 *   N  a note of the program */

enum { MAPPINGS = 8 };

static int log_fd = -1;
static int sync_number;
static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct mapping { char *address, *before; size_t size; unsigned long inode; } mappings[MAPPINGS];

static void open_log(const char *path)
{
    int fd;

    pthread_mutex_lock(&log_mutex);
    if (log_fd >= 0)
        close(log_fd);
    log_fd = -1;
    if (path != NULL && path[0] != '\0') {
        fd = REAL(open)(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        log_fd = REAL(fcntl)(fd, F_DUPFD_CLOEXEC, (void *)500L); /* the program's descriptors have their own numbers */
        close(fd);
    }
    for (int i = 0; i < MAPPINGS; i++)
        if (mappings[i].before != NULL)
            mappings[i].before[0]++;                     /* what was the same stands in another log */
    pthread_mutex_unlock(&log_mutex);
}

static void put(char kind, unsigned long inode, long x, long y, const void *data, size_t size)
{
    char head[160];
    const int length = snprintf(head, sizeof head, "%c %d %lu %ld %ld %zu\n", kind, (int)getpid(), inode, x, y, size);
    const struct iovec parts[2] = {{head, (size_t)length}, {(void *)data, size}};

    if (log_fd >= 0 && REAL(writev)(log_fd, parts, 2) != length + (ssize_t)size)
        abort();
}

static unsigned long inode_of(int fd)
{
    struct stat found;
    return fstat(fd, &found) == 0 ? (unsigned long)found.st_ino : 0;
}

static void put_mappings(void)
{
    for (int i = 0; i < MAPPINGS; i++) {
        struct mapping *mapping = &mappings[i];

        if (mapping->address != NULL && memcmp(mapping->before, mapping->address, mapping->size) != 0) {
            memcpy(mapping->before, mapping->address, mapping->size);
            put('P', mapping->inode, 0, 0, mapping->before, mapping->size);
        }
    }
}

static void begin(void)
{
    const int before = errno;

    if (log_fd < 0)
        return;
    pthread_mutex_lock(&log_mutex);
    flock(log_fd, LOCK_EX);
    put_mappings();
    errno = before;
}

static void finish(void)
{
    const int before = errno;

    if (log_fd < 0)
        return;
    flock(log_fd, LOCK_UN);
    pthread_mutex_unlock(&log_mutex);
    errno = before;
}

static void note(const char *text, size_t size)
{
    begin();
    put('N', 0, 0, 0, text, size);
    finish();
}

static void record_write(int fd, const void *data, size_t size, off_t at)
{
    const int before = errno;

    put('W', inode_of(fd), at, 0, data, size);
    errno = before;
}

static void record_copied(int fd, size_t size, off_t at)
{
    char *data = malloc(size);

    if (log_fd >= 0 && REAL(pread)(fd, data, size, at) == (ssize_t)size)
        record_write(fd, data, size, at);
    free(data);
}

static void record_size(char kind, int fd, off_t x, off_t y)
{
    const int before = errno;

    put(kind, inode_of(fd), x, y, NULL, 0);
    errno = before;
}

static void record_name(char kind, int fd, const char *path)
{
    const int before = errno;

    put(kind, inode_of(fd), 0, 0, path, strlen(path));
    errno = before;
}

static void record_names(char kind, const char *old, const char *new)
{
    char both[2 * PATH_MAX];
    size_t size = strlen(old);

    memcpy(both, old, size);
    if (new != NULL) {
        both[size++] = '\0';
        memcpy(both + size, new, strlen(new));
        size += strlen(new);
    }
    put(kind, 0, 0, 0, both, size);
}

static int record_sync(int fd)
{
    char link[64], path[PATH_MAX];
    struct stat found;
    ssize_t length;
    int number;

    if (log_fd < 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path);
    fstat(fd, &found);
    begin();
    number = ++sync_number;
    put('S', (unsigned long)found.st_ino, number, S_ISDIR(found.st_mode), path, length < 0 ? 0 : (size_t)length);
    finish();
    return number;
}

static void record_synced(int fd, int number)
{
    begin();
    put('E', inode_of(fd), number, 0, NULL, 0);
    finish();
}

/* A mapping may be longer than its file: what lies beyond the end is not there to be copied. */
static void record_mapping(int fd, void *address, size_t size)
{
    struct stat found;

    if (log_fd < 0 || fstat(fd, &found) != 0)
        return;
    if ((size_t)found.st_size < size)
        size = (size_t)found.st_size;
    pthread_mutex_lock(&log_mutex);
    for (int i = 0; i < MAPPINGS; i++)
        if (mappings[i].address == NULL) {
            mappings[i] = (struct mapping){address, malloc(size), size, inode_of(fd)};
            memcpy(mappings[i].before, address, size);
            mappings[i].before[0]++;                     /* the first event puts it */
            break;
        }
    pthread_mutex_unlock(&log_mutex);
}

static void forget_mapping(void *address)
{
    pthread_mutex_lock(&log_mutex);
    for (int i = 0; i < MAPPINGS; i++)
        if (mappings[i].address == address) {
            free(mappings[i].before);
            mappings[i].address = mappings[i].before = NULL;
        }
    pthread_mutex_unlock(&log_mutex);
}
