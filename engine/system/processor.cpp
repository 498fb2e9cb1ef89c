// The instruction sets of this processor. Only this file is compiled for the oldest x86-64, because
// it must report that the rest cannot run here.
#include <cpuid.h>
#include <unistd.h>

#include <cstring>

#include "engine/system/version.h"

namespace orrery {

namespace detail {
extern const char compiled_instruction_sets[];
}

namespace {

struct InstructionSet {
  const char* name;
  bool present;
};

constexpr int set_count = 15;

// Not all supported compilers accept AMX in __builtin_cpu_supports: CPUID leaf 7, edx, bits 24, 22.
bool has_amx(int bit) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx >> bit & 1u) != 0;
}

void detect(InstructionSet (&sets)[set_count]) {
  __builtin_cpu_init();
  const InstructionSet found[set_count] = {
      {"sse4.2", __builtin_cpu_supports("sse4.2") != 0},
      {"avx", __builtin_cpu_supports("avx") != 0},
      {"avx2", __builtin_cpu_supports("avx2") != 0},
      {"fma", __builtin_cpu_supports("fma") != 0},
      {"bmi2", __builtin_cpu_supports("bmi2") != 0},
      {"avx512f", __builtin_cpu_supports("avx512f") != 0},
      {"avx512bw", __builtin_cpu_supports("avx512bw") != 0},
      {"avx512cd", __builtin_cpu_supports("avx512cd") != 0},
      {"avx512dq", __builtin_cpu_supports("avx512dq") != 0},
      {"avx512vl", __builtin_cpu_supports("avx512vl") != 0},
      {"avx512vbmi", __builtin_cpu_supports("avx512vbmi") != 0},
      {"avx512vnni", __builtin_cpu_supports("avx512vnni") != 0},
      {"avx512bf16", __builtin_cpu_supports("avx512bf16") != 0},
      {"amx_tile", has_amx(24)},
      {"amx_bf16", has_amx(22)},
  };
  for (int i = 0; i < set_count; ++i) sets[i] = found[i];
}

// Matches whole words: "avx" does not match "avx2 ".
bool contains_word(const char* words, const char* name) {
  const size_t length = std::strlen(name);
  for (const char* at = words; (at = std::strstr(at, name)) != nullptr; at += length)
    if ((at == words || at[-1] == ' ') && at[length] == ' ') return true;
  return false;
}

void print(const char* text) {
  const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
  static_cast<void>(written);
}

// The only function of the library that prints and exits. It runs before all other constructors:
// one of their instructions may be missing here, which would end the program without a message.
__attribute__((constructor(101))) void refuse_wrong_processor() {
  InstructionSet sets[set_count];
  detect(sets);
  bool missing = false;
  for (const InstructionSet& set : sets) {
    if (set.present || !contains_word(detail::compiled_instruction_sets, set.name)) continue;
    print(missing ? ", " : "orrery: this processor lacks ");
    print(set.name);
    missing = true;
  }
  if (!missing) return;
  print(
      ", which the library was compiled for; build it on this machine, or use -DORRERY_NATIVE=OFF for any "
      "x86-64-v3 processor\n");
  _exit(1);
}

}  // namespace

std::string processor_instruction_sets() {
  InstructionSet sets[set_count];
  detect(sets);
  std::string result;
  for (const InstructionSet& set : sets)
    if (set.present) (result += set.name) += ' ';
  if (!result.empty()) result.pop_back();
  return result;
}

bool processor_has_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
bool processor_has_avx512() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
bool processor_has_avx512_bf16() { return processor_has_avx512() && __builtin_cpu_supports("avx512bf16"); }
bool processor_multiplies_bf16_fast() { return processor_has_avx512_bf16() && __builtin_cpu_is("amd"); }

}  // namespace orrery
