/* The calls that change the names in a directory. */

static int rename_any(int from, const char *old, int to, const char *new, unsigned flags)
{
    char source[PATH_MAX], target[PATH_MAX];
    const int seen = watched_at(from, old, source) | watched_at(to, new, target);
    int result;

    if (seen && strike(RENAME, NULL))
        return -1;
    if (seen)
        begin();
    result = (int)REAL(syscall)(SYS_renameat2, from, old, to, new, flags);
    if (seen && result == 0)
        record_names('R', source, target);
    if (seen)
        finish();
    return result;
}

int rename(const char *old, const char *new) { return rename_any(AT_FDCWD, old, AT_FDCWD, new, 0); }
int renameat(int from, const char *old, int to, const char *new) { return rename_any(from, old, to, new, 0); }
int renameat2(int from, const char *old, int to, const char *new, unsigned flags)
{
    return rename_any(from, old, to, new, flags);
}

long syscall(long number, ...)
{
    long a, b, c, d, e, f;
    va_list more;

    va_start(more, number);
    a = va_arg(more, long), b = va_arg(more, long), c = va_arg(more, long);
    d = va_arg(more, long), e = va_arg(more, long), f = va_arg(more, long);
    va_end(more);
    if (number == SYS_renameat2)
        return rename_any((int)a, (const char *)b, (int)c, (const char *)d, (unsigned)e);
    return REAL(syscall)(number, a, b, c, d, e, f);
}

int linkat(int from, const char *old, int to, const char *new, int flags)
{
    char source[PATH_MAX], target[PATH_MAX];
    int result;

    watched_at(from, old, source);
    if (!watched_at(to, new, target))
        return REAL(linkat)(from, old, to, new, flags);
    if (strike(LINK, NULL))
        return -1;
    begin();
    result = REAL(linkat)(from, old, to, new, flags);
    if (result == 0)
        record_names('L', source, target);
    finish();
    return result;
}

int link(const char *old, const char *new) { return linkat(AT_FDCWD, old, AT_FDCWD, new, 0); }

int unlinkat(int directory, const char *name, int flags)
{
    char path[PATH_MAX];
    int result;

    if (!watched_at(directory, name, path))
        return REAL(unlinkat)(directory, name, flags);
    if (strike(UNLINK, NULL))
        return -1;
    begin();
    result = REAL(unlinkat)(directory, name, flags);
    if (result == 0)
        record_names('U', path, NULL);
    finish();
    return result;
}

int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

int mkdirat(int directory, const char *name, mode_t mode)
{
    char path[PATH_MAX];
    int result;

    if (!watched_at(directory, name, path))
        return REAL(mkdirat)(directory, name, mode);
    if (strike(MKDIR, NULL))
        return -1;
    begin();
    result = REAL(mkdirat)(directory, name, mode);
    if (result == 0)
        record_names('M', path, NULL);
    finish();
    return result;
}

int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }
