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
bool processor_has_avx512();  // all of x86-64-v4, which the kernels_avx512.cpp are compiled for

}  // namespace orrery
