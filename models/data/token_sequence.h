// Tokens in a row, in memory or in a file of 16- or 32-bit numbers, of which only what is asked for is read.
//
// Two kinds of files hold tokens: nanoGPT's, nothing but 16-bit numbers; and llm.c's, 256 32-bit numbers before them:
//   20240520, 1, how many tokens, 0 ...      then 16-bit numbers
//   20240801, 7, how many tokens, 0 ...      then 32-bit numbers
// All are little-endian.  A file whose name ends in .gz holds one of them, packed by gzip.  Its tokens are in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/system/files.h"
#include "engine/system/hash.h"

namespace orrery::models {

class TokenSequence {
 public:
  TokenSequence() : TokenSequence(std::vector<int32_t>()) {}
  TokenSequence(std::vector<int32_t> tokens);
  // Errors: a size that is not what the header says, a number that is no token of a vocabulary of that size, and where.
  static TokenSequence in_file(const std::string& path, int64_t vocabulary);

  int64_t size() const { return end_ - begin_; }
  void read(int64_t at, std::span<int32_t> to) const;  // the tokens from place `at` on; they must be there
  TokenSequence part(int64_t begin, int64_t end) const;
  std::vector<int32_t> to_vector() const;
  int64_t bytes_in_memory() const;

 private:
  struct Source;
  struct Memory;
  struct File;
  friend class TokenSpool;
  explicit TokenSequence(std::shared_ptr<const Source> source);
  std::shared_ptr<const Source> source_;
  int64_t begin_ = 0, end_ = 0;
};

// Tokens on their way, more than memory may hold: they lie in a file without a name, which is gone with its last user.
class TokenSpool {
 public:
  explicit TokenSpool(const std::string& folder);
  ~TokenSpool();
  void add(std::span<const int32_t> tokens);
  int64_t size() const { return count_; }
  TokenSequence sequence() const;  // of what was added so far

 private:
  std::unique_ptr<FileAppender> file_;
  std::shared_ptr<const FileReader> reader_;
  int64_t count_ = 0;
};

// A file as above, of 16-bit numbers (nanoGPT's form) where the vocabulary allows, else of 32-bit ones.
void write_token_file(const std::string& path, const TokenSequence& tokens, int64_t vocabulary);
Fingerprint fingerprint_of_token_file(const TokenSequence& tokens, int64_t vocabulary);  // of what would be written

}  // namespace orrery::models
