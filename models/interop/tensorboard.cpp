#include "models/interop/tensorboard.h"

#include <array>
#include <bit>
#include <cmath>

namespace orrery::models {
namespace {

constexpr std::array<uint32_t, 256> crc_table() {
  constexpr uint32_t polynomial = 0x82f63b78;  // bit-reversed: the lowest power in the highest bit
  std::array<uint32_t, 256> table = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = remainder >> 1 ^ (remainder & 1 ? polynomial : 0);
    table[byte] = remainder;
  }
  return table;
}

template <class Unsigned>
std::string little_endian(Unsigned number) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(Unsigned); ++i) bytes.push_back(static_cast<char>(number >> 8 * i & 0xff));
  return bytes;
}

std::string varint(uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes.push_back(static_cast<char>((number & 0x7f) | 0x80));
  bytes.push_back(static_cast<char>(number));
  return bytes;
}

enum Kind : uint64_t { whole = 0, eight_bytes = 1, counted = 2, four_bytes = 5 };
std::string key(uint64_t number, Kind kind) { return varint(number << 3 | kind); }
std::string field(uint64_t number, int64_t x) { return key(number, whole) + varint(static_cast<uint64_t>(x)); }
std::string field(uint64_t number, double x) {
  return key(number, eight_bytes) + little_endian(std::bit_cast<uint64_t>(x));
}
std::string field(uint64_t number, float x) {
  return key(number, four_bytes) + little_endian(std::bit_cast<uint32_t>(x));
}
std::string field(uint64_t number, const std::string& bytes) {
  return key(number, counted) + varint(bytes.size()) + bytes;
}

std::string masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return little_endian(std::rotr(crc, 15) + 0xa282ead8);
}
std::string record(const std::string& data) {
  const std::string length = little_endian(static_cast<uint64_t>(data.size()));
  return length + masked_crc(length) + data + masked_crc(data);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> table = crc_table();
  uint32_t remainder = 0xffffffff;
  for (const char c : bytes) remainder = remainder >> 8 ^ table[(remainder ^ static_cast<unsigned char>(c)) & 0xff];
  return ~remainder;
}

int64_t tensorboard_events(const RunLog& log, std::span<const std::string> metrics,
                           const std::function<void(std::string_view)>& write) {
  int64_t rows = 0;
  write(record(field(1, 0.0) + field(3, std::string("brain.Event:2"))));
  double seconds = 0;
  log.each([&](const LogRow& row) {
    ++rows;
    const auto time = row.metrics.find("step_ms");
    if (time != row.metrics.end() && std::isfinite(time->second)) seconds += time->second / 1000;
    std::string values;
    for (const std::string& name : metrics)
      if (const auto found = row.metrics.find(name); found != row.metrics.end())
        values += field(1, field(1, name) + field(2, static_cast<float>(found->second)));
    if (!values.empty()) write(record(field(1, seconds) + field(2, row.step) + field(5, values)));
  });
  return rows;
}

}  // namespace orrery::models
