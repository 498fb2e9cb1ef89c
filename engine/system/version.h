// The version and build options of this library; `orrery --version` prints them.
#pragma once

#include <string>

namespace orrery {

struct Build {
  std::string version;           // such as 0.1.0
  std::string compiler;          // name and version
  std::string flags;             // as passed to the compiler
  std::string instruction_sets;  // those that the compiler could use, separated by spaces
  bool cuda = false;             // formulas were compiled for a GPU too
};
Build build();

// Returns the instruction sets of processor.cpp that this processor has, with spaces between.
std::string processor_instruction_sets();
bool processor_has_avx2();    // with fma, of x86-64-v3, the target of each kernels_avx2.cpp
bool processor_has_avx512();  // all of x86-64-v4, the target of each kernels_avx512.cpp
bool processor_has_avx512_bf16();
// Returns true if bf16 is faster than f32. AMD from Zen 4: vdpbf16ps has twice the products of an
// f32 vector multiplication at its rate. Intel: one in two cycles, half the products of f32 (86
// GFLOP/s a core, not 177; Emerald Rapids). On Intel only the tile unit is fast at bf16.
bool processor_multiplies_bf16_fast();

}  // namespace orrery
