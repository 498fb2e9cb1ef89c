// The tokenizers of tests/cases, and functions to encode texts with them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/system/files.h"
#include "models/data/tokenizer.h"
#include "tests/support/folder.h"

namespace orrery::testing::tokenizer_cases {

using models::make_tokenizer;
using models::Tokenizer;

using Tokens = std::vector<int32_t>;
inline const std::string cases = ORRERY_SOURCE_DIR "/tests/cases/";

inline std::unique_ptr<Tokenizer> tokenizer_of(const std::string& path) { return make_tokenizer(path, ""); }
inline std::string notes_of(const Tokenizer& tokenizer) { return join(tokenizer.notes()); }

// Returns a copy of a case's folder with one file replaced.
inline std::string with_file(const Folder& folder, const std::string& name, const std::string& file,
                             const std::string& content) {
  const std::string copy = folder / name;
  if (!file_exists(copy)) std::filesystem::copy(cases + name, copy);
  write_file_atomically(copy + "/" + file, content);
  return copy;
}

// Returns the tokens of a text that arrives in chunks of `chunk_size` bytes.
inline Tokens divided(const Tokenizer& tokenizer, const std::string& text, size_t chunk_size) {
  Tokens all;
  std::string waiting;
  for (size_t at = 0; at < text.size(); at += chunk_size) {
    waiting += text.substr(at, chunk_size);
    Tokens some;
    waiting.erase(0, tokenizer.encode_beginning(waiting, some));
    all.insert(all.end(), some.begin(), some.end());
  }
  const Tokens rest = tokenizer.encode(waiting);
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

}  // namespace orrery::testing::tokenizer_cases
