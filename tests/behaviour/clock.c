/* Moves the clock of a program that this library is preloaded into: by the seconds in the file that CLOCK_STEP names. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    char text[32] = {0};
    const int result = (int)syscall(SYS_clock_gettime, clock, now), file = open(getenv("CLOCK_STEP"), O_RDONLY);

    if (file >= 0) {
        if (clock == CLOCK_REALTIME && read(file, text, sizeof text - 1) > 0)
            now->tv_sec += atol(text);
        close(file);
    }
    return result;
}
