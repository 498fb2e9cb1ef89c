#include "engine/system/version.h"

#include "engine/system/build_facts.h"

namespace orrery {

// Data, not code: engine/system/processor.cpp reads it before any instruction of these sets runs.
namespace detail {
extern const char compiled_instruction_sets[];
const char compiled_instruction_sets[] =
    ""
#ifdef __SSE4_2__
    "sse4.2 "
#endif
#ifdef __AVX__
    "avx "
#endif
#ifdef __AVX2__
    "avx2 "
#endif
#ifdef __FMA__
    "fma "
#endif
#ifdef __BMI2__
    "bmi2 "
#endif
#ifdef __AVX512F__
    "avx512f "
#endif
#ifdef __AVX512BW__
    "avx512bw "
#endif
#ifdef __AVX512CD__
    "avx512cd "
#endif
#ifdef __AVX512DQ__
    "avx512dq "
#endif
#ifdef __AVX512VL__
    "avx512vl "
#endif
#ifdef __AVX512VBMI__
    "avx512vbmi "
#endif
#ifdef __AVX512VNNI__
    "avx512vnni "
#endif
#ifdef __AVX512BF16__
    "avx512bf16 "
#endif
    ;
}  // namespace detail

Build build() {
  Build result;
  result.version = build_facts::version;
#if defined(__clang__)
  result.compiler = "clang++ " + std::to_string(__clang_major__) + '.' + std::to_string(__clang_minor__);
#else
  result.compiler = "g++ " + std::to_string(__GNUC__) + '.' + std::to_string(__GNUC_MINOR__);
#endif
  result.flags = build_facts::compiler_flags;
  result.instruction_sets = detail::compiled_instruction_sets;
  if (!result.instruction_sets.empty()) result.instruction_sets.pop_back();
#if defined(ORRERY_CUDA)
  result.cuda = true;
#endif
  return result;
}

}  // namespace orrery
