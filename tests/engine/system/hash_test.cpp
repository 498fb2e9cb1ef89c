#include "engine/system/hash.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>

#include "engine/system/files.h"
#include "tests/support/message.h"

namespace orrery {
namespace {

std::string hash_of(std::string_view text) { return sha256(std::as_bytes(std::span(text.data(), text.size()))); }

}  // namespace

TEST_CASE("hash: the examples of FIPS 180-4") {
  CHECK(hash_of("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hash_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hash_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST_CASE("hash: a file has the hash of its bytes, also beyond one chunk; a folder is an error") {
  const std::string path = (std::filesystem::temp_directory_path() / text("orrery_hash_", ::getpid())).string();
  const std::string bytes((size_t{1} << 20) + 12345, 'x');
  write_file_atomically(path, bytes);
  CHECK(sha256_of_file(path) == hash_of(bytes));
  std::filesystem::remove(path);
  testing::expect_error([] { sha256_of_file("/"); }).names("read").names("/").value("folder").offers("regular files");
}

}  // namespace orrery
