#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace orrery::testing {

inline std::string big_endian(uint32_t number) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(number >> shift));
  return bytes;
}

// Returns the CRC-32 of PNG and gzip, computed bit by bit.
inline uint32_t crc_32(std::string_view bytes) {
  uint32_t sum = ~0u;
  for (const char c : bytes) {
    sum ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0u);
  }
  return ~sum;
}

inline std::string png_chunk(const std::string& kind, const std::string& content) {
  return big_endian(static_cast<uint32_t>(content.size())) + kind + content + big_endian(crc_32(kind + content));
}

// Returns the file with the CRC-32 of each chunk recomputed; other files stay unchanged.
inline std::string with_chunk_sums(std::string_view bytes) {
  std::string all(bytes);
  if (!bytes.starts_with("\x89PNG")) return all;
  for (size_t at = 8; at + 12 <= all.size();) {
    uint64_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<unsigned char>(all[at + i]);
    if (length > all.size() - at - 12) break;
    all.replace(at + 8 + length, 4, big_endian(crc_32(std::string_view(all).substr(at + 4, 4 + length))));
    at += 12 + length;
  }
  return all;
}

}  // namespace orrery::testing
