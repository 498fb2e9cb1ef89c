// Formats of texts, documents or tokens, which --data accepts; each is one file in models/data/texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/settings/registry.h"
#include "models/data/file_count.h"

namespace orrery::models {

class Tokenizer;
struct PreparedTokens;

// A file or folder, as a user gives it.
struct TextSource {
  TextSource(std::string where, std::string field_of_text = "text")
      : path(std::move(where)), field(std::move(field_of_text)) {}
  TextSource(const char* where) : TextSource(std::string(where)) {}
  std::string path;
  std::string field;  // the field or column that holds the text, in formats with such; empty: files are plain text
};

// A source with its files, which are listed once, when a format first needs them.
class TextPath {
 public:
  explicit TextPath(TextSource source);
  const std::string& path() const { return source_.path; }
  const std::string& field() const { return source_.field; }
  bool is_folder() const { return is_folder_; }
  // Returns the path, or the files below it, by name: 1.txt, 10.txt, 2.txt. Hidden files, backups,
  // images and files that another program than gzip compressed are left out.
  const std::vector<std::string>& files() const;
  const FileCount& left_out() const { return files(), left_out_; }  // except hidden ones

 private:
  TextSource source_;
  bool is_folder_;
  mutable bool listed_ = false;
  mutable std::vector<std::string> files_;
  mutable FileCount left_out_;
};

// Takes the documents of a file, one after another; all functions are set.
struct TakeDocuments {
  std::function<void(std::string_view chunk, uint64_t before)> text;  // `before`: bytes of the same document
  std::function<void()> end;                                          // the document has ended
  std::function<void(uint64_t bytes)> read;                           // more bytes of the unpacked file
};

// The numbers of a file of tokens.
struct TokenLayout {
  const char* format;                  // its name
  int64_t width = sizeof(uint16_t);    // bytes per token
  int64_t first = 0;                   // offset of the first token
  std::optional<int64_t> count = {};   // from a header
};

// A format of documents, which a tokenizer encodes, of tokens, or of one file of tokens.
struct TextFormat {
  std::string name, description;
  bool (*reads)(const TextPath& path) = nullptr;  // whether the path, or one file of documents, has this format
  // Passes the documents of one file, unpacked if gzip packed it, in chunks that split no character.
  void (*read_documents)(const std::string& file, const std::string& field, const TakeDocuments& take) = nullptr;
  bool many_documents = false;  // in a file; else a file is a document
  // Throws Error if a file is damaged, missing, not as described, or has an invalid token.
  PreparedTokens (*read_tokens)(const std::string& path, int64_t vocabulary) = nullptr;
  // Returns the tokenizer that comes with the tokens, or null.
  std::unique_ptr<Tokenizer> (*tokenizer)(const std::string& path) = nullptr;
  // Returns the layout of a file of tokens that begins with these bytes; nothing if it has another.
  std::optional<TokenLayout> (*layout)(const std::string& file, std::span<const std::byte> begin) = nullptr;
  bool of_any_content = false;  // tried after the others
};
Registry<TextFormat>& text_formats();
bool add_text_format(const TextFormat& format);  // also to the catalogue of data
#define REGISTER_TEXT_FORMAT(id, ...) \
  [[maybe_unused]] static const bool registered_text_format_##id = add_text_format(__VA_ARGS__)

// Each of these throws Error, with all formats, if it must return one and none accepts.
const TextFormat* token_format_of(const TextPath& path);  // null: the path has documents
const TextFormat& document_format_of(const TextSource& file);
TokenLayout token_layout(const std::string& file, std::span<const std::byte> begin);
// Returns true if a file has fields or columns, which hold many documents. Each file has its own format.
bool has_many_documents(const TextPath& path);

// Returns the tokenizer that comes with tokens; null if there is none, or if the path has documents.
std::unique_ptr<Tokenizer> tokenizer_of_tokens(const std::string& path);
bool has_tokens(const std::string& path);

}  // namespace orrery::models
