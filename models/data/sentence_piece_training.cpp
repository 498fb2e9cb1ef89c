// Training of SentencePiece by its library, and checks of the input before it: a failed check
// within the library ends the program.
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "engine/system/machine_memory.h"
#include "engine/types/check.h"
#include "engine/types/format.h"
#include "models/data/sentence_piece.h"
#include "models/data/sentence_piece_cuts.h"
#include "models/data/sentence_piece_model.h"

namespace orrery::models {
namespace {

constexpr size_t max_training_bytes = size_t{1} << 30;  // bytes of a line; the library counts in int

// The library's BPE training stores a position in a word in 16 bits with a sign: a longer word
// would write out of bounds. Its unigram training adds the scores of a word's pieces in f32, from
// both ends: for a longer word, exp of the difference is infinite.
constexpr size_t max_word_of_pairs = 32'767, max_word_of_sums = 4'192;  // characters

// Returns the bytes of a line before a normalized word exceeds `max_word` characters.
size_t without_longer_word(std::string_view line, const SentencePieceRules& rules, size_t max_word) {
  constexpr size_t max_characters_per_byte = 6;  // U+FDFA, three bytes, becomes 18
  if (line.size() <= max_word / max_characters_per_byte) return line.size();
  size_t characters = 0;  // of the word
  for (size_t at = 0; at < line.size();) {
    const SentencePieceRules::Replaced here = rules.first(line.substr(at));
    size_t end = characters;
    for (const char c : here.text) end = c == ' ' ? 0 : end + ((static_cast<unsigned char>(c) & 0xC0) != 0x80);
    if (end > max_word) return at;
    characters = end, at += here.bytes;
  }
  return line.size();
}

class Lines final : public sentencepiece::SentenceIterator {  // the lines of a text, without empty ones
 public:
  // With normalization rules, splits words that are too long after normalization.
  explicit Lines(std::string_view text, const SentencePieceRules* rules = nullptr, size_t max_word = 0)
      : left_(text), rules_(rules), max_word_(max_word) {
    Next();
  }
  bool done() const override { return line_.empty(); }
  void Next() override {
    line_.clear();
    while (line_.empty() && !left_.empty()) {
      const size_t line = std::min(left_.find('\n'), left_.size()),
                   end = rules_ ? without_longer_word(left_.substr(0, line), *rules_, max_word_) : line;
      line_ = left_.substr(0, end);
      if (line_.ends_with('\r')) line_.pop_back();
      left_.remove_prefix(end < line ? end : std::min(end + 1, left_.size()));
    }
  }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::string_view left_;
  const SentencePieceRules* rules_;
  size_t max_word_;
  std::string line_;
};

// Trains with the library, with these and fixed arguments.
std::string trained_model(Lines lines, std::unordered_map<std::string, std::string> arguments, std::string_view what) {
  arguments.insert({{"num_threads", "1"},  // sums of several threads would depend on their number
                    {"max_sentence_length", std::to_string(max_training_bytes)},
                    {"minloglevel", "3"}});
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, &lines, &model);
  check(status.ok(), what, ": ", sentence_piece_reason(status.message()));
  return model;
}

// Returns the normalization rules of training, which the library provides only in models.
const SentencePieceRules& training_rules() {
  static const SentencePieceRules rules = [] {
    constexpr const char* what = "tokenizer: SentencePiece cannot be trained";
    const std::string smallest_model =
        trained_model(Lines("a"), {{"vocab_size", "8"}, {"model_type", "char"}, {"hard_vocab_limit", "false"}}, what);
    return SentencePieceRules(sentence_piece_info(smallest_model, what).rules);
  }();
  return rules;
}

// Throws Error if all lines are spaces after normalization: unigram training would end the program.
void check_trainable(Lines lines) {
  constexpr std::string_view spaces[] = {"", " ", "\xe2\x96\x81"}, unknown = "\xe2\x96\x85";
  const auto has_more_than_spaces = [&](std::string_view line) {
    for (size_t at = 0; at < line.size();) {
      const SentencePieceRules::Replaced here = training_rules().first(line.substr(at));
      if (std::find(std::begin(spaces), std::end(spaces), here.text) == std::end(spaces)) return true;
      at += here.bytes;
    }
    return false;
  };
  for (; !lines.done(); lines.Next())
    if (lines.value().find(unknown) == std::string::npos && has_more_than_spaces(lines.value())) return;
  fail(
      "tokenizer: the text has no lines to train on: lines of spaces, and lines with the character U+2585, which "
      "SentencePiece reserves for unknown text, are not used; use another text");
}

// Throws Error if the library would need too much memory. It holds the text a few times, and a
// symbol per character of the different words. Bytes are measured, for at most 12 letters per word.
void check_training_memory(std::string_view text, const std::string& kind) {
  constexpr double bytes_of_pair_training = 6, bytes_of_sums = 28, bytes_of_words = 70;  // per byte
  std::unordered_set<std::string_view> words;
  double different = 0;
  for (size_t at = 0, end = 0; at < text.size(); at = end + 1) {
    end = std::min(text.find_first_of(" \n", at), text.size());
    if (words.insert(text.substr(at, end - at)).second) different += static_cast<double>(end - at);
  }
  const double whole = kind == "bpe" ? bytes_of_pair_training : bytes_of_sums;
  check_memory("tokenizer: training pieces on " + in_megabytes(static_cast<double>(text.size())),
               whole * static_cast<double>(text.size()) + bytes_of_words * different,
               "use a shorter text, or less of it with sentence_piece(max_bytes=1e6)");
}

}  // namespace

std::string sentence_piece_reason(std::string words) {
  if (const size_t bracket = words.rfind("] "); bracket != std::string::npos) words.erase(0, bracket + 2);
  while (!words.empty() && (words.back() == '.' || words.back() == ' ')) words.pop_back();
  return words.empty() ? "SentencePiece gives no reason" : words;
}

std::string train_sentence_piece_model(std::string_view text, const SentencePieceSettings& s) {
  const Lines lines(text, &training_rules(), s.kind == "bpe" ? max_word_of_pairs : max_word_of_sums);
  check_trainable(lines);
  check_training_memory(text, s.kind);
  return trained_model(lines,
                       {{"vocab_size", std::to_string(s.vocabulary)},
                        {"model_type", s.kind},
                        {"character_coverage", print_number(s.coverage)},
                        {"byte_fallback", s.byte_fallback ? "true" : "false"}},
                       orrery::text("tokenizer: ", s.vocabulary, " pieces cannot be trained on this text"));
}

}  // namespace orrery::models
