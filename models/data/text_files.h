// Text files, read in chunks.
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
#include "models/data/text_format.h"

namespace orrery::models {

// Throws Error if the file, or the file that a link leads to, is named like a file of tokens.
void check_is_text(const std::string& file);

// The documents of a file, or of the files below a folder, each in its own format.
class TextFiles {
 public:
  // Throws Error if a file cannot be read or is named like tokens, or if there is no text.
  explicit TextFiles(const TextSource& source);
  const std::string& path() const { return source_.path(); }  // as it was given
  const std::vector<std::string>& files() const { return source_.files(); }
  uint64_t bytes() const { return bytes_; }  // of all files as stored
  std::vector<std::string> notes() const;    // about files that are left out, except hidden ones
  bool has_many_documents() const { return many_documents_; }  // in a file; else one in each
  // Returns a number of bytes that the text has, at least. Known without reading only of plain text.
  uint64_t min_text_bytes() const { return has_many_documents() ? 0 : bytes_; }
  void each_document(const std::string& file, const TakeDocuments& take) const {
    format_of(file).read_documents(file, source_.field(), take);
  }

  // Passes a file, unpacked if gzip packed it, to `take` in chunks of at most `chunk_size` bytes
  // that split no character, each with the number of bytes before it. Drops a byte order mark at the
  // start of the file, which counts as bytes before the first chunk.
  using Take = std::function<void(std::string_view chunk, uint64_t before)>;
  static constexpr size_t chunk_size = size_t{1} << 20;
  static void each_chunk(const std::string& file, const Take& take);
  // Like the above, for another source, in chunks of at most `room` bytes. `read` fills all bytes
  // that it is given, except at the end of the source, and returns their number.
  using Read = std::function<size_t(std::span<std::byte> bytes)>;
  static void each_chunk(const std::string& name, const Read& read, size_t room, const Take& take);
  // Passes a text in such chunks.
  static void each_chunk_of(std::string_view text, const Take& take);
  struct Fingerprints {
    Fingerprint text;                // of the concatenated documents
    std::vector<Fingerprint> files;  // of each, if there are several
    Fingerprint division;            // of the end offset of each document; empty for one file that is a document
  };
  Fingerprints fingerprints() const;

 private:
  const TextFormat& format_of(const std::string& file) const {
    return document_format_of({file, source_.field()});
  }
  TextPath source_;
  bool many_documents_;
  uint64_t bytes_ = 0;
};

// A text in chunks, from memory or from files, on which tokenizers are trained.
class TextChunks {
 public:
  TextChunks(const char* text) : TextChunks(std::string_view(text)) {}
  TextChunks(const std::string& text) : TextChunks(std::string_view(text)) {}
  TextChunks(std::string_view text) {
    each_ = [text](const TextFiles::Take& take) { take(text, 0); };
  }
  explicit TextChunks(std::function<std::string()> text)  // called when the text is read
      : each_([text = std::move(text)](const TextFiles::Take& take) { take(text(), 0); }) {}
  // Files must outlive this; errors about their contents name the file. If a file has many documents,
  // a line break follows each.
  TextChunks(const TextFiles& files);
  void each(const TextFiles::Take& take) const { each_(take); }

 private:
  std::function<void(const TextFiles::Take&)> each_;
};

}  // namespace orrery::models
