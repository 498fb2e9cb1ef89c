// Fingerprints of files of tokens. Above 1 GiB only a sample of their bytes is hashed, so that a run
// on any file starts at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/system/hash.h"

namespace orrery::models {

constexpr uint64_t max_hashed_whole = uint64_t{1} << 30;  // bytes

// The fingerprint of bytes that arrive in chunks. Above max_hashed_whole it hashes their number and
// 256 evenly spaced blocks of 1 MiB, the first and the last bytes included.
class TokenFingerprint {
 public:
  explicit TokenFingerprint(uint64_t bytes);  // as many as will arrive
  void add(std::span<const std::byte> chunk) {
    add_at(at_, chunk);
    at_ += chunk.size();
  }
  // Adds a chunk from offset `at`. Chunks are in order; those without hashed bytes may be left out.
  void add_at(uint64_t at, std::span<const std::byte> chunk);
  Fingerprint take() { return {bytes_, hash_.digits()}; }

  bool is_sample() const { return bytes_ > max_hashed_whole; }
  // Returns the offset of the first byte, from `at` on, that is hashed.
  uint64_t next_hashed(uint64_t at) const;

 private:
  uint64_t block_begin(uint64_t block) const;
  uint64_t bytes_, at_ = 0;
  Sha256 hash_;
};

struct TokenFileFingerprints {
  Fingerprint all;                 // of the files as one, unpacked
  bool is_sample = false;          // `all` hashes a sample
  std::vector<Fingerprint> files;  // of each; empty if that needed to read more than 2 GiB
};
// Reads the files, of which the sample of a packed one is all bytes. Calls `unpacked` with the index of
// a file and its bytes so far.
TokenFileFingerprints fingerprints_of_token_files(std::span<const std::string> files,
                                                  const std::function<void(size_t file, uint64_t bytes)>& unpacked);

// Returns the sentence that a run prints about data of which a sample is hashed.
std::string note_about_sample(const std::string& path, uint64_t bytes);

}  // namespace orrery::models
