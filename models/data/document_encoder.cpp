// Encodes the documents of texts, in chunks (models/data/tokenizer.h).
#include <optional>
#include <utility>

#include "engine/types/check.h"
#include "models/data/data_format.h"
#include "models/data/tokenizer.h"
#include "models/formats/unicode.h"

namespace orrery::models {
namespace {

// Tokens of a text's parts with their characters. A part waits for the next one, because the last
// token also takes the characters at the end of the text that gave no token.
class TokenSink {
 public:
  explicit TokenSink(const TakeTokens& take) : take_(take) {}
  void add(std::string_view text, std::vector<int32_t> tokens, const std::vector<size_t>& ends) {
    size_t at = 0;
    if (!tokens.empty()) {
      flush();
      tokens_ = std::move(tokens);
      for (size_t i = 0; ends.size() == tokens_.size() && i < ends.size(); at = ends[i++]) {
        const int64_t here = count_characters(text.substr(at, ends[i] - at)) + std::exchange(left_, 0);
        characters_.push_back(static_cast<int32_t>(here));
      }
    }
    left_ += count_characters(text.substr(at));
  }
  void finish() {
    if (!characters_.empty()) characters_.back() += static_cast<int32_t>(left_);
    left_ = 0;
    flush();
  }

 private:
  void flush() {
    if (!tokens_.empty()) take_(tokens_, characters_);
    tokens_.clear(), characters_.clear();
  }

  const TakeTokens& take_;
  std::vector<int32_t> tokens_, characters_;
  int64_t left_ = 0;  // characters after the last token
};

// Encodes the documents of a file, which arrive in chunks.
class DocumentEncoder {
 public:
  DocumentEncoder(const Tokenizer& tokenizer, const std::string& file, bool many, const TakeTokens& take)
      : tokenizer_(tokenizer), file_(file), many_(many), sink_(take) {}
  void add(std::string_view chunk) {
    waiting_ += chunk;
    if (waiting_.size() >= enough_) encode(false);
  }
  void finish() {
    if (!waiting_.empty()) encode(true);
    sink_.finish();
    done_ = enough_ = 0;
    ++number_;
  }

 private:
  void encode(bool whole) {
    std::vector<int32_t> tokens;
    std::vector<size_t> ends;
    size_t read = 0;
    try {
      read = tokenizer_.encode_with_ends(waiting_, whole, tokens, ends);
    } catch (const Error& error) {
      const std::string why = text("text: ", file_, many_ ? text(": document ", number_) : "", ": ", error.what(),
                                   done_ == 0 ? "" : text(" (counted from byte ", done_, ")"));
      fail_if_binary("text", file_, why, error);
      fail(why);
    }
    sink_.add(std::string_view(waiting_).substr(0, read), std::move(tokens), ends);
    enough_ = read > 0 ? 0 : 2 * waiting_.size();
    waiting_.erase(0, read);
    done_ += read;
  }

  const Tokenizer& tokenizer_;
  const std::string& file_;
  const bool many_;  // the file has many documents
  TokenSink sink_;
  uint64_t number_ = 1;  // of the document
  std::string waiting_;  // read, but its tokens are not decided yet
  uint64_t done_ = 0;    // bytes of the document encoded before it
  size_t enough_ = 0;    // bytes to wait for: twice a size that decided nothing
};

}  // namespace

std::vector<std::pair<int64_t, int64_t>> encode_files(const Tokenizer& tokenizer, const TextFiles& text,
                                                      const TakeTokens& take,
                                                      const std::function<void(uint64_t)>& progress) {
  const bool many = text.has_many_documents();
  const std::optional<int32_t> between = many || text.files().size() > 1 ? tokenizer.end_of_text() : std::nullopt;
  const std::optional<int32_t> before = tokenizer.begins_texts() ? tokenizer.begin() : std::nullopt;
  constexpr int32_t no_characters = 0;
  std::vector<std::pair<int64_t, int64_t>> ranges;
  int64_t taken = 0;
  const TakeTokens count = [&](std::span<const int32_t> tokens, std::span<const int32_t> characters) {
    taken += static_cast<int64_t>(tokens.size());
    take(tokens, characters);
  };
  const auto take_mark = [&](const std::optional<int32_t>& mark) {
    if (mark) count(std::span(&*mark, 1), std::span(&no_characters, 1));
  };
  for (const std::string& file : text.files()) {
    const int64_t begin = taken;
    DocumentEncoder encoder(tokenizer, file, many, count);
    bool begun = false;
    const auto begin_document = [&] {
      if (!std::exchange(begun, true)) take_mark(before);
    };
    text.each_document(file, {.text =
                                  [&](std::string_view chunk, uint64_t) {
                                    begin_document();
                                    encoder.add(chunk);
                                  },
                              .end =
                                  [&] {
                                    begin_document();
                                    if (many && !between) encoder.add("\n");
                                    encoder.finish();
                                    if (many) take_mark(between);
                                    begun = false;
                                  },
                              .read =
                                  [&](uint64_t bytes) {
                                    if (progress) progress(bytes);
                                  }});
    ranges.emplace_back(begin, taken);
    if (!many) take_mark(between);
  }
  return ranges;
}

}  // namespace orrery::models
