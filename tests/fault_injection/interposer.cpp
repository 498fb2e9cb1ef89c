// A preloaded library that makes one call of a kind fail, as on a machine without memory, disk
// space or descriptors:
//   LD_PRELOAD=... FAILURES_KIND=write FAILURES_AT=7   call 7; FAILURES_LASTING=1: later ones, too
//   FAILURES_COUNTS=FILE   number of calls of each kind, written at exit
// Allocations count from the first one by a library or program named *orrery*. Earlier ones come
// from constructors of other libraries; libgfortran's (from OpenBLAS) mishandles a failure.
//   FAILURES_OWN=1         only calls by *orrery* and the C++ library count, not those by an MPI
//   FAILURES_PLUGIN=FILE   replaces a compiler's output: execv copies it to the path after -o
//   FAILURES_SPOILED=FILE  emptied just before dlopen loads it or a copy of it
// Child programs are not affected. No C++ library is used, because it allocates.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>

namespace {

// short_write writes half of the data; interrupted sets EINTR. Results must not change with either.
enum Kind {
  allocation,
  write_,
  short_write,
  interrupted,
  read_,
  fsync_,
  rename_,
  open_,
  close_,
  mmap_,
  thread,
  mkdir_,
  remove_,
  lock,
  process,
  kinds
};
constexpr const char* names[kinds] = {"allocation", "write",  "short_write", "interrupted", "read",
                                      "fsync",      "rename", "open",        "close",       "mmap",
                                      "thread",     "mkdir",  "remove",      "lock",        "process"};
constexpr int errors[kinds] = {ENOMEM, ENOSPC, 0,      EINTR,  EIO,   EIO,    EIO,   EMFILE,
                               EIO,    ENOMEM, EAGAIN, ENOSPC, EBUSY, ENOLCK, ENOMEM};

std::atomic<long> counts[kinds];
long at = 0;
int chosen = -1;
bool lasting = false, own = false, ready = false, ours = false;  // ours: code of orrery has allocated
const char *counts_file = nullptr, *plugin = nullptr;

void prepare() {
  if (ready || !environ) return;
  ready = true;
  if (const char* const kind = getenv("FAILURES_KIND"))
    for (int i = 0; i < kinds; ++i)
      if (!strcmp(kind, names[i])) chosen = i;
  if (const char* const n = getenv("FAILURES_AT")) at = atol(n);
  lasting = getenv("FAILURES_LASTING") != nullptr;
  own = getenv("FAILURES_OWN") != nullptr;
  counts_file = getenv("FAILURES_COUNTS");
  plugin = getenv("FAILURES_PLUGIN");
}

// Returns whether the library or program with this address has the word in its name.
bool is_in(void* address, const char* word) {
  Dl_info info;
  if (!dladdr(address, &info) || !info.dli_fname) return false;
  const char* const name = strrchr(info.dli_fname, '/');
  return strstr(name ? name : info.dli_fname, word) != nullptr;
}

// Counts this call of the function in which it is, and returns whether it must fail.
[[gnu::always_inline]] inline bool fails(Kind kind) {
  prepare();
  void* const caller = __builtin_return_address(0);
  if (own && !is_in(caller, "orrery") && !is_in(caller, "libstdc++")) return false;
  const long n = ++counts[kind];
  if (kind != chosen || at == 0 || (lasting ? n < at : n != at)) return false;
  errno = errors[kind];
  return true;
}

pid_t own_process = 0;

[[gnu::constructor]] void begin() {
  own_process = getpid();
  prepare();
  unsetenv("LD_PRELOAD");
}
void write_counts() {
  if (!counts_file) return;
  char text[64 * kinds];
  int length = 0;
  for (int i = 0; i < kinds; ++i) length += sprintf(text + length, "%s %ld\n", names[i], counts[i].load());
  const long file = syscall(SYS_openat, AT_FDCWD, counts_file, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  syscall(SYS_write, file, text, length);
  syscall(SYS_close, file);
}

[[gnu::always_inline]] inline bool allocation_fails() { return ours && fails(allocation); }

template <class Function>
Function* next(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
#define NEXT(function)                                  \
  static auto* const real = next(&function, #function); \
  (void)real

}  // namespace

extern "C" {

// Called at the program's end, and by a child whose exec failed.
__attribute__((noreturn)) void _exit(int code) {
  if (getpid() == own_process) write_counts();
  syscall(SYS_exit_group, code);
  __builtin_unreachable();
}

void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* data, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) { return allocation_fails() ? nullptr : __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return allocation_fails() ? nullptr : __libc_calloc(count, size); }
void* realloc(void* data, size_t size) { return allocation_fails() ? nullptr : __libc_realloc(data, size); }
void* memalign(size_t alignment, size_t size) {
  return allocation_fails() ? nullptr : __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  return allocation_fails() ? nullptr : __libc_memalign(alignment, size);
}
int posix_memalign(void** data, size_t alignment, size_t size) {
  void* const made = allocation_fails() ? nullptr : __libc_memalign(alignment, size);
  if (!made) return ENOMEM;
  *data = made;
  return 0;
}

// operator new, by its mangled name: its return address shows whose code runs.
void* _Znwm(size_t size) {
  NEXT(_Znwm);
  ours = ours || is_in(__builtin_return_address(0), "orrery");
  return real(size);
}

ssize_t write(int file, const void* data, size_t size) {
  NEXT(write);
  if (file == STDERR_FILENO) return real(file, data, size);  // without stderr, no error can be reported
  if (fails(write_) || fails(interrupted)) return -1;
  return real(file, data, fails(short_write) && size > 1 ? size / 2 : size);
}
ssize_t writev(int file, const struct iovec* buffers, int count) {
  NEXT(writev);
  if (fails(write_) || fails(interrupted)) return -1;
  return real(file, buffers, fails(short_write) && count > 1 ? 1 : count);
}
ssize_t pwrite(int file, const void* data, size_t size, off_t offset) {
  NEXT(pwrite);
  return fails(write_) ? -1 : real(file, data, size, offset);
}
// Streams that share stdout write with fwrite.
size_t fwrite(const void* data, size_t size, size_t count, FILE* file) {
  NEXT(fwrite);
  return file != stderr && fails(write_) ? 0 : real(data, size, count, file);
}
ssize_t read(int file, void* data, size_t size) {
  NEXT(read);
  return fails(read_) || fails(interrupted) ? -1 : real(file, data, size);
}
int fsync(int file) {
  NEXT(fsync);
  return fails(fsync_) ? -1 : real(file);
}
int fdatasync(int file) {
  NEXT(fdatasync);
  return fails(fsync_) ? -1 : real(file);
}
int close(int file) {
  NEXT(close);
  const bool failing = fails(close_);
  const int result = real(file);  // closes the file anyway, as Linux does
  return failing ? errno = EIO, -1 : result;
}

int rename(const char* from, const char* to) {
  NEXT(rename);
  return fails(rename_) ? -1 : real(from, to);
}
int renameat(int a, const char* from, int b, const char* to) {
  NEXT(renameat);
  return fails(rename_) ? -1 : real(a, from, b, to);
}
int renameat2(int a, const char* from, int b, const char* to, unsigned flags) {
  NEXT(renameat2);
  return fails(rename_) ? -1 : real(a, from, b, to, flags);
}

// The third argument exists only if a file may be created.
#define MODE                           \
  mode_t mode = 0;                     \
  if (flags & (O_CREAT | O_TMPFILE)) { \
    va_list more;                      \
    va_start(more, flags);             \
    mode = va_arg(more, mode_t);       \
    va_end(more);                      \
  }
int open(const char* path, int flags, ...) {
  NEXT(open);
  MODE return fails(open_) ? -1 : real(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  NEXT(open64);
  MODE return fails(open_) ? -1 : real(path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  NEXT(openat);
  MODE return fails(open_) ? -1 : real(folder, path, flags, mode);
}
int openat64(int folder, const char* path, int flags, ...) {
  NEXT(openat64);
  MODE return fails(open_) ? -1 : real(folder, path, flags, mode);
}
FILE* fopen(const char* path, const char* mode) {
  NEXT(fopen);
  return fails(open_) ? nullptr : real(path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  NEXT(fopen64);
  return fails(open_) ? nullptr : real(path, mode);
}
DIR* opendir(const char* path) {
  NEXT(opendir);
  return fails(open_) ? nullptr : real(path);
}

void* mmap(void* address, size_t size, int protection, int flags, int file, off_t offset) {
  NEXT(mmap);
  return fails(mmap_) ? MAP_FAILED : real(address, size, protection, flags, file, offset);
}
void* mmap64(void* address, size_t size, int protection, int flags, int file, off_t offset) {
  NEXT(mmap64);
  return fails(mmap_) ? MAP_FAILED : real(address, size, protection, flags, file, offset);
}
int pthread_create(pthread_t* thread_made, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
  NEXT(pthread_create);
  return fails(thread) ? EAGAIN : real(thread_made, attributes, run, argument);
}

int mkdir(const char* path, mode_t mode) {
  NEXT(mkdir);
  return fails(mkdir_) ? -1 : real(path, mode);
}
int unlink(const char* path) {
  NEXT(unlink);
  return fails(remove_) ? -1 : real(path);
}
int unlinkat(int folder, const char* path, int flags) {
  NEXT(unlinkat);
  return fails(remove_) ? -1 : real(folder, path, flags);
}
int rmdir(const char* path) {
  NEXT(rmdir);
  return fails(remove_) ? -1 : real(path);
}
int flock(int file, int operation) {
  NEXT(flock);
  return fails(lock) ? -1 : real(file, operation);
}

pid_t fork(void) {
  NEXT(fork);
  return fails(process) ? -1 : real();
}
int execv(const char* path, char* const* arguments) {
  NEXT(execv);
  for (char* const* each = arguments; plugin && *each; ++each) {
    if (strcmp(*each, "-o") != 0 || !each[1]) continue;
    const char* const copy[] = {"cp", plugin, each[1], nullptr};
    return real("/bin/cp", const_cast<char* const*>(copy));
  }
  return real(path, arguments);
}

void* dlopen(const char* path, int flags) {
  NEXT(dlopen);
  const char* const file = path ? getenv("FAILURES_SPOILED") : nullptr;
  if (file && (strstr(path, file) || strstr(path, "/proc/self/fd/"))) {  // not libraries that other libraries load
    const long spoiled = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_TRUNC);
    if (spoiled >= 0) syscall(SYS_close, spoiled);
  }
  return real(path, flags);
}

}  // extern "C"
