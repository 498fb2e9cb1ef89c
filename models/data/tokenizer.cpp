#include "models/data/tokenizer.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/system/files.h"
#include "engine/system/machine_memory.h"
#include "engine/types/check.h"
#include "engine/types/format.h"
#include "models/data/text_ends.h"
#include "models/formats/json.h"

namespace orrery::models {

Registry<TokenizerEntry>& tokenizers() {
  static Registry<TokenizerEntry> all("tokenizer");
  return all;
}

namespace {

const TokenizerEntry* named_by(const std::string& name_or_path) {
  return tokenizers().find(name_or_path.substr(0, name_or_path.find('(')));
}

// Calls `text` only if a vocabulary is made from it.
std::unique_ptr<Tokenizer> make_of(const std::string& name_or_path, const std::function<TextChunks()>& text,
                                   const TokenizerProgress& progress) {
  const TokenizerEntry* const named = named_by(name_or_path);
  if (named && named->train) return named->train(text(), parse_spec(name_or_path), progress);
  if (named && named->make) {
    check(name_or_path == named->name, "tokenizer: ", named->name, " has no settings, but is given as ", name_or_path,
          "; use tokenizer=", named->name);
    return named->make(text());
  }
  std::vector<std::string> names, notes;  // notes: why its other files were not used
  for (const auto& [name, entry] : tokenizers()) {
    if (entry.make || entry.train) names.push_back(name);
    if (!entry.reads || !file_exists(name_or_path) || !entry.reads(name_or_path)) continue;
    try {
      auto tokenizer = with_overrides(entry.read(name_or_path), {.notes = notes});
      return folder_exists(name_or_path) ? with_text_ends(std::move(tokenizer), name_or_path) : std::move(tokenizer);
    } catch (const TokenizerNotSupported& error) {
      notes.emplace_back(error.what());
    }
  }
  if (!notes.empty()) throw TokenizerNotSupported(join(notes, "; "));
  check(!file_exists(name_or_path), "tokenizer: ", name_or_path,
        " is not a supported tokenizer; a folder must have vocab.json and merges.txt, tokenizer.json, or one .model "
        "file");
  const std::string meant = nearest(name_or_path, names);
  fail("tokenizer: '", name_or_path, "' is neither a name nor a file or folder; ",
       meant.empty() ? "" : "did you mean '" + meant + "'? ", "names are ", join(names),
       "; any other tokenizer is given by its path");
}

constexpr const char *begin_key = "begin_token", *end_key = "end_token", *begins_key = "begins_texts",
                     *ends_key = "ends", *vocabulary_key = "vocabulary";

// Moves the members of a TokenizerOverrides out of what a tokenizer saved.
Json take_overrides(Json& saved) {
  Json overrides = Json::object();
  for (const char* const key : {begin_key, end_key, begins_key, ends_key, vocabulary_key}) {
    if (!saved.contains(key)) continue;
    overrides[key] = saved[key];
    saved.erase(key);
  }
  return overrides;
}

// Removes which added tokens are ordinary text: it changes no tokens, and older versions did not
// save it.
void erase_ordinary(Json& saved) {
  saved.erase("ordinary");
  if (!saved.contains("added")) return;
  for (Json& each : saved["added"])
    if (each.is_object()) each.erase("ordinary");
}

Fingerprint fingerprint_of_saved(const std::string& saved) {
  return {saved.size(), sha256(std::as_bytes(std::span(saved)))};
}

// Returns true if a token that is added around a text may also be in the text, such as <unk>.
bool may_be_text(const Tokenizer& tokenizer) {
  const auto may_be = [&](const std::optional<int32_t>& token) { return token && !tokenizer.is_mark(*token); };
  return may_be(tokenizer.end_of_text()) || (tokenizer.begins_texts() && may_be(tokenizer.begin()));
}

class OverriddenTokenizer final : public Tokenizer {
 public:
  OverriddenTokenizer(std::unique_ptr<Tokenizer> tokenizer, TokenizerOverrides overrides)
      : inner_(std::move(tokenizer)), overrides_(std::move(overrides)) {
    for (const auto& mark : {overrides_.begin, overrides_.end})
      if (mark) check_token(*mark, size());
    for (const int32_t end : overrides_.ends.value_or(std::vector<int32_t>())) check_token(end, size());
  }
  std::string name() const override { return inner_->name(); }
  int64_t size() const override { return std::min(inner_->size(), overrides_.vocabulary.value_or(inner_->size())); }
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> tokens = inner_->encode(text);
    check_known(tokens);
    return tokens;
  }
  size_t encode_beginning(std::string_view text, std::vector<int32_t>& tokens) const override {
    const size_t bytes = inner_->encode_beginning(text, tokens);
    check_known(tokens);
    return bytes;
  }
  std::string decode(std::span<const int32_t> tokens) const override { return inner_->decode(tokens); }
  bool decodes_exactly(std::span<const int32_t> tokens) const override { return inner_->decodes_exactly(tokens); }
  size_t encode_with_ends(std::string_view text, bool whole, std::vector<int32_t>& tokens,
                          std::vector<size_t>& ends) const override {
    const size_t bytes = inner_->encode_with_ends(text, whole, tokens, ends);
    check_known(tokens);
    if (ends.empty() && may_be_text(*this) && inner_->decodes_exactly(tokens))
      for (const int32_t token : tokens)
        ends.push_back((ends.empty() ? 0 : ends.back()) + inner_->decode(std::span(&token, 1)).size());
    return bytes;
  }
  bool has_token(int32_t number) const override { return number < size() && inner_->has_token(number); }
  bool is_mark(int32_t token) const override { return inner_->is_mark(token); }
  std::optional<int32_t> number_of_added(std::string_view text) const override { return inner_->number_of_added(text); }
  std::string save() const override {
    Json saved = parse_json(inner_->save(), unreadable_tokenizer);
    if (overrides_.begin) saved[begin_key] = *overrides_.begin;
    if (overrides_.end) saved[end_key] = *overrides_.end;
    if (overrides_.begins_texts) saved[begins_key] = *overrides_.begins_texts;
    if (overrides_.ends) saved[ends_key] = *overrides_.ends;
    if (overrides_.vocabulary) saved[vocabulary_key] = *overrides_.vocabulary;
    saved.update(take_overrides(saved));  // in a fixed order: the inner tokenizer may have some of them
    return json_text(saved);
  }
  // A token beyond the model's vocabulary neither begins nor ends a text.
  std::optional<int32_t> begin() const override { return known(overrides_.begin ? overrides_.begin : inner_->begin()); }
  std::optional<int32_t> end() const override { return known(overrides_.end ? overrides_.end : inner_->end()); }
  std::optional<int32_t> end_of_text() const override {
    return known(overrides_.end ? overrides_.end : inner_->end_of_text());
  }
  bool begins_texts() const override { return begin() && overrides_.begins_texts.value_or(inner_->begins_texts()); }
  std::vector<int32_t> ends() const override {
    std::vector<int32_t> all = overrides_.ends ? *overrides_.ends : inner_->ends();
    std::erase_if(all, [this](int32_t end) { return end >= size(); });
    return all;
  }
  std::vector<std::string> notes() const override {
    std::vector<std::string> all = inner_->notes();
    all.insert(all.end(), overrides_.notes.begin(), overrides_.notes.end());
    return all;
  }

 private:
  std::optional<int32_t> known(std::optional<int32_t> token) const {
    return token && *token < size() ? token : std::nullopt;
  }
  void check_known(std::span<const int32_t> tokens) const {
    for (const int32_t token : tokens)
      if (token >= size())
        fail("tokenizer: the text has token ", token, ", '", inner_->decode(std::span(&token, 1)),
             "', but the model has tokens 0 to ", size() - 1, "; leave it out of the text");
  }

  std::unique_ptr<Tokenizer> inner_;
  TokenizerOverrides overrides_;
};

int32_t saved_token(const Json& number, const char* key) {
  check(number.is_number_unsigned() && number.get<uint64_t>() <= std::numeric_limits<int32_t>::max(),
        unreadable_tokenizer, ": '", key, "' is ", shown_json(number), "; it must be a token id");
  return number.get<int32_t>();
}

TokenizerOverrides saved_overrides(const Json& saved) {
  TokenizerOverrides overrides;
  if (saved.contains(begin_key)) overrides.begin = saved_token(saved[begin_key], begin_key);
  if (saved.contains(end_key)) overrides.end = saved_token(saved[end_key], end_key);
  if (saved.contains(begins_key)) {
    check_form(saved[begins_key].is_boolean(), saved[begins_key], begins_key, unreadable_tokenizer, "true or false");
    overrides.begins_texts = saved[begins_key].get<bool>();
  }
  if (saved.contains(ends_key)) {
    overrides.ends.emplace();
    for (const Json& number : list_member(saved, ends_key, unreadable_tokenizer))
      overrides.ends->push_back(saved_token(number, ends_key));
  }
  if (saved.contains(vocabulary_key)) {
    overrides.vocabulary = whole_number_member(saved, vocabulary_key, unreadable_tokenizer);
    check(*overrides.vocabulary >= 1, unreadable_tokenizer, ": '", vocabulary_key, "' is ", *overrides.vocabulary,
          "; it must be at least 1");
  }
  return overrides;
}

}  // namespace

bool has_tokenizer(const std::string& path) {
  for (const auto& [name, entry] : tokenizers())
    if (entry.reads && file_exists(path) && entry.reads(path)) return true;
  return false;
}

std::unique_ptr<Tokenizer> with_overrides(std::unique_ptr<Tokenizer> tokenizer, TokenizerOverrides overrides) {
  if (overrides.begin == tokenizer->begin()) overrides.begin.reset();
  if (overrides.end == tokenizer->end()) overrides.end.reset();
  if (overrides.begins_texts == tokenizer->begins_texts()) overrides.begins_texts.reset();
  if (overrides.ends == tokenizer->ends()) overrides.ends.reset();
  if (overrides.vocabulary && *overrides.vocabulary >= tokenizer->size()) overrides.vocabulary.reset();
  if (!overrides.begin && !overrides.end && !overrides.begins_texts && !overrides.ends && !overrides.vocabulary &&
      overrides.notes.empty())
    return tokenizer;
  return std::make_unique<OverriddenTokenizer>(std::move(tokenizer), std::move(overrides));
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name_or_path, const std::function<std::string()>& text) {
  return make_of(name_or_path, [&] { return TextChunks(text); }, {});
}
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name_or_path, const TextSource& data,
                                          const TokenizerProgress& progress) {
  std::optional<TextFiles> files;
  return make_of(name_or_path, [&] { return TextChunks(files.emplace(data)); }, progress);
}

std::unique_ptr<Tokenizer> restore_tokenizer(const std::string& json) {
  const Json saved = parse_json(json, unreadable_tokenizer);
  check(saved != Json::object(),
        "tokenizer: the run has no tokenizer, because its data are generated; use a run that was trained on a text");
  const TokenizerEntry& entry = tokenizers().at(text_member(saved, "name", unreadable_tokenizer));
  check(entry.restore != nullptr, unreadable_tokenizer, ": ", entry.name, " is read only from files of other programs");
  return with_overrides(entry.restore(json), saved_overrides(saved));
}

std::vector<int32_t> encode_text(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> tokens = tokenizer.encode(text);
  if (tokenizer.begins_texts()) tokens.insert(tokens.begin(), *tokenizer.begin());
  return tokens;
}

std::vector<int32_t> ids_without_token(const Tokenizer& tokenizer, int64_t vocabulary) {
  std::vector<int32_t> without;
  for (int64_t number = 0; number < vocabulary; ++number)
    if (!tokenizer.has_token(static_cast<int32_t>(number))) without.push_back(static_cast<int32_t>(number));
  return without;
}

std::vector<int32_t> beginning_of_text(const Tokenizer& tokenizer) {
  if (const std::optional<int32_t> begin = tokenizer.begin()) return {*begin};
  try {
    if (std::vector<int32_t> tokens = tokenizer.encode("\n"); !tokens.empty()) return tokens;
  } catch (const Error&) {  // a vocabulary without line breaks
  }
  return {0};
}

bool is_made_of_text(const std::string& name_or_path) {
  const TokenizerEntry* const named = named_by(name_or_path);
  return named && (named->train || named->make);
}

Fingerprint fingerprint_of(const Tokenizer& tokenizer) {
  const std::string saved = tokenizer.save();
  const Json whole = parse_json(saved, unreadable_tokenizer);
  Json encoding = whole;
  erase_ordinary(encoding);
  return fingerprint_of_saved(encoding == whole ? saved : json_text(encoding));
}

bool is_same_tokenizer(const Tokenizer& one, const Tokenizer& other) {
  const auto without_overrides = [](const Tokenizer& tokenizer) {
    Json saved = parse_json(tokenizer.save(), unreadable_tokenizer);
    take_overrides(saved);
    erase_ordinary(saved);
    return saved;
  };
  return without_overrides(one) == without_overrides(other);
}

double min_token_count(const std::string& name_or_path, uint64_t bytes) {
  const TokenizerEntry* const named = named_by(name_or_path);
  return static_cast<double>(bytes) / (named ? *named : TokenizerEntry()).max_bytes_per_token;
}

void check_word_memory(size_t bytes) {
  constexpr double of_byte = 80;                   // measured, for byte pairs and for SentencePiece
  constexpr size_t always_fits = size_t{1} << 18;  // not checked, because texts have many parts of this size
  if (bytes <= always_fits) return;
  const auto size = static_cast<double>(bytes);
  check_memory("tokenizer: a word or a run of spaces of " + in_megabytes(size), of_byte * size,
               "divide it with line breaks");
}

void check_token(int32_t token, int64_t size) {
  check(token >= 0 && token < size, "tokenizer: token id ", token, " is out of range; valid ids are 0 to ", size - 1);
}

}  // namespace orrery::models
