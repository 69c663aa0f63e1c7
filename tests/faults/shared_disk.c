/* Preloaded into a process (LD_PRELOAD): a disk in the folder VTQUEUE_DISK that other hosts share, and that lies to this
 * one, VTQUEUE_HOST (a number), in the way that VTQUEUE_LIE names:
 *
 * locks  locks do not leave the host (nolock, local_lock): each host locks bytes of its own
 * pages  what was read once is read again as it was, for a while, whatever others write (a stale page cache)
 * names  a file that was not there is not there for a while (a stale cache of names)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGES = 4096, NAMES = 256, STALE = 20 /* seconds */ };

static int lies(const char *what)
{
    const char *lie = getenv("VTQUEUE_LIE");
    return lie && strcmp(lie, what) == 0;
}

static time_t now(void)
{
    struct timespec time;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &time);
    return time.tv_sec;
}

static int on_disk(const char *path)
{
    const char *disk = getenv("VTQUEUE_DISK");
    return disk && strncmp(path, disk, strlen(disk)) == 0;
}

int fcntl64(int fd, int command, ...)
{
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    if ((command == F_SETLK || command == F_SETLKW || command == F_GETLK) && lies("locks")) {
        struct flock own = *(struct flock *)argument;
        own.l_start += (off_t)atoi(getenv("VTQUEUE_HOST")) << 40;
        int failed = syscall(SYS_fcntl, fd, command, &own);
        if (command == F_GETLK)
            ((struct flock *)argument)->l_type = own.l_type;
        return failed;
    }
    return syscall(SYS_fcntl, fd, command, argument);
}

struct page {
    ino_t file;
    off_t offset;
    size_t size, length;
    time_t until;
    void *data;
};

static struct page pages[PAGES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct page *page_of(int fd, off_t offset, size_t size)
{
    char name[64], path[PATH_MAX];
    struct stat about;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length < 0 || fstat(fd, &about))
        return NULL;
    path[length] = 0;
    struct page *page = &pages[(about.st_ino * 31 + offset / 16 * 7 + size) % PAGES];
    if (!on_disk(path))
        return NULL;
    if (page->file != about.st_ino || page->offset != offset || page->size != size) {
        free(page->data);
        *page = (struct page){about.st_ino, offset, size, 0, 0, NULL};
    }
    return page;
}

ssize_t pread64(int fd, void *data, size_t size, off64_t offset)
{
    if (!lies("pages"))
        return syscall(SYS_pread64, fd, data, size, offset);
    pthread_mutex_lock(&lock);
    struct page *page = page_of(fd, offset, size);
    ssize_t length;
    if (page && page->data && now() < page->until) {
        length = page->length;
        memcpy(data, page->data, length);
    } else {
        length = syscall(SYS_pread64, fd, data, size, offset);
        if (page && length > 0) {
            page->data = realloc(page->data, length);
            memcpy(page->data, data, length);
            page->length = length;
            page->until = now() + STALE;
        }
    }
    pthread_mutex_unlock(&lock);
    return length;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    struct stat about;
    if (lies("pages") && !fstat(fd, &about)) { /* a host sees what it has written itself */
        pthread_mutex_lock(&lock);
        for (struct page *page = pages; page < pages + PAGES; page++)
            if (page->file == about.st_ino && page->offset < offset + (off_t)size
                && offset < page->offset + (off_t)page->size)
                page->until = 0;
        pthread_mutex_unlock(&lock);
    }
    return syscall(SYS_pwrite64, fd, data, size, offset);
}

static struct {
    char path[PATH_MAX];
    time_t until;
} missing[NAMES];

int access(const char *path, int mode)
{
    if (!lies("names") || !on_disk(path))
        return syscall(SYS_access, path, mode);
    pthread_mutex_lock(&lock);
    int known = -1, failed = -1;
    for (int i = 0; i < NAMES && known < 0; i++)
        if (now() < missing[i].until && strcmp(missing[i].path, path) == 0)
            known = i;
    if (known >= 0) {
        errno = ENOENT;
    } else if ((failed = syscall(SYS_access, path, mode)) && errno == ENOENT) {
        static int next;
        snprintf(missing[next % NAMES].path, PATH_MAX, "%s", path);
        missing[next++ % NAMES].until = now() + STALE;
        errno = ENOENT;
    }
    pthread_mutex_unlock(&lock);
    return failed;
}
