// The files of a text, read in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/system/hash.h"

namespace orrery::models {

// One file, or all of a folder and of the folders in it, by name; hidden ones are left out.
class TextFiles {
 public:
  // Errors: what cannot be read, a folder without files, a file without bytes.
  explicit TextFiles(const std::string& path);
  const std::string& path() const { return path_; }  // as it was given
  const std::vector<std::string>& files() const { return files_; }
  uint64_t bytes() const { return bytes_; }  // of all files, as they lie there

  // A file, unpacked if gzip has packed it, in pieces of at most `piece_size` bytes that break no character in two,
  // each with how many came before.
  using Take = std::function<void(std::string_view piece, uint64_t before)>;
  static constexpr size_t piece_size = size_t{1} << 20;
  static void each_piece(const std::string& file, const Take& take);
  // The same of what is no file: `read` gives fewer bytes than there is room for only at the end.
  using Read = std::function<size_t(std::span<std::byte> bytes)>;
  static void each_piece(const std::string& name, const Read& read, size_t room, const Take& take);
  struct Prints {
    Fingerprint text;      // of the files, one after the other
    Fingerprint division;  // of where each of several ends; empty: it is one
  };
  Prints fingerprints() const;

 private:
  std::string path_;
  std::vector<std::string> files_;
  uint64_t bytes_ = 0;
};

// A text that comes in pieces, whatever it lies in: what tokenizers make a vocabulary of.
class TextPieces {
 public:
  TextPieces(const char* text) : TextPieces(std::string_view(text)) {}
  TextPieces(const std::string& text) : TextPieces(std::string_view(text)) {}
  TextPieces(std::string_view text) {
    each_ = [text](const TextFiles::Take& take) { take(text, 0); };
  }
  explicit TextPieces(std::function<std::string()> text)  // which is asked for when it is read
      : each_([text = std::move(text)](const TextFiles::Take& take) { take(text(), 0); }) {}
  TextPieces(const TextFiles& files);  // which outlive it; an Error about what they hold says in which
  void each(const TextFiles::Take& take) const { each_(take); }

 private:
  std::function<void(const TextFiles::Take&)> each_;
};

}  // namespace orrery::models
