// The loops of a GPU in a build without CUDA: Errors.
#pragma once

namespace orrery {

namespace detail {
[[noreturn]] void fail_without_cuda(const char* loop);
}

namespace cuda {
template <class... Arguments>
void map(const Arguments&...) {
  detail::fail_without_cuda("map");
}
template <class... Arguments>
void rows(const Arguments&...) {
  detail::fail_without_cuda("rows");
}
template <class... Arguments>
void reduce(const Arguments&...) {
  detail::fail_without_cuda("reduce");
}
}  // namespace cuda

}  // namespace orrery
