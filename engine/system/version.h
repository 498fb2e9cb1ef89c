// What this library is and what it was compiled for; `orrery --version` prints it.
#pragma once

#include <string>

namespace orrery {

struct Build {
  std::string version;           // of orrery, such as 0.1.0
  std::string compiler;          // name and version
  std::string flags;             // as the compiler got them
  std::string instruction_sets;  // that the compiler was free to use, separated by spaces
  bool cuda = false;             // formulas were compiled for a GPU as well
};
Build build();

// Instruction sets of this processor, separated by spaces, of those that the library looks for.
std::string processor_instruction_sets();
bool processor_has_avx2();    // with fma, of x86-64-v3, which the kernels_avx2.cpp are compiled for
bool processor_has_avx512();  // all of x86-64-v4, which the kernels_avx512.cpp are compiled for
bool processor_has_avx512_bf16();
// Whether that is more than f32's rate.  On AMD's, from Zen 4 on, vdpbf16ps has twice the products of an f32 vector
// multiplication at the same rate.  Intel's do one in two cycles, half of f32's products: 86 GFLOP/s a core against 177
// (Emerald Rapids); theirs that are fast at bf16 are so by their tile unit.
bool processor_multiplies_bf16_fast();

}  // namespace orrery
