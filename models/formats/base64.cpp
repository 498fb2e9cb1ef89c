#include "models/formats/base64.h"

#include <algorithm>
#include <cstdint>

#include "engine/types/check.h"

namespace orrery::models {
namespace {

constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t here = std::min<size_t>(3, bytes.size() - at);
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i) group = group << 8 | (i < here ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    for (size_t i = 0; i < 4; ++i) text.push_back(i <= here ? digits[group >> (18 - 6 * i) & 63] : '=');
  }
  return text;
}

std::string bytes_of_base64(std::string_view text, std::string_view what) {
  check(text.size() % 4 == 0, what, ": text of length ", text.size(),
        " is not base64; the length must be a multiple of 4");
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  uint32_t group = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const size_t digit = at + padding >= text.size() ? 0 : digits.find(text[at]);
    check(digit != std::string_view::npos, what, ": the character at byte ", at,
          " is not base64; A-Z, a-z, 0-9, + and / are valid");
    group = group << 6 | static_cast<uint32_t>(digit);
    if (at % 4 != 3) continue;
    const size_t here = at + 1 == text.size() ? 3 - padding : 3;
    for (size_t i = 0; i < here; ++i) bytes.push_back(static_cast<char>(group >> (16 - 8 * i)));
    group = 0;
  }
  return bytes;
}

}  // namespace orrery::models
