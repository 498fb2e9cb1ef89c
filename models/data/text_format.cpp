#include "models/data/text_format.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/system/files.h"
#include "engine/system/folders.h"
#include "engine/types/ascii.h"
#include "engine/types/check.h"
#include "models/data/data_format.h"
#include "models/data/tokenizer.h"
#include "models/formats/gzip.h"

namespace orrery::models {
namespace {

// Returns the ending of a file in a folder that is not read as text; else "".
std::string ending_of_other_files(const std::string& file) {
  static constexpr std::string_view endings[] = {"~",     ".bak",  ".png", ".jpg", ".jpeg", ".gif",    ".bmp",
                                                 ".tif",  ".tiff", ".webp", ".ico", ".tgz",  ".tar.gz", ".bz2",
                                                 ".xz",   ".zst",  ".lz4",  ".7z",  ".zip",  ".rar"};
  const std::string name = lower_case(file);
  const auto found = std::ranges::find_if(endings, [&](std::string_view ending) { return name.ends_with(ending); });
  return found == std::end(endings) ? "" : std::string(*found);
}

// Returns the first format that accepts, with those of any content last; null if none does.
template <class Accepts>
const TextFormat* first_format(const Accepts& accepts) {
  for (const bool of_any : {false, true})
    for (const auto& [name, format] : text_formats())
      if (format.of_any_content == of_any && accepts(format)) return &format;
  return nullptr;
}

}  // namespace

TextPath::TextPath(TextSource source) : source_(std::move(source)), is_folder_(folder_exists(source_.path)) {}

const std::vector<std::string>& TextPath::files() const {
  if (std::exchange(listed_, true)) return files_;
  if (!is_folder_) return files_ = {path()};
  for (const std::string& file : files_below(path()))
    if (const std::string ending = ending_of_other_files(file); !ending.empty())
      left_out_.add(ending, file);
    else
      files_.push_back(file);
  return files_;
}

Registry<TextFormat>& text_formats() {
  static Registry<TextFormat> all("data");
  return all;
}
bool add_text_format(const TextFormat& format) {
  text_formats().add(format);
  data_formats().add({format.name, format.description, "text"});
  return true;
}

const TextFormat* token_format_of(const TextPath& path) {
  return first_format([&](const TextFormat& format) { return format.read_tokens && format.reads(path); });
}
const TextFormat& document_format_of(const TextSource& file) {
  const TextPath path(file);
  const TextFormat* const found =
      first_format([&](const TextFormat& format) { return format.read_documents && format.reads(path); });
  if (!found) fail_unknown_format("text", text("text: ", path.path(), " has no known format"));
  return *found;
}

bool has_many_documents(const TextPath& path) {
  return std::ranges::any_of(path.files(), [&](const std::string& file) {
    return document_format_of({file, path.field()}).many_documents;
  });
}

TokenLayout token_layout(const std::string& file, std::span<const std::byte> begin) {
  std::optional<TokenLayout> found;
  first_format([&](const TextFormat& format) {
    if (format.layout) found = format.layout(file, begin);
    return found.has_value();
  });
  if (!found) fail_unknown_format("text", text("tokens: ", file, " has no known format"));
  return *found;
}

std::unique_ptr<Tokenizer> tokenizer_of_tokens(const std::string& path) {
  const TextFormat* const format = token_format_of(TextPath(path));
  return format && format->tokenizer ? format->tokenizer(path) : nullptr;
}
bool has_tokens(const std::string& path) { return token_format_of(TextPath(path)) != nullptr; }

}  // namespace orrery::models
