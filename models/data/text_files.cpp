#include "models/data/text_files.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include "engine/system/files.h"
#include "engine/system/machine_memory.h"
#include "engine/types/check.h"
#include "models/data/data_format.h"
#include "models/formats/gzip.h"
#include "models/formats/unicode.h"

namespace orrery::models {
namespace {

// Returns the file, or the file that a link leads to, if it is named like token files, else "".
std::string file_of_tokens(const std::string& file) {
  std::error_code none;
  for (const std::string& name : {file, std::filesystem::canonical(file, none).string()})
    if (ends_with_or_packed(name, ".bin")) return name;
  return "";
}

}  // namespace

void check_is_text(const std::string& file) {
  const std::string tokens = file_of_tokens(file);
  check(tokens.empty(), "text: ", tokens, " is named like a file of tokens, not of text; give a file of text");
}

TextFiles::TextFiles(const TextSource& source)
    : source_(source), many_documents_(models::has_many_documents(source_)) {
  const std::string& path = source_.path();
  const bool folder = source_.is_folder();
  if (files().empty())
    fail_unknown_format("text", text("text: ", path, " is a folder without ", source_.left_out().empty() ? "" : "text ",
                                     "files; give a text file or a folder of them"));
  for (const std::string& file : files()) {
    const std::string tokens = file_of_tokens(file);
    check(tokens.empty(), "text: ", tokens,
          " is named like a file of tokens, not of text; give it alone, --data=", tokens,
          folder ? ", or remove it from the folder" : "");
  }
  for (const std::string& file : files()) bytes_ += FileReader(file).size();
  check(bytes_ > 0, "text: ", path, folder ? " has only empty files" : " is empty");
  check(source.field.empty() || source.field == TextSource("").field || has_many_documents(), "text: --text_field=",
        source.field, " has no effect: no file of ", path, " has fields or columns; leave it out");
}

std::vector<std::string> TextFiles::notes() const {
  const FileCount& left_out = source_.left_out();
  if (left_out.empty()) return {};
  return {text(left_out.print(path(), "is", "are"), " left out, and ", files().size(),
               files().size() == 1 ? " is" : " are",
               " read; backups, images and files compressed by another program than gzip are not read as text")};
}

void TextFiles::each_chunk(const std::string& file, const Take& take) {
  check_is_text(file);
  DataReader reader(file);
  constexpr uint64_t room = 8;  // more than a character
  each_chunk(
      file, [&](std::span<std::byte> bytes) { return reader.read_up_to(bytes); },
      reader.packed() ? chunk_size : std::min<uint64_t>(chunk_size, reader.size() + room), take);
}

void TextFiles::each_chunk(const std::string& name, const Read& read, size_t room, const Take& take) {
  std::string buffer(room, '\0');
  uint64_t before = 0;
  for (size_t kept = 0;;) {
    const size_t got = read(std::as_writable_bytes(std::span(buffer).subspan(kept)));
    const std::string_view here = std::string_view(buffer).substr(0, kept + got);
    if (before > 0) check_memory("text: " + name, 8 * chunk_size, "use a shorter text");  // for data made from a chunk
    const size_t end = got == 0 ? here.size() : end_of_characters(here);
    const size_t mark = before == 0 && here.starts_with(byte_order_mark) ? byte_order_mark.size() : 0;
    if (end > mark) take(here.substr(mark, end - mark), before + mark);
    before += end, kept = here.size() - end;
    if (got == 0) return;
    buffer.replace(0, kept, buffer, end, kept);
  }
}

void TextFiles::each_chunk_of(std::string_view text, const Take& take) {
  for (uint64_t before = 0; !text.empty();) {
    const size_t size = text.size() <= chunk_size ? text.size() : end_of_characters(text.substr(0, chunk_size));
    take(text.substr(0, size), before);
    before += size, text.remove_prefix(size);
  }
}

TextFiles::Fingerprints TextFiles::fingerprints() const {
  Fingerprints all;
  Sha256 text, ends;
  uint64_t documents = 0;
  const bool several = files().size() > 1;
  for (const std::string& file : files()) {
    Sha256 own;
    const uint64_t before = all.text.bytes;
    each_document(file, {.text =
                             [&](std::string_view chunk, uint64_t) {
                               text.add(std::as_bytes(std::span(chunk)));
                               if (several) own.add(std::as_bytes(std::span(chunk)));
                               all.text.bytes += chunk.size();
                             },
                         .end =
                             [&] {
                               ends.add(std::as_bytes(std::span(&all.text.bytes, 1)));
                               ++documents;
                             },
                         .read = [](uint64_t) {}});
    if (several) all.files.push_back({all.text.bytes - before, own.digits()});
  }
  all.text.sha256 = text.digits();
  if (has_many_documents()) ends.add(std::as_bytes(std::span("\n")));  // a line break may follow each
  if (several || has_many_documents()) all.division = {documents, ends.digits()};
  return all;
}

TextChunks::TextChunks(const TextFiles& files) {
  each_ = [&files](const TextFiles::Take& take) {
    for (const std::string& file : files.files())
      files.each_document(file, {.text =
                                     [&](std::string_view chunk, uint64_t before) {
                                       try {
                                         take(chunk, before);
                                       } catch (const Error& error) {
                                         const std::string why = text("text: ", file, ": ", error.what());
                                         fail_if_binary("text", file, why, error);
                                         fail(why);
                                       }
                                     },
                                 .end =
                                     [&] {
                                       if (files.has_many_documents()) take("\n", 0);
                                     },
                                 .read = [](uint64_t) {}});
  };
}

}  // namespace orrery::models
