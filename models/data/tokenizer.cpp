#include "models/data/tokenizer.h"

#include <nlohmann/json.hpp>

#include "engine/base/check.h"
#include "engine/base/files.h"
#include "models/json.h"

namespace orrery::models {

Registry<TokenizerEntry>& tokenizers() {
  static Registry<TokenizerEntry> all("tokenizer");
  return all;
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name_or_path, const std::string& data) {
  if (const TokenizerEntry* const named = tokenizers().find(name_or_path); named && named->make) {
    const std::string text = read_file(data);
    try {
      return named->make(text);
    } catch (const Error& error) {
      fail("text: ", data, ": ", error.what());
    }
  }
  std::vector<std::string> names;
  for (const auto& [name, entry] : tokenizers()) {
    if (entry.reads && file_exists(name_or_path) && entry.reads(name_or_path)) return entry.read(name_or_path);
    if (entry.make) names.push_back(name);
  }
  check(!file_exists(name_or_path), "tokenizer: ", name_or_path,
        " is none that is known; a folder needs vocab.json and merges.txt, or tokenizer.json");
  const std::string meant = nearest(name_or_path, names);
  fail("tokenizer: '", name_or_path, "' is neither a name nor a file or folder; ",
       meant.empty() ? "" : "did you mean '" + meant + "'? ", "there are ", join(names),
       ", and what was made elsewhere by its path");
}

std::unique_ptr<Tokenizer> restore_tokenizer(const std::string& json) {
  return tokenizers()
      .at(text_member(parse_json(json, unreadable_tokenizer), "name", unreadable_tokenizer))
      .restore(json);
}

void check_token(int32_t token, int64_t size) {
  check(token >= 0 && token < size, "tokenizer: ", token, " is no token; there are 0 to ", size - 1);
}

}  // namespace orrery::models
