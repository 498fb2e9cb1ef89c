#pragma once

#include <string>

namespace orrery::testing {

inline std::string tiny_text() {  // 1,000 characters, 27 distinct
  std::string text;
  for (int i = 0; text.size() < 1000; ++i)
    text += std::string(1, static_cast<char>('a' + i * i % 26)) + (i % 5 == 4 ? "\n" : "e");
  return text.substr(0, 1000);
}

}  // namespace orrery::testing
