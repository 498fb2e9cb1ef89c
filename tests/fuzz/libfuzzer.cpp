// The formats under clang's libFuzzer. ORRERY_FUZZ_FORMAT names the format of this process.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fuzz/format.h"

namespace {

const fuzz::Format& format() {
  static const fuzz::Format& chosen = [&]() -> const fuzz::Format& {
    const char* const name = std::getenv("ORRERY_FUZZ_FORMAT");
    const auto found = fuzz::formats().find(name ? name : "");
    if (found != fuzz::formats().end()) return found->second;
    std::fprintf(stderr, "ORRERY_FUZZ_FORMAT must name a format; --list of orrery_fuzz names them\n");
    std::exit(2);
  }();
  return chosen;
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string given(reinterpret_cast<const char*>(data), size);
  const fuzz::Verdict verdict = fuzz::try_input(format(), format().prepare ? format().prepare(given) : given);
  if (verdict.failure.empty()) return 0;
  std::fprintf(stderr, "%s: %s\n", format().name.c_str(), verdict.failure.c_str());
  std::abort();
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  if (!format().mutate || seed % 2 == 0) return LLVMFuzzerMutate(data, size, max_size);
  fuzz::Random random(seed);
  const std::string changed = format().mutate({reinterpret_cast<const char*>(data), size}, random);
  const size_t length = changed.size() < max_size ? changed.size() : max_size;
  std::memcpy(data, changed.data(), length);
  return length;
}
