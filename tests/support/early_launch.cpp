#include "tests/support/early_launch.h"

#include <csignal>

#include "tests/support/device_memory.h"

namespace cuda_on_cpu {

std::atomic<int64_t> launches = 0, early_launches = 0;

namespace {
volatile sig_atomic_t closed = 0, accessed = 0;
struct sigaction previous;

// The access is repeated when the handler returns, and then succeeds.
void open_for_access(int, siginfo_t* fault, void*) {
  if (closed && DeviceMemory::owns(fault->si_addr)) {
    accessed = 1;
    ClosedMemory::open();
  } else {
    sigaction(SIGSEGV, &previous, nullptr);  // the repeated access has the former consequence
  }
}
}  // namespace

ClosedMemory::ClosedMemory() {
  struct sigaction action {};
  action.sa_sigaction = open_for_access;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;  // on the stack of a sanitizer, which reports overflows
  sigaction(SIGSEGV, &action, &previous);
}
ClosedMemory::~ClosedMemory() {
  open();
  sigaction(SIGSEGV, &previous, nullptr);
}
void ClosedMemory::close() {
  accessed = 0;
  closed = 1;
  DeviceMemory::close(true);
}
void ClosedMemory::open() {
  if (!closed) return;
  closed = 0;
  DeviceMemory::close(false);
}
bool ClosedMemory::was_accessed() { return accessed; }
void ClosedMemory::access(const void* data) {
  if (closed) static_cast<void>(*static_cast<const volatile char*>(data));
}

}  // namespace cuda_on_cpu
