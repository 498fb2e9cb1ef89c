// Size arithmetic that throws instead of wrapping around: a wrapped product would allocate a small
// block and then write a large one. Sizes of tensors, files and settings use this or a Shape.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "engine/types/check.h"

namespace orrery {

// 2^59: more elements than any memory holds, and few enough for a count of bytes to be exact.
constexpr int64_t max_elements = int64_t{1} << 59;

namespace detail {
[[noreturn]] inline void fail_sizes(std::string_view what, const char* between, std::initializer_list<int64_t> sizes) {
  std::string all;
  for (const int64_t size : sizes) all += (all.empty() ? "" : between) + std::to_string(size);
  fail(what, ": ", all, " is too large for any memory; use smaller sizes");
}
}  // namespace detail

// Product and sum of sizes >= 0, at most `max_elements`. Errors: "`what`: 3 x 4 is too large ...".
inline int64_t product_of_sizes(std::string_view what, std::initializer_list<int64_t> sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes)
    if (size < 0 || __builtin_mul_overflow(product, size, &product) || product > max_elements)
      detail::fail_sizes(what, " x ", sizes);
  return product;
}
inline int64_t sum_of_sizes(std::string_view what, std::initializer_list<int64_t> sizes) {
  int64_t sum = 0;
  for (const int64_t size : sizes)
    if (size < 0 || __builtin_add_overflow(sum, size, &sum) || sum > max_elements)
      detail::fail_sizes(what, " + ", sizes);
  return sum;
}

}  // namespace orrery
