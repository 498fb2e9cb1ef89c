#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "engine/matmul/matmul.h"

namespace orrery::testing {

// Runs f with every set of kernels that this processor can run.
template <class F>
void with_all_kernels(const F& f) {
  const std::string before = product_kernels();
  std::vector<const char*> sets = {"openblas"};
  if (before == "avx512") sets.push_back("avx512");
  for (const char* set : sets) {
    CAPTURE(set);
    use_product_kernels(set);
    f();
  }
  use_product_kernels(before.c_str());
}

}  // namespace orrery::testing
