#include "engine/base/hash.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <memory>
#include <new>
#include <vector>

#include "engine/base/files.h"

namespace orrery {
namespace {

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new()) {
    // A configuration file of the system may load code of its own and has no say here.
    static const bool started = OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr) == 1;
    must(started && context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  void add(std::span<const std::byte> bytes) {
    must(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
  }
  std::string digits() {
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    must(EVP_DigestFinal_ex(context_.get(), hash, &length) == 1);
    static constexpr char hexadecimal[] = "0123456789abcdef";
    std::string all;
    for (unsigned i = 0; i < length; ++i) all.append({hexadecimal[hash[i] >> 4], hexadecimal[hash[i] & 15]});
    return all;
  }

 private:
  // Memory is the only thing that these calls can lack.
  static void must(bool done) {
    if (!done) throw std::bad_alloc();
  }
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

}  // namespace

std::string sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.digits();
}

std::string sha256_of_file(const std::string& path) {
  FileReader file(path);
  std::vector<std::byte> piece(size_t{1} << 20);
  Sha256 hash;
  while (const size_t got = file.read_up_to(piece)) hash.add(std::span(piece).first(got));
  return hash.digits();
}

}  // namespace orrery
