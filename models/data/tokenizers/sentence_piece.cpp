// SentencePiece models: read from files of others, learned from a text, and kept whole in a checkpoint.
#include "models/data/sentence_piece.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "engine/base/check.h"
#include "engine/base/files.h"
#include "engine/base/machine_memory.h"
#include "engine/base/wording.h"
#include "models/data/base64.h"
#include "models/data/gzip.h"
#include "models/data/sentence_piece_model.h"
#include "models/json.h"

namespace orrery::models {
namespace {

constexpr uint64_t largest_model = uint64_t{8} << 20;  // bytes: in base64 it still fits into a checkpoint's state.json
constexpr size_t most_at_once = size_t{1} << 30;       // of a text; the library counts in int

// The library's words without its own place in them: "Internal: src/trainer_interface.cc(590) [...] Vocabulary ...".
std::string reason(const sentencepiece::util::Status& status) {
  std::string words = status.message();
  if (const size_t place = words.rfind("] "); place != std::string::npos) words.erase(0, place + 2);
  while (!words.empty() && (words.back() == '.' || words.back() == ' ')) words.pop_back();
  return words.empty() ? "the library refuses it" : words;
}

// Spaces in a row, at the beginning and at the end, and characters of the same meaning become one, as the model says:
// decode(encode(text)) is the text so written.
class SentencePiece final : public Tokenizer {
 public:
  SentencePiece(std::string model, std::string_view what) : model_(std::move(model)) {
    check_sentence_piece_model(model_, what);
    const std::string problem = loaded();
    check(problem.empty() && processor_.GetPieceSize() > 0, what, ": this is no SentencePiece model",
          problem.empty() ? "" : " (" + problem + ")");
    spaces_ = sentence_piece_spaces(model_, what);
  }
  std::string name() const override { return "sentence_piece"; }
  int64_t size() const override { return processor_.GetPieceSize(); }
  // The library sums scores in f32 over all that it encodes at once: after a few thousand words the sums are rounded to
  // more than what pieces differ by.  So they begin anew with each word.
  std::vector<int32_t> encode(std::string_view text) const override {
    if (!spaces_.sums_scores || spaces_.before.empty()) return encode_at_once(text);
    std::vector<int32_t> all;
    for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
      for (end = begin + 1; end < text.size() && !divides(text, end);) ++end;
      const std::vector<int32_t> some = encode_at_once(text.substr(begin, end - begin));
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }
  // The library takes some 170 bytes for each one that it encodes at once, so a long text comes to it in parts.
  size_t encode_beginning(std::string_view text, std::vector<int32_t>& tokens) const override {
    size_t end = text.empty() ? 0 : text.size() - 1;
    while (end > 0 && !divides(text, end)) --end;
    if (end > 0) tokens = encode(text.substr(0, end));
    return end;
  }
  std::string decode(std::span<const int32_t> tokens) const override {
    for (const int32_t token : tokens) check_token(token, size());
    std::string text;
    const auto status = processor_.Decode(std::vector<int>(tokens.begin(), tokens.end()), &text);
    check(status.ok(), "tokenizer: SentencePiece cannot decode the tokens: ", reason(status));
    return text;
  }
  std::string save() const override { return Json{{"name", name()}, {"model", base64(model_)}}.dump(); }
  std::optional<int32_t> begin() const override { return token(processor_.bos_id()); }
  std::optional<int32_t> end() const override { return token(processor_.eos_id()); }

 private:
  std::vector<int32_t> encode_at_once(std::string_view text) const {
    check(text.size() <= most_at_once, "tokenizer: ", text.size(), " bytes at once, more than the ", most_at_once,
          " that SentencePiece takes");
    std::vector<int> pieces;
    const auto status = processor_.Encode(text, &pieces);
    check(status.ok(), "tokenizer: SentencePiece cannot encode the text: ", reason(status));
    return pieces;
  }
  std::string loaded() {  // empty, or why not
    try {
      const auto status = processor_.LoadFromSerializedProto(model_);
      return status.ok() ? "" : reason(status);
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception&) {  // of the trie that the library makes of the pieces
      return "the library cannot look for its pieces";
    }
  }
  // Before a space between two characters of ASCII, which no rule of normalization joins with it.
  bool divides(std::string_view text, size_t at) const {
    const auto stands_alone = [](char c) { return c > ' ' && c < '\x7f'; };
    return at > 0 && at + 1 < text.size() && spaces_.before.find(text[at]) != spaces_.before.npos &&
           stands_alone(text[at - 1]) && stands_alone(text[at + 1]);
  }
  static std::optional<int32_t> token(int number) { return number < 0 ? std::optional<int32_t>() : number; }

  std::string model_;  // as in the file
  SentencePieceSpaces spaces_;
  sentencepiece::SentencePieceProcessor processor_;
};

class Lines final : public sentencepiece::SentenceIterator {  // of a text, without empty ones
 public:
  explicit Lines(std::string_view text) : left_(text) { Next(); }
  bool done() const override { return line_.empty(); }
  void Next() override {
    line_.clear();
    while (line_.empty() && !left_.empty()) {
      const size_t end = std::min(left_.find('\n'), left_.size());
      line_ = left_.substr(0, end);
      if (line_.ends_with('\r')) line_.pop_back();
      left_.remove_prefix(std::min(end + 1, left_.size()));
    }
  }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::string_view left_;
  std::string line_;
};

// Its one file .model, packed or not; empty: there is none, or more.
std::string the_model_in(const std::string& folder) {
  std::string found;
  for (const std::string& path : files_in(folder)) {
    if (!ends_with_or_packed(path, ".model")) continue;
    if (!found.empty() && path == found + ".gz") continue;  // the same one, which comes behind it
    if (!found.empty()) return {};
    found = path;
  }
  return found;
}
bool reads(const std::string& path) {
  return folder_exists(path) ? !the_model_in(path).empty() : ends_with_or_packed(path, ".model");
}
std::unique_ptr<Tokenizer> read(const std::string& path) {
  const std::string file = folder_exists(path) ? the_model_in(path) : path;
  return std::make_unique<SentencePiece>(read_data_file(file, largest_model), "tokenizer: " + file);
}
std::unique_ptr<Tokenizer> restore(const std::string& json) {
  const std::string text = text_member(parse_json(json, unreadable_tokenizer), "model", unreadable_tokenizer);
  return std::make_unique<SentencePiece>(bytes_of_base64(text, unreadable_tokenizer), unreadable_tokenizer);
}
// A text of at most so many bytes; of a longer one every k-th line, with the smallest k that should fit.
std::string lines_evenly(const TextPieces& text, uint64_t most) {
  uint64_t bytes = 0;
  text.each([&](std::string_view piece, uint64_t) { bytes += piece.size(); });
  const uint64_t k = (bytes + most - 1) / most;
  std::string some;
  uint64_t number = 0;  // of the line
  bool full = false;
  text.each([&](std::string_view piece, uint64_t) {
    while (!piece.empty()) {
      const size_t end = std::min(piece.find('\n'), piece.size() - 1) + 1;
      full |= number % k == 0 && some.size() + end > most;
      if (number % k == 0 && !full) some += piece.substr(0, end);
      number += piece[end - 1] == '\n';
      piece.remove_prefix(end);
    }
  });
  return some;
}
std::unique_ptr<Tokenizer> train(const TextPieces& text, const Spec& spec) {
  SentencePieceSettings settings;
  read_settings(spec, settings);
  return train_sentence_piece(lines_evenly(text, static_cast<uint64_t>(settings.most_bytes)), settings);
}

// An Error if the library would need more memory than there is.  It holds the text a few times, and a symbol for each
// character of the different words; bytes are measured, for 12 letters a word at the most.
void check_memory_of_learning(std::string_view text, const std::string& kind) {
  constexpr double bytes_of_pair_learning = 6, bytes_of_sums = 28, bytes_of_words = 70;  // for a byte of each
  std::unordered_set<std::string_view> words;
  double different = 0;
  for (size_t at = 0, end = 0; at < text.size(); at = end + 1) {
    end = std::min(text.find_first_of(" \n", at), text.size());
    if (words.insert(text.substr(at, end - at)).second) different += static_cast<double>(end - at);
  }
  const double whole = kind == "bpe" ? bytes_of_pair_learning : bytes_of_sums;
  check_memory("tokenizer: learning pieces of " + in_megabytes(static_cast<double>(text.size())),
               whole * static_cast<double>(text.size()) + bytes_of_words * different,
               "take a shorter text, or less of it, as with sentence_piece(most_bytes=1e6)");
}

REGISTER_TOKENIZER(
    sentence_piece,
    {.name = "sentence_piece",
     .description = "pieces learned from the text, sentence_piece(vocabulary=8000, kind=bpe, "
                    "coverage=0.9995, byte_fallback=no, most_bytes=1e8), or those of a file .model: --tokenizer=FILE",
     .read = read,
     .reads = reads,
     .restore = restore,
     .train = train});

}  // namespace

std::unique_ptr<Tokenizer> train_sentence_piece(std::string_view text, const SentencePieceSettings& s) {
  Lines lines(text);
  check(!lines.done(), "tokenizer: there is no text to learn pieces from");
  check_memory_of_learning(text, s.kind);
  const std::unordered_map<std::string, std::string> arguments = {
      {"vocab_size", std::to_string(s.vocabulary)},
      {"model_type", s.kind},
      {"character_coverage", print_number(s.coverage)},
      {"byte_fallback", s.byte_fallback ? "true" : "false"},
      {"num_threads", "1"},  // sums of several threads would depend on their number
      {"max_sentence_length", std::to_string(most_at_once)},
      {"minloglevel", "3"},
  };
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, &lines, &model);
  check(status.ok(), "tokenizer: no ", s.vocabulary, " pieces can be learned from this text: ", reason(status));
  return std::make_unique<SentencePiece>(std::move(model), "tokenizer: what was learned");
}

}  // namespace orrery::models
