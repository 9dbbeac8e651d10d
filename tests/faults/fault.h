/* Which system call fails next, and how. */

enum kind { OPEN, READ, WRITE, COPY, TRUNCATE, ALLOCATE, RENAME, LINK, UNLINK, MKDIR, SYNC, MAP, LOCK, KINDS };

static long visits[KINDS];                               /* since shim_arm() */
static int armed_kind = -1, armed_error, armed_for_ever; /* an error of 0: less is transferred than was asked for */
static long armed_at;
static long struck;                                      /* so many calls have failed */

/* The `at`-th call of this kind (the first is 1) fails with `error`; with `for_ever`, every one from there on. */
void shim_arm(int kind, long at, int error, int for_ever)
{
    memset(visits, 0, sizeof visits);
    armed_at = at, armed_error = error, armed_for_ever = for_ever, struck = 0;
    __atomic_store_n(&armed_kind, kind, __ATOMIC_RELEASE);
}

/* No call fails any more. Returns how many did, and `counts` how many there were of each kind. */
long shim_disarm(long counts[KINDS])
{
    __atomic_store_n(&armed_kind, -1, __ATOMIC_RELEASE);
    memcpy(counts, visits, sizeof visits);
    return struck;
}

/* Whether this call fails; errno is set then. `size`: what it is to transfer, which a short one halves. */
static int strike(enum kind kind, size_t *size)
{
    const long visit = __atomic_add_fetch(&visits[kind], 1, __ATOMIC_RELAXED);

    if (__atomic_load_n(&armed_kind, __ATOMIC_ACQUIRE) != (int)kind)
        return 0;
    if (armed_for_ever ? visit < armed_at : visit != armed_at)
        return 0;
    if (armed_error == 0) {
        if (size != NULL && *size > 1) {
            *size /= 2;
            struck++;
        }
        return 0;
    }
    struck++;
    errno = armed_error;
    return 1;
}
