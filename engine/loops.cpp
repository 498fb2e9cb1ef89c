#include "engine/check.h"

namespace orrery::detail {

[[noreturn]] void fail_without_cuda(const char* loop) { fail(loop, ": built without CUDA (configure with -DCUDA=ON)"); }

}  // namespace orrery::detail
