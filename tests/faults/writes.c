/* Preloaded into a process (LD_PRELOAD): appends what it does to a SQLite file and its WAL to the file named by
 * VTQUEUE_DISK_LOG, in one order for all processes.
 *
 * A write is noted when it is done, before the process goes on: whoever builds on it comes later in the log. A sync is
 * noted twice, when it begins and when it has ended: it makes durable what was written before it began.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

struct __attribute__((packed)) record {
    char kind; /* Write, Truncate, Begin and End of a sync */
    char file; /* Database, Wal */
    uint32_t length;
    int64_t where; /* an offset, a size, or who syncs */
};

static int ends_with(const char *path, const char *end)
{
    size_t length = strlen(path), last = strlen(end);
    return length >= last && strcmp(path + length - last, end) == 0;
}

static char file_of(int fd)
{
    char name[64], path[PATH_MAX];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return ends_with(path, ".sqlite3") ? 'D' : ends_with(path, ".sqlite3-wal") ? 'W' : 0;
}

static void note(char kind, char file, int64_t where, const void *data, size_t length)
{
    static int log = -1;
    if (log < 0)
        log = open(getenv("VTQUEUE_DISK_LOG"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    struct record record = {kind, file, length, where};
    struct iovec parts[] = {{&record, sizeof record}, {(void *)data, length}};
    if (writev(log, parts, 2) != (ssize_t)(sizeof record + length))
        abort();
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset)
{
    char file = file_of(fd);
    ssize_t written = syscall(SYS_pwrite64, fd, data, length, offset);
    if (file && written > 0)
        note('W', file, offset, data, written);
    return written;
}

int ftruncate64(int fd, off64_t size)
{
    char file = file_of(fd);
    int failed = syscall(SYS_ftruncate, fd, size);
    if (file && !failed)
        note('T', file, size, NULL, 0);
    return failed;
}

static int synced(long number, int fd)
{
    char file = file_of(fd);
    if (file)
        note('B', file, gettid(), NULL, 0);
    int failed = syscall(number, fd);
    if (file && !failed)
        note('E', file, gettid(), NULL, 0);
    return failed;
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) { return pwrite64(fd, data, length, offset); }
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }
int fsync(int fd) { return synced(SYS_fsync, fd); }
int fdatasync(int fd) { return synced(SYS_fdatasync, fd); }
