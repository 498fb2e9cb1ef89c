#include "engine/loops/without_cuda.h"
#include "engine/types/check.h"

namespace orrery::detail {

[[noreturn]] void fail_without_cuda(const char* loop) {
  fail(loop, ": built without CUDA; configure with -DORRERY_CUDA=ON");
}

}  // namespace orrery::detail
