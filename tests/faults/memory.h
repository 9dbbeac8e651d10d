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

/* Returns how many allocations there were, whether or not they failed. */
long shim_disarm_memory(void)
{
    const long found = allocations;

    failing_at = 0;
    return found;
}

static int no_memory(void)
{
    if (failing_at == 0 || ++allocations < failing_at || allocations >= failing_until)
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size) { return no_memory() ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return no_memory() ? NULL : __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { return no_memory() ? NULL : __libc_realloc(old, size); }
