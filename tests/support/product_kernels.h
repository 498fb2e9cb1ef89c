#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "engine/matmul/matmul.h"
#include "engine/system/version.h"

namespace orrery::testing {

template <class F>
void with_kernels(const std::vector<const char*>& sets, const F& f) {
  const std::string before = product_kernels();
  for (const char* set : sets) {
    CAPTURE(set);
    use_product_kernels(set);
    f();
  }
  use_product_kernels(before.c_str());
}

// Returns our kernel sets for this processor. avx512_bf16 differs from avx512 only in bf16.
inline std::vector<const char*> own_kernels(bool of_bf16 = false) {
  std::vector<const char*> sets = {"avx2"};
  if (processor_has_avx512()) sets.push_back("avx512");
  if (of_bf16 && processor_has_avx512_bf16()) sets.push_back("avx512_bf16");
  return sets;
}
template <class F>
void with_own_kernels(const F& f) {
  with_kernels(own_kernels(), f);
}

// Runs f with our kernels and with OpenBLAS.
template <class F>
void with_all_kernels(const F& f, bool of_bf16 = false) {
  std::vector<const char*> sets = own_kernels(of_bf16);
  sets.push_back("openblas");
  with_kernels(sets, f);
}

}  // namespace orrery::testing
