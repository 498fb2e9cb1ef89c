// Training texts, prompts, and a tokenizer as a checkpoint stores it.
#include "models/data/text.h"

#include "models/data/tokenizer.h"
#include "models/formats/unicode.h"
#include "tests/fuzz/format.h"

namespace {

using namespace fuzz;
using namespace orrery::models;

void read_text(const std::string& folder, std::string_view bytes) {
  const std::string path = folder + "/text.txt";
  put(path, bytes);
  if (bytes.starts_with(byte_order_mark)) bytes.remove_prefix(byte_order_mark.size());
  const Text whole(path, *make_tokenizer("byte", path), 0.5);
  const auto size = static_cast<int64_t>(bytes.size());
  promise(whole.train().size() + whole.validation().size() == size, "bytes are lost");
  const auto tokenizer = make_tokenizer("character", path);
  const std::vector<int32_t> tokens = tokenizer->encode(bytes);
  promise(tokenizer->decode(tokens) == bytes, "decoding the tokens gives another text");
  promise(restore_tokenizer(tokenizer->save())->encode(bytes) == tokens, "a restored tokenizer gives other tokens");
}

REGISTER_FORMAT(text,
                {.name = "text",
                 .readers = {"models/data/text.cpp", "models/data/text_files.cpp", "models/data/tokenizer.cpp",
                             "models/data/tokenizers/character.cpp", "examples/orrery/commands/text_argument.cpp"},
                 .read = read_text,
                 .memory_multiple = 256,
                 .memory_base = 1 << 20,
                 .words = {"\xc3\xa9", "\xf0\x9f\x98\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\x80",
                           "\xef\xbb\xbf", "\xe2\x80\xa8", "\r\n", std::string(1, '\0')}});

// Reads the bytes as JSONL, CSV and TSV. They are refused if all three refuse them.
void read_documents(const std::string& folder, std::string_view bytes) {
  std::string error;
  bool accepted = false;
  for (const char* const ending : {".jsonl", ".csv", ".tsv"}) try {
      const std::string path = folder + "/text" + ending;
      put(path, bytes);
      const TextFiles files(path);
      const TextFiles::Fingerprints found = files.fingerprints();
      const Text whole(path, *make_tokenizer("byte", path), 0);
      const auto size = static_cast<int64_t>(found.text.bytes + found.division.bytes);  // a line break ends a document
      promise(whole.train().size() == size, "bytes of documents are lost");
      accepted = true;
    } catch (const orrery::Error& refused) {
      error = refused.what();
    }
  if (!accepted) throw orrery::Error(error);
}

REGISTER_FORMAT(documents, {.name = "documents",
                            .readers = {"models/data/texts/jsonl.cpp", "models/data/texts/csv.cpp",
                                        "models/formats/json_lines.cpp", "models/formats/csv.cpp"},
                            .read = read_documents,
                            .memory_multiple = 256,
                            .memory_base = 1 << 20,
                            .words = {"{\"text\":", "\"text\"", "\n", "\r\n", "\"\"", ",", "\t", "}", "[", "{\"a\":",
                                      "\\u00e9", "\\ud800", "NaN", "null", "\xef\xbb\xbf", "text,"}});

void read_tokenizer(const std::string&, std::string_view bytes) {
  const auto tokenizer = restore_tokenizer(std::string(bytes));
  promise(tokenizer->size() > 0, "a tokenizer without tokens");
  const std::string saved = tokenizer->save();
  promise(restore_tokenizer(saved)->save() == saved, "a saved tokenizer is restored differently");
  std::vector<int32_t> all;
  for (int32_t token = 0; token < std::min<int64_t>(tokenizer->size(), 300); ++token) all.push_back(token);
  if (tokenizer->name() == "character")
    promise(tokenizer->encode(tokenizer->decode(all)) == all, "encoding the decoded text gives other tokens");
}

REGISTER_FORMAT(tokenizer, {.name = "tokenizer",
                            .readers = {"models/data/tokenizer.cpp", "models/formats/json.cpp"},
                            .read = read_tokenizer,
                            .memory_multiple = 256,
                            .memory_base = 1 << 20,
                            .words = {"\"name\":", "\"characters\":", "\"character\"", "\"byte\"", "{", "}", "[", "]",
                                      "\\u0000", "\\ud83d\\ude00", "\\ud800", ",", ":", "null", "1", "{\"a\":", "[["}});

}  // namespace
