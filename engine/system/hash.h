// SHA-256, which tells whether a file is the one that was written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace orrery {

struct Fingerprint {  // of a file
  uint64_t bytes = 0;
  std::string sha256;
  bool operator==(const Fingerprint&) const = default;
};

class Sha256 {  // of bytes that come in pieces
 public:
  Sha256();
  ~Sha256();
  void add(std::span<const std::byte> bytes);
  std::string digits();  // 64 hexadecimal ones; then nothing more is added

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256(std::span<const std::byte> bytes);
std::string sha256_of_file(const std::string& path);  // a regular file, read in pieces; errors as FileReader's

}  // namespace orrery
