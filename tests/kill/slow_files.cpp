// Slows the system calls of a checkpoint by 3 ms each (LD_PRELOAD, tests/kill_resume_test.sh), so
// that a kill at a random moment often falls between two of them.
#include <dlfcn.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

namespace {

void wait() {
  const timespec time = {0, 3'000'000};
  nanosleep(&time, nullptr);
}
template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {
int fsync(int file) {
  wait();
  return next<int(int)>("fsync")(file);
}
int rename(const char* from, const char* to) noexcept {
  wait();
  return next<int(const char*, const char*)>("rename")(from, to);
}
int unlink(const char* path) noexcept {
  wait();
  return next<int(const char*)>("unlink")(path);
}
int rmdir(const char* path) noexcept {
  wait();
  return next<int(const char*)>("rmdir")(path);
}
int mkdir(const char* path, mode_t mode) noexcept {
  wait();
  return next<int(const char*, mode_t)>("mkdir")(path, mode);
}
}
