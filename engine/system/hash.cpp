#include "engine/system/hash.h"

// OpenSSL 1.1's functions, which do not allocate. Those of 3.0 do, and crash without memory.
#define OPENSSL_API_COMPAT 0x10101000L
#include <openssl/sha.h>

#include <array>
#include <vector>

#include "engine/system/files.h"

namespace orrery {
struct Sha256::State {
  SHA256_CTX context;
};
Sha256::Sha256() : state_(std::make_unique<State>()) { SHA256_Init(&state_->context); }
Sha256::~Sha256() = default;
void Sha256::add(std::span<const std::byte> bytes) { SHA256_Update(&state_->context, bytes.data(), bytes.size()); }
std::string Sha256::digits() {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> hash;
  SHA256_Final(hash.data(), &state_->context);
  static constexpr char hexadecimal[] = "0123456789abcdef";
  std::string all;
  for (const unsigned char byte : hash) all.append({hexadecimal[byte >> 4], hexadecimal[byte & 15]});
  return all;
}

std::string sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.digits();
}

std::string sha256_of_file(const std::string& path) {
  FileReader file(path);
  std::vector<std::byte> chunk(size_t{1} << 20);
  Sha256 hash;
  while (const size_t got = file.read_up_to(chunk)) hash.add(std::span(chunk).first(got));
  return hash.digits();
}

}  // namespace orrery
