/* Named points at which a test kills or stops the process, or makes a system call fail. `JLOG_FAILPOINTS` in the environment
 * holds `name=action@count`, separated by commas. The action is `kill`, `stop`, `hold` (the thread waits until the environment
 * changes; for points without the GIL) or a number, usually an errno. The count says at which visit it happens (1: the first);
 * 0 means at each. Compiled in by -DJLOG_FAILPOINTS; wheels have none. */
#pragma once

#ifdef JLOG_FAILPOINTS
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Visits a point, and returns its number or 0. The environment is read at each visit, so that a test may set it late. */
static __attribute__((noinline)) int jlog_failpoint_visit(const char *name, long *visits)
{
    const char *at = getenv("JLOG_FAILPOINTS");
    const char *const environment = at;
    const size_t length = strlen(name);

    for (; at != NULL && *at != '\0'; at = strchr(at, ',') != NULL ? strchr(at, ',') + 1 : NULL) {
        const char *action = at + length + 1;
        const char *count = strchr(at, '@');
        long wanted;

        if (strncmp(at, name, length) != 0 || at[length] != '=')
            continue;
        wanted = count != NULL ? strtol(count + 1, NULL, 10) : 1;
        if (__atomic_add_fetch(visits, 1, __ATOMIC_RELAXED) != wanted && wanted != 0)
            return 0;
        if (strncmp(action, "kill", 4) == 0)
            kill(getpid(), SIGKILL);
        else if (strncmp(action, "stop", 4) == 0)
            kill(getpid(), SIGSTOP);
        else if (strncmp(action, "hold", 4) == 0)
            while (getenv("JLOG_FAILPOINTS") == environment)
                usleep(1000);
        else
            return (int)strtol(action, NULL, 10);
        return 0;
    }
    return 0;
}

#define JLOG_FAILPOINT(name) (__extension__({ static long visits_; jlog_failpoint_visit((name), &visits_); }))
#else
#define JLOG_FAILPOINT(name) 0
#endif
