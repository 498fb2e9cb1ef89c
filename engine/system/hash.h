// SHA-256, which verifies that a file is unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace orrery {

struct Fingerprint {  // size and hash of a file
  uint64_t bytes = 0;
  std::string sha256;
  bool operator==(const Fingerprint&) const = default;
};

class Sha256 {  // hash of bytes that arrive in chunks
 public:
  Sha256();
  ~Sha256();
  void add(std::span<const std::byte> bytes);
  std::string digits();  // 64 hexadecimal digits; the last call: add must not follow

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256(std::span<const std::byte> bytes);
std::string sha256_of_file(const std::string& path);  // a regular file, read in chunks; errors as FileReader's

}  // namespace orrery
