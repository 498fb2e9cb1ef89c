#include "tests/fuzz/mutation.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace fuzz {
namespace {

constexpr std::array<int64_t, 15> edges = {0,     1,     -1,      7,          127,        128,       255,      256,
                                           32767, 65535, 1 << 20, 2147483647, 4294967295, 1LL << 53, 1LL << 61};
const std::vector<std::string> numbers = {"0",
                                          "-1",
                                          "1e400",
                                          "1e-400",
                                          "nan",
                                          "inf",
                                          "-inf",
                                          "0.1",
                                          "00",
                                          "1.",
                                          "9e18",
                                          "0x10",
                                          "5.7",
                                          "4294967296",
                                          "9223372036854775807",
                                          "9223372036854775808",
                                          "18446744073709551615",
                                          "99999999999999999999999999"};

void change_once(const Format& format, std::string& bytes, const std::vector<std::string>& corpus, Random& random) {
  const size_t size = bytes.size(), at = random.below(size + 1);
  const size_t length = std::min<size_t>(size - at, 1 + random.below(random.one_in(4) ? 1 + size : 16));
  const auto insert = [&](const std::string& inserted) { bytes.insert(at, inserted); };
  switch (random.below(12)) {
    case 0:
      if (at < size) bytes[at] = static_cast<char>(bytes[at] ^ 1 << random.below(8));
      return;
    case 1:
      if (at < size) bytes[at] = static_cast<char>(random.next());
      return;
    case 2:
      return insert(std::string(1 + random.below(8), static_cast<char>(random.next())));
    case 3:
      bytes.erase(at, length);
      return;
    case 4:
      return insert(bytes.substr(at, length));
    case 5:
      bytes.resize(at);
      return;
    case 6: {  // a binary number
      const int64_t edge = random.pick(edges);
      const size_t width = size_t{1} << random.below(4);
      if (at + width <= size) std::memcpy(bytes.data() + at, &edge, width);
      return;
    }
    case 7: {  // a decimal number, in place of one if there is one
      const size_t digit = bytes.find_first_of("0123456789", at);
      if (digit == std::string::npos) return insert(random.pick(numbers));
      const size_t end = std::min(size, bytes.find_first_not_of("0123456789.", digit));
      bytes.replace(digit, end - digit, random.pick(numbers));
      return;
    }
    case 8: {  // a repeated part: depth, and long lists
      std::string many;
      const std::string inserted = format.words.empty() || random.one_in(2)
                                       ? bytes.substr(at, std::min<size_t>(length, 8))
                                       : random.pick(format.words);
      for (uint64_t i = random.below(random.one_in(20) ? 4000 : 60); i > 0; --i) many += inserted;
      return insert(many);
    }
    case 9:
      if (!corpus.empty()) {
        const std::string other = random.pick(corpus);
        const size_t from = random.below(other.size() + 1);
        bytes.replace(at, length, other.substr(from, random.below(64)));
      }
      return;
    default:
      if (!format.words.empty()) bytes.replace(at, random.one_in(2) ? 0 : length, random.pick(format.words));
  }
}

}  // namespace

std::string mutated(const Format& format, std::string_view bytes, const std::vector<std::string>& corpus,
                    size_t max_bytes, Random& random) {
  std::string changed = format.mutate && random.one_in(2) ? format.mutate(bytes, random) : std::string(bytes);
  if (!format.mutate || !random.one_in(3))
    for (uint64_t i = 1 + random.below(random.one_in(4) ? 8 : 2); i > 0; --i)
      change_once(format, changed, corpus, random);
  if (changed.size() > max_bytes) changed.resize(max_bytes);
  return changed;
}

}  // namespace fuzz
