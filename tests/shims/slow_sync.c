/* A disk whose flushes are slow, for processes it is preloaded into (LD_PRELOAD).
 *
 * While the file named by SLOW_SYNC_FILE holds a number, every fdatasync, fsync and
 * sync_file_range takes that many milliseconds more. Every other call is left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void delay(void)
{
    const char *path = getenv("SLOW_SYNC_FILE");
    char text[16] = {0};
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    long ms = length > 0 ? atol(text) : 0;
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

int fdatasync(int file)
{
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    delay();
    return next(file);
}

int fsync(int file)
{
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    delay();
    return next(file);
}

int sync_file_range(int file, off64_t offset, off64_t length, unsigned int flags)
{
    int (*next)(int, off64_t, off64_t, unsigned int) =
        (int (*)(int, off64_t, off64_t, unsigned int))dlsym(RTLD_NEXT, "sync_file_range");
    delay();
    return next(file, offset, length, flags);
}
