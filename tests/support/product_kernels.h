#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "engine/base/version.h"
#include "engine/matmul/matmul.h"

namespace orrery::testing {

// Runs f with every set of kernels that this processor can run; avx512_bf16 differs from avx512 for bf16 alone.
template <class F>
void with_all_kernels(const F& f, bool of_bf16 = false) {
  const std::string before = product_kernels();
  std::vector<const char*> sets = {"openblas"};
  if (processor_has_avx512()) sets.push_back("avx512");
  if (of_bf16 && processor_has_avx512_bf16()) sets.push_back("avx512_bf16");
  for (const char* set : sets) {
    CAPTURE(set);
    use_product_kernels(set);
    f();
  }
  use_product_kernels(before.c_str());
}

}  // namespace orrery::testing
