// Shards of tokens: part_000.bin, part_001.bin, ..., which are read as one file.
#include <algorithm>
#include <filesystem>
#include <tuple>

#include "engine/system/files.h"
#include "engine/system/folders.h"
#include "engine/types/ascii.h"
#include "engine/types/check.h"
#include "engine/types/format.h"
#include "models/data/prepared.h"
#include "models/data/text_format.h"
#include "models/data/token_fingerprint.h"
#include "models/data/token_sequence.h"
#include "models/formats/gzip.h"

namespace orrery::models {
namespace {

struct Shard {
  std::string name, digits;  // fineweb_train_, 000001; without leading zeros
  std::string file;
  // In the order of the numbers, also where their lengths differ: part_2 is before part_10.
  auto order() const { return std::tuple(name, digits.size(), digits); }
  double number() const { return std::stod(digits); }
  bool is_validation() const {  // a word of the name is val, as in fineweb_val_000.bin
    std::string word;
    for (const char c : lower_case(name) + "_") {
      if (is_letter(c)) {
        word += c;
        continue;
      }
      if (word == "val" || word == "valid" || word == "validation") return true;
      word.clear();
    }
    return false;
  }
};

bool is_token_file(const std::string& file) {
  return ends_with_or_packed(file, ".bin") && !is_hidden(file) && !folder_exists(file);
}

// Returns the shard of a file; without digits, if its name does not end with a number.
Shard shard_of(const std::string& file) {
  std::string name = std::filesystem::path(file).filename().string();
  name.erase(lower_case(name).rfind(".bin"));
  const size_t digits = name.find_last_not_of("0123456789") + 1;  // npos + 1 is 0
  Shard shard{name.substr(0, digits), name.substr(digits), file};
  shard.digits.erase(0, std::min(shard.digits.find_first_not_of('0'), std::max<size_t>(shard.digits.size(), 1) - 1));
  return shard;
}

std::vector<Shard> shards_in(const std::string& folder) {
  std::vector<Shard> all;
  for (const std::string& file : files_in(folder))
    if (is_token_file(file)) all.push_back(shard_of(file));
  std::stable_sort(all.begin(), all.end(), [](const Shard& a, const Shard& b) { return a.order() < b.order(); });
  return all;
}

bool reads(const TextPath& path) {
  if (!path.is_folder() || is_prepared(path.path())) return false;
  const std::vector<Shard> all = shards_in(path.path());
  return std::any_of(all.begin(), all.end(), [](const Shard& shard) { return !shard.digits.empty(); });
}

void check_shards(const std::vector<Shard>& all) {
  const TokenLayout first = layout_of_token_file(all[0].file);
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string& file = all[i].file;
    check(!all[i].digits.empty(), "tokens: ", file,
          " is not a shard, whose name ends with a number, like part_000.bin; give it alone, or remove it from the "
          "folder");
    check(i == 0 || all[i - 1].order() != all[i].order(), "tokens: ", file, " has the same number as another shard, ",
          all[i == 0 ? 0 : i - 1].file, "; remove one");
    const TokenLayout layout = layout_of_token_file(file);
    const auto described = [](const TokenLayout& one) { return text(8 * one.width, " bits (", one.format, ")"); };
    check(described(layout) == described(first), "tokens: ", file, " has tokens of ", described(layout), ", but ",
          all[0].file, " has tokens of ", described(first), "; shards must be of one format and one vocabulary");
  }
}

PreparedTokens read_shards(const std::string& folder, int64_t vocabulary) {
  std::vector<Shard> all = shards_in(folder);
  check_shards(all);
  const auto held_out =
      std::stable_partition(all.begin(), all.end(), [](const Shard& shard) { return !shard.is_validation(); });
  const auto trained = static_cast<size_t>(held_out - all.begin());
  std::vector<std::string> files;
  uint64_t bytes = 0;
  for (const Shard& shard : all) files.push_back(shard.file), bytes += FileReader(shard.file).size();
  std::vector<TokenSequence> tokens;
  for (const std::string& file : files)
    tokens.push_back(TokenSequence::from_file(file, vocabulary, bytes > max_hashed_whole));
  const TokenFileFingerprints found = fingerprints_of_token_files(files, [](size_t, uint64_t) {});
  PreparedTokens prepared;
  prepared.fingerprint = found.all;
  if (found.is_sample) prepared.notes.push_back(note_about_sample(folder, found.all.bytes));
  int64_t begin = 0;
  for (size_t i = 0; i < tokens.size(); begin += tokens[i++].size())
    if (!found.files.empty() && files.size() > 1)
      prepared.parts.push_back({found.files[i], begin, begin + tokens[i].size(), 0, tokens[i].size()});
  for (size_t i = 1; i < all.size(); ++i)
    if (all[i - 1].name == all[i].name && all[i].number() > all[i - 1].number() + 1)
      prepared.notes.push_back(text(folder, ": no shard has a number between those of ", all[i - 1].file, " and ",
                                    all[i].file));
    else if (all[i - 1].name != all[i].name && i != trained)
      prepared.notes.push_back(text(folder, ": the shards up to ", all[i - 1].file, " are followed by those from ",
                                    all[i].file, " on, which have another name"));
  // A folder of nothing but validation shards is read as it is.
  const std::span<const TokenSequence> every(tokens);
  prepared.train = TokenSequence::joined(trained > 0 ? every.first(trained) : every);
  if (trained > 0 && trained < tokens.size()) prepared.validation = TokenSequence::joined(every.subspan(trained));
  // Adds the fingerprint that one file of all training tokens has, which is the same data.
  if (trained > 1 && trained < tokens.size()) {
    const std::span<const std::string> some = std::span(files).first(trained);
    const int64_t size = prepared.train.size();
    prepared.parts.push_back({fingerprints_of_token_files(some, [](size_t, uint64_t) {}).all, 0, size, 0, size});
  }
  return prepared;
}

REGISTER_TEXT_FORMAT(token_shards, {.name = "token_shards",
                                    .description = "a folder of shards of tokens, NAME_000.bin, NAME_001.bin, ..., of "
                                                   "nanoGPT or llm.c, read as one; those named val are for validation; "
                                                   "requires --tokenizer",
                                    .reads = reads,
                                    .read_tokens = read_shards});

}  // namespace
}  // namespace orrery::models
