/* Which allocation fails next. Python asks malloc() for every object if PYTHONMALLOC=malloc is in its environment. */

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);

static __thread long allocations __attribute__((tls_model("initial-exec"))); /* of this thread since shim_arm_memory() */
static __thread long failing_at __attribute__((tls_model("initial-exec"))); /* 0: none */
static __thread long failing_until __attribute__((tls_model("initial-exec")));

/* The allocations of this thread from the `at`-th on fail, `count` of them. */
void shim_arm_memory(long at, long count)
{
    allocations = 0, failing_until = at + count;
    failing_at = at;
}

static __thread long spared __attribute__((tls_model("initial-exec"))); /* further allocations that do not fail with others' */
static __thread int is_known __attribute__((tls_model("initial-exec")));
static long others_left, others_skip;                    /* allocations that fail, after those that do not */

/* Allocations of all threads but those that are spared fail: `count` of them, from the `at`-th on. */
void shim_arm_memory_of_others(long at, long count)
{
    __atomic_store_n(&others_skip, at, __ATOMIC_RELAXED);
    __atomic_store_n(&others_left, count, __ATOMIC_RELEASE);
}

void shim_spare_thread(void) { is_known = 1, spared = LONG_MAX; }

static int is_struck_with_others(void)
{
    if (!is_known)
        is_known = 1, spared = 500; /* it may have just begun, and Python's Thread.start() would wait for it for ever */
    if (spared > 0) {
        spared--;
        return 0;
    }
    return __atomic_sub_fetch(&others_skip, 1, __ATOMIC_RELAXED) < 0
        && __atomic_sub_fetch(&others_left, 1, __ATOMIC_RELAXED) >= 0;
}

/* Returns how many allocations there were, whether or not they failed. */
long shim_disarm_memory(void)
{
    const long found = allocations;

    failing_at = 0;
    return found;
}

static int no_memory(void)
{
    const int struck = failing_at != 0 && ++allocations >= failing_at && allocations < failing_until;

    if (!struck && (__atomic_load_n(&others_left, __ATOMIC_ACQUIRE) <= 0 || !is_struck_with_others()))
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size) { return no_memory() ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return no_memory() ? NULL : __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { return no_memory() ? NULL : __libc_realloc(old, size); }
