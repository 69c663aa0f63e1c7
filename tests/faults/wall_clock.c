/* Preloaded into a process (LD_PRELOAD): its wall clock is moved by the microseconds in the file named
 * by VTQUEUE_WALL_CLOCK, from one reading to the next; or it stands still at the second number in that file, unless
 * that is 0. All other clocks stay as they are, and so does all waiting.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *file; /* the offset, and where the clock stands */

__attribute__((constructor)) static void begin(void)
{
    int fd = open(getenv("VTQUEUE_WALL_CLOCK"), O_RDONLY | O_CLOEXEC);
    void *mapped = mmap(NULL, 2 * sizeof *file, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED)
        abort();
    close(fd);
    file = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && file && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t stands_at = file[1];
        int64_t moved = stands_at ? stands_at : now->tv_sec * INT64_C(1000000) + file[0];
        now->tv_sec = moved / 1000000;
        now->tv_nsec = (stands_at ? 0 : now->tv_nsec) + moved % 1000000 * 1000;
        if (now->tv_nsec >= 1000000000) {
            now->tv_nsec -= 1000000000;
            now->tv_sec++;
        }
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
