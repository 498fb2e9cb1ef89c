#include "cuda/runtime/waiting.h"

#include <vector>

namespace orrery::cuda {
namespace {

struct OfThread {
  int guards = 0;
  std::vector<WaitingKernels::Kind*> kinds;
};
OfThread& of_thread() {
  static thread_local OfThread mine;
  return mine;
}

}  // namespace

WaitingKernels::WaitingKernels() { ++of_thread().guards; }
WaitingKernels::~WaitingKernels() {
  if (--of_thread().guards > 0) return;
  for (Kind* const kind : of_thread().kinds) kind->drop();
}
bool WaitingKernels::allowed() { return of_thread().guards > 0; }
void WaitingKernels::launch() {
  for (Kind* const kind : of_thread().kinds) kind->launch();
}
void WaitingKernels::launch(const void* out) {
  for (Kind* const kind : of_thread().kinds)
    if (kind->writes(out)) kind->launch();
}
WaitingKernels::Kind::Kind() { of_thread().kinds.push_back(this); }
WaitingKernels::Kind::~Kind() { std::erase(of_thread().kinds, this); }

}  // namespace orrery::cuda
