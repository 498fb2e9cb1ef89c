// A sequence of tokens, in memory or in a file of 16- or 32-bit numbers that is read on demand.
//
// Token files are nanoGPT's, only 16-bit numbers, or llm.c's, with a header of 256 32-bit numbers:
//   20240520, 1, how many tokens, 0 ...      then 16-bit numbers
//   20240801, 7, how many tokens, 0 ...      then 32-bit numbers
// All are little-endian. A .gz file is one of them, packed by gzip; its tokens are in memory.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/system/files.h"
#include "engine/system/hash.h"
#include "models/data/text_format.h"

namespace orrery::models {

using TokenHeader = std::array<int32_t, 256>;
struct LlmCVersion {  // of llm.c's files
  int32_t magic, version;
  int64_t width;  // bytes per token
};
constexpr LlmCVersion llm_c_16_bit = {20240520, 1, 2}, llm_c_32_bit = {20240801, 7, 4};

class TokenSequence {
 public:
  TokenSequence() : TokenSequence(std::vector<int32_t>()) {}
  TokenSequence(std::vector<int32_t> tokens);
  // Throws Error on a size unlike the header's, or a number beyond the vocabulary, with its index.
  // `unread`: `read` checks the numbers of a file that is not packed, because reading all takes long.
  static TokenSequence from_file(const std::string& path, int64_t vocabulary, bool unread = false);
  static TokenSequence joined(std::span<const TokenSequence> files);  // whole sequences, one after another, not copied

  int64_t size() const { return end_ - begin_; }
  void read(int64_t at, std::span<int32_t> to) const;  // reads tokens [at, at + to.size()), which must exist
  TokenSequence slice(int64_t begin, int64_t end) const;  // tokens [begin, end), which must exist
  std::vector<int32_t> to_vector() const;                 // all tokens, in memory
  int64_t bytes_in_memory() const;                        // 0 for tokens in a file

  // Numbers of characters of the text that the tokens were made of. by_token: one number per token,
  // known from encoding. of_targets: one number for all tokens except the first, as a file's
  // description records it; a slice loses it.
  TokenSequence with_characters(const TokenSequence& by_token) const;
  TokenSequence with_characters_recorded(std::optional<int64_t> of_targets) const;
  bool has_characters() const { return characters_ != nullptr; }
  void read_characters(int64_t at, std::span<int32_t> to) const;  // like read; needs has_characters()
  std::optional<int64_t> characters_recorded() const { return recorded_; }

 private:
  struct Source;
  struct MemorySource;
  struct FileSource;
  struct JoinedSource;
  friend class TokenSpool;
  explicit TokenSequence(std::shared_ptr<const Source> source);
  std::shared_ptr<const Source> source_, characters_;  // characters_: null if unknown
  std::optional<int64_t> recorded_;
  int64_t begin_ = 0, end_ = 0;
};

// Tokens being made, maybe too many for memory, in an unlinked file that ends with its last user.
class TokenSpool {
 public:
  explicit TokenSpool(const std::string& folder);  // throws Error if it cannot write there
  ~TokenSpool();
  void add(std::span<const int32_t> tokens);
  int64_t size() const { return count_; }
  TokenSequence sequence() const;  // the tokens added so far

 private:
  std::unique_ptr<FileAppender> file_;
  std::shared_ptr<const FileReader> reader_;
  int64_t count_ = 0;
};

TokenLayout layout_of_token_file(const std::string& path);

// Writes a file as above: 16-bit (nanoGPT's) if the vocabulary fits, else 32-bit (llm.c's).
void write_token_file(const std::string& path, const TokenSequence& tokens, int64_t vocabulary);
struct TokenFileHashes {
  Fingerprint whole;
  Fingerprint sample;  // models/data/token_fingerprint.h; equals `whole` up to 1 GiB
};
TokenFileHashes hashes_of_token_file(const TokenSequence& tokens, int64_t vocabulary);  // of the file to be written

}  // namespace orrery::models
