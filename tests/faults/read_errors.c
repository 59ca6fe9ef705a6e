/* A library to be loaded first (LD_PRELOAD), with which looking at files and reading them can fail.

   What Python reads itself could be intercepted in Python, but not what TensorFlow, SQLite, HDF5
   and Arrow read. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN, STAT, READ, LIST };

static char directory[PATH_MAX], failed[PATH_MAX];
static _Atomic int kind = -1;
static _Atomic long seen, first, last;

/* From now on, the operations of a kind in a directory (a real path) whose numbers, from 0, are
   between two numbers fail with EIO. With kind = -1, no further ones do. */
void fail_reads(const char *path, int which, long from, long to) {
  kind = -1;
  if (which < 0) return;
  strncpy(directory, path, PATH_MAX - 1);
  failed[0] = 0;
  seen = 0;
  first = from;
  last = to;
  kind = which;
}

/* How many operations of the kind there were. */
long seen_reads(void) { return seen; }

/* The path of the first operation that failed. */
const char *failed_read(void) { return failed; }

static int fails(int which, const char *path) {
  size_t length = strlen(directory);
  if (which != kind || strncmp(path, directory, length) ||
      (path[length] != '/' && path[length] != 0))
    return 0;
  long number = seen++;
  if (number < first || number > last) return 0;
  if (!failed[0]) strncpy(failed, path, PATH_MAX - 1);
  errno = EIO;
  return 1;
}

static int fails_of(int which, int descriptor) {
  char link[64], path[PATH_MAX];
  if (which != kind) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return fails(which, path);
}

static int fails_at(int which, int folder, const char *path) {
  char link[64], whole[2 * PATH_MAX];
  if (which != kind || !path) return 0;
  if (path[0] == '/') return fails(which, path);
  if (!path[0]) return fails_of(which, folder);
  if (folder == AT_FDCWD) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
  ssize_t length = readlink(link, whole, PATH_MAX - 1);
  if (length < 0) return 0;
  snprintf(whole + length, sizeof whole - length, "/%s", path);
  return fails(which, whole);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Files that are created or written are those of tests/faults/full_disks.py. */
#define OPENS(name, parameters, folder, ...)                                      \
  int name parameters {                                                           \
    mode_t mode = 0;                                                              \
    if (flags & (O_CREAT | O_TMPFILE)) {                                          \
      va_list rest;                                                               \
      va_start(rest, flags);                                                      \
      mode = va_arg(rest, mode_t);                                                \
      va_end(rest);                                                               \
    }                                                                             \
    if ((flags & O_ACCMODE) == O_RDONLY && !(flags & O_DIRECTORY) &&              \
        fails_at(OPEN, folder, path))                                             \
      return -1;                                                                  \
    return NEXT(name)(__VA_ARGS__, flags, mode);                                  \
  }
OPENS(open, (const char *path, int flags, ...), AT_FDCWD, path)
OPENS(open64, (const char *path, int flags, ...), AT_FDCWD, path)
OPENS(openat, (int folder, const char *path, int flags, ...), folder, folder, path)
OPENS(openat64, (int folder, const char *path, int flags, ...), folder, folder, path)

#define STATS(name, type)                                                         \
  int name(const char *path, struct type *status) {                               \
    return fails_at(STAT, AT_FDCWD, path) ? -1 : NEXT(name)(path, status);        \
  }
STATS(stat, stat)
STATS(stat64, stat64)
STATS(lstat, stat)
STATS(lstat64, stat64)

#define STATS_AT(name, type)                                                      \
  int name(int folder, const char *path, struct type *status, int flags) {        \
    return fails_at(STAT, folder, path) ? -1                                      \
                                        : NEXT(name)(folder, path, status, flags);\
  }
STATS_AT(fstatat, stat)
STATS_AT(fstatat64, stat64)

#define READS(name, parameters, ...)                                              \
  ssize_t name parameters {                                                       \
    return fails_of(READ, file) ? -1 : NEXT(name)(file, __VA_ARGS__);             \
  }
READS(read, (int file, void *buffer, size_t size), buffer, size)
READS(pread, (int file, void *buffer, size_t size, off_t offset), buffer, size, offset)
READS(pread64, (int file, void *buffer, size_t size, off64_t offset), buffer, size, offset)
READS(readv, (int file, const struct iovec *parts, int number), parts, number)

DIR *opendir(const char *path) {
  return fails_at(LIST, AT_FDCWD, path) ? NULL : NEXT(opendir)(path);
}
