// The GPU loops in a build without CUDA: they throw.
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
template <int, class, class... Arguments>
bool rows_with_sums(const Arguments&...) {
  detail::fail_without_cuda("rows_with_sums");
}
}  // namespace cuda

}  // namespace orrery
