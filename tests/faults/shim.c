// SPDX-License-Identifier: Apache-2.0
// Preloaded into the program: makes the Nth call of a kind fail, or kills the process there. Run by
// run_faults.py.
//   KVATLAS_FAULT        write, read or none: the kind of call. Of writing are write, pwrite,
//                        ftruncate, fsync, rename, renameat2, linkat, mkdir and open for writing;
//                        of reading are read, pread, mmap and open for reading
//   KVATLAS_FAULT_AT     the number of the call, from 1 on; all later ones fail too, as on a disk
//                        that stays full
//   KVATLAS_FAULT_ERROR  the errno of the failure; 0: a SIGKILL instead
//   KVATLAS_FAULT_SLOW   milliseconds that each call with a path takes longer, as on a busy
//                        network's disk
//   KVATLAS_FAULT_UNDER  only files below this folder
//   KVATLAS_FAULT_RANK   only in this MPI rank
//   KVATLAS_FAULT_COUNT  a file that the number of calls is written to at the end
//   KVATLAS_FAULT_CLOCK  a seed: the clocks jump now and then
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

enum kind { none, writing, reading };

static enum kind wanted;
static long at, error, slow;
static char under[PATH_MAX];
static const char* count_file;
static atomic_long calls, clock_calls;
static unsigned long clock_seed;

static long number_of(const char* name) {
  const char* text = getenv(name);
  return text ? strtol(text, NULL, 10) : 0;
}

__attribute__((constructor)) static void begin(void) {
  const char* kind = getenv("KVATLAS_FAULT");
  const char* rank = getenv("KVATLAS_FAULT_RANK");
  const char* ours = getenv("OMPI_COMM_WORLD_RANK");
  const char* folder = getenv("KVATLAS_FAULT_UNDER");
  if (kind && strcmp(kind, "write") == 0) wanted = writing;
  if (kind && strcmp(kind, "read") == 0) wanted = reading;
  if (rank && (!ours || strcmp(rank, ours) != 0)) wanted = none;
  if (!folder || !realpath(folder, under)) wanted = none;
  at = number_of("KVATLAS_FAULT_AT");
  error = number_of("KVATLAS_FAULT_ERROR");
  slow = number_of("KVATLAS_FAULT_SLOW");
  count_file = getenv("KVATLAS_FAULT_COUNT");
  clock_seed = (unsigned long)number_of("KVATLAS_FAULT_CLOCK");
}

__attribute__((destructor)) static void end(void) {
  if (!count_file) return;
  FILE* file = fopen(count_file, "w");
  if (!file) return;
  fprintf(file, "%ld\n", (long)calls);
  fclose(file);
}

// Whether this call fails; errno is set then.
static int fails(enum kind kind, const char* path) {
  const size_t length = strlen(under);
  if (kind != wanted || strncmp(path, under, length) != 0 || path[length] != '/') return 0;
  const long call = ++calls;
  if (at == 0 || call < at) return 0;
  if (error == 0) raise(SIGKILL);
  errno = (int)error;
  return 1;
}

static int fails_on(enum kind kind, int descriptor) {
  char link[64], path[PATH_MAX];
  if (kind != wanted) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t size = readlink(link, path, sizeof path - 1);
  if (size < 0) return 0;
  path[size] = 0;
  return fails(kind, path);
}

static void wait_for_network(void) {
  if (slow > 0) usleep((useconds_t)(1000 * slow));
}

static int fails_at(enum kind kind, const char* name) {
  char path[PATH_MAX];
  if (kind != wanted) return 0;
  wait_for_network();
  if (name[0] == '/') return fails(kind, name);
  if (!getcwd(path, sizeof path) || strlen(path) + strlen(name) + 2 > sizeof path) return 0;
  strcat(strcat(path, "/"), name);
  return fails(kind, path);
}

ssize_t write(int file, const void* bytes, size_t size) {
  return fails_on(writing, file) ? -1 : NEXT(write)(file, bytes, size);
}
ssize_t pwrite(int file, const void* bytes, size_t size, off_t offset) {
  return fails_on(writing, file) ? -1 : NEXT(pwrite)(file, bytes, size, offset);
}
ssize_t pwrite64(int file, const void* bytes, size_t size, off64_t offset) {
  return fails_on(writing, file) ? -1 : NEXT(pwrite64)(file, bytes, size, offset);
}
int ftruncate(int file, off_t size) {
  return fails_on(writing, file) ? -1 : NEXT(ftruncate)(file, size);
}
int ftruncate64(int file, off64_t size) {
  return fails_on(writing, file) ? -1 : NEXT(ftruncate64)(file, size);
}
int fsync(int file) {
  wait_for_network();
  return fails_on(writing, file) ? -1 : NEXT(fsync)(file);
}
int rename(const char* from, const char* to) {
  return fails_at(writing, to) ? -1 : NEXT(rename)(from, to);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  return fails_at(writing, to) ? -1 : NEXT(renameat2)(from_folder, from, to_folder, to, flags);
}
int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) {
  return fails_at(writing, to) ? -1 : NEXT(linkat)(from_folder, from, to_folder, to, flags);
}
int mkdir(const char* path, mode_t mode) {
  return fails_at(writing, path) ? -1 : NEXT(mkdir)(path, mode);
}

ssize_t read(int file, void* bytes, size_t size) {
  return fails_on(reading, file) ? -1 : NEXT(read)(file, bytes, size);
}
ssize_t pread(int file, void* bytes, size_t size, off_t offset) {
  return fails_on(reading, file) ? -1 : NEXT(pread)(file, bytes, size, offset);
}
ssize_t pread64(int file, void* bytes, size_t size, off64_t offset) {
  return fails_on(reading, file) ? -1 : NEXT(pread64)(file, bytes, size, offset);
}
void* mmap(void* address, size_t size, int protection, int flags, int file, off_t offset) {
  if (file >= 0 && fails_on(reading, file)) return MAP_FAILED;
  return NEXT(mmap)(address, size, protection, flags, file, offset);
}

static int opening_fails(const char* path, int flags) {
  return fails_at((flags & (O_WRONLY | O_RDWR | O_CREAT)) != 0 ? writing : reading, path);
}
#define MODE_OF(flags)                                              \
  mode_t mode = 0;                                                  \
  if (((flags)&O_CREAT) != 0 || ((flags)&O_TMPFILE) == O_TMPFILE) { \
    va_list more;                                                   \
    va_start(more, flags);                                          \
    mode = va_arg(more, mode_t);                                    \
    va_end(more);                                                   \
  }
int open(const char* path, int flags, ...) {
  MODE_OF(flags)
  return opening_fails(path, flags) ? -1 : NEXT(open)(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  MODE_OF(flags)
  return opening_fails(path, flags) ? -1 : NEXT(open64)(path, flags, mode);
}
FILE* fopen(const char* path, const char* how) {
  const int fails =
      count_file == path ? 0 : opening_fails(path, how[0] == 'r' ? O_RDONLY : O_WRONLY);
  return fails ? NULL : NEXT(fopen)(path, how);
}
FILE* fopen64(const char* path, const char* how) {
  return opening_fails(path, how[0] == 'r' ? O_RDONLY : O_WRONLY) ? NULL : NEXT(fopen64)(path, how);
}

// The clock of the day jumps by years, to and fro; the others only ahead, by hours, as after a
// sleep.
int clock_gettime(clockid_t clock, struct timespec* now) {
  const int status = NEXT(clock_gettime)(clock, now);
  if (status != 0 || clock_seed == 0) return status;
  const unsigned long phase = (unsigned long)++clock_calls / (20 + clock_seed % 30);
  if (clock == CLOCK_REALTIME)
    now->tv_sec += (phase % 2 != 0 ? 1 : -1) * (long)(phase % 7) * 86400 * 365;
  else if (clock == CLOCK_MONOTONIC)
    now->tv_sec += (long)phase * 3600;
  return status;
}
time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  (void)zone;
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}
