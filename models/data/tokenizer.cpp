#include "models/data/tokenizer.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "engine/base/check.h"
#include "engine/base/files.h"
#include "models/json.h"

namespace orrery::models {

Registry<TokenizerEntry>& tokenizers() {
  static Registry<TokenizerEntry> all("tokenizer");
  return all;
}

namespace {

const TokenizerEntry* named_by(const std::string& name_or_path) {
  return tokenizers().find(name_or_path.substr(0, name_or_path.find('(')));
}

// `text` is asked for only if a vocabulary is made of it.
std::unique_ptr<Tokenizer> make_of(const std::string& name_or_path, const std::function<TextPieces()>& text) {
  const TokenizerEntry* const named = named_by(name_or_path);
  if (named && named->train) return named->train(text(), parse_spec(name_or_path));
  if (named && named->make) {
    check(name_or_path == named->name, "tokenizer: ", named->name, " has no settings; it is ", name_or_path, " here");
    return named->make(text());
  }
  std::vector<std::string> names;
  for (const auto& [name, entry] : tokenizers()) {
    if (entry.reads && file_exists(name_or_path) && entry.reads(name_or_path)) return entry.read(name_or_path);
    if (entry.make || entry.train) names.push_back(name);
  }
  check(!file_exists(name_or_path), "tokenizer: ", name_or_path,
        " is none that is known; a folder needs vocab.json and merges.txt, or tokenizer.json, or one file .model");
  const std::string meant = nearest(name_or_path, names);
  fail("tokenizer: '", name_or_path, "' is neither a name nor a file or folder; ",
       meant.empty() ? "" : "did you mean '" + meant + "'? ", "there are ", join(names),
       ", and what was made elsewhere by its path");
}

void encode_file(const Tokenizer& tokenizer, const std::string& file, const TakeTokens& take,
                 const std::function<void(uint64_t)>& progress) {
  std::string waiting;  // for what decides its tokens
  uint64_t done = 0;    // bytes before it
  std::vector<int32_t> tokens;
  const auto told = [&](const auto& encode) {
    try {
      encode();
    } catch (const Error& error) {
      fail("text: ", file, ": ", error.what(), done == 0 ? "" : text(" (counted from byte ", done, ")"));
    }
    take(tokens);
  };
  TextFiles::each_piece(file, [&](std::string_view piece, uint64_t) {
    waiting += piece;
    told([&] {
      tokens.clear();
      const size_t read = tokenizer.encode_beginning(waiting, tokens);
      waiting.erase(0, read);
      done += read;
    });
    if (progress) progress(piece.size());
  });
  if (!waiting.empty()) told([&] { tokens = tokenizer.encode(waiting); });
}

constexpr const char *begin_key = "begin_token", *end_key = "end_token";

class Marked final : public Tokenizer {
 public:
  Marked(std::unique_ptr<Tokenizer> tokenizer, std::optional<int32_t> begin, std::optional<int32_t> end)
      : inner_(std::move(tokenizer)), begin_(begin), end_(end) {
    for (const auto& mark : {begin_, end_})
      if (mark) check_token(*mark, inner_->size());
  }
  std::string name() const override { return inner_->name(); }
  int64_t size() const override { return inner_->size(); }
  std::vector<int32_t> encode(std::string_view text) const override { return inner_->encode(text); }
  size_t encode_beginning(std::string_view text, std::vector<int32_t>& tokens) const override {
    return inner_->encode_beginning(text, tokens);
  }
  std::string decode(std::span<const int32_t> tokens) const override { return inner_->decode(tokens); }
  std::string save() const override {
    Json saved = parse_json(inner_->save(), unreadable_tokenizer);
    if (begin_) saved[begin_key] = *begin_;
    if (end_) saved[end_key] = *end_;
    return saved.dump();
  }
  std::optional<int32_t> begin() const override { return begin_ ? begin_ : inner_->begin(); }
  std::optional<int32_t> end() const override { return end_ ? end_ : inner_->end(); }
  std::optional<int32_t> end_of_text() const override { return end_ ? end_ : inner_->end_of_text(); }

 private:
  std::unique_ptr<Tokenizer> inner_;
  std::optional<int32_t> begin_, end_;
};

std::optional<int32_t> saved_mark(const Json& saved, const char* key) {
  if (!saved.contains(key)) return std::nullopt;
  const int64_t token = whole_number_member(saved, key, unreadable_tokenizer);
  check(token >= 0 && token <= std::numeric_limits<int32_t>::max(), unreadable_tokenizer, ": '", key, "' ", token,
        " is no token");
  return static_cast<int32_t>(token);
}

}  // namespace

bool has_tokenizer(const std::string& path) {
  for (const auto& [name, entry] : tokenizers())
    if (entry.reads && file_exists(path) && entry.reads(path)) return true;
  return false;
}

std::unique_ptr<Tokenizer> with_marks(std::unique_ptr<Tokenizer> tokenizer, std::optional<int32_t> begin,
                                      std::optional<int32_t> end) {
  if (begin == tokenizer->begin()) begin.reset();
  if (end == tokenizer->end()) end.reset();
  if (!begin && !end) return tokenizer;
  return std::make_unique<Marked>(std::move(tokenizer), begin, end);
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name_or_path, const std::function<std::string()>& text) {
  return make_of(name_or_path, [&] { return TextPieces(text); });
}
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name_or_path, const std::string& data) {
  std::optional<TextFiles> files;
  return make_of(name_or_path, [&] { return TextPieces(files.emplace(data)); });
}

void encode_files(const Tokenizer& tokenizer, const TextFiles& text, const TakeTokens& take,
                  const std::function<void(uint64_t)>& progress) {
  const std::optional<int32_t> between = text.files().size() > 1 ? tokenizer.end_of_text() : std::nullopt;
  for (const std::string& file : text.files()) {
    encode_file(tokenizer, file, take, progress);
    if (between) take(std::span(&*between, 1));
  }
}

std::unique_ptr<Tokenizer> restore_tokenizer(const std::string& json) {
  const Json saved = parse_json(json, unreadable_tokenizer);
  const TokenizerEntry& entry = tokenizers().at(text_member(saved, "name", unreadable_tokenizer));
  check(entry.restore != nullptr, unreadable_tokenizer, ": ", entry.name, " is read from files of others alone");
  return with_marks(entry.restore(json), saved_mark(saved, begin_key), saved_mark(saved, end_key));
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
  return {saved.size(), sha256(std::as_bytes(std::span(saved)))};
}

void check_token(int32_t token, int64_t size) {
  check(token >= 0 && token < size, "tokenizer: ", token, " is no token; there are 0 to ", size - 1);
}

}  // namespace orrery::models
