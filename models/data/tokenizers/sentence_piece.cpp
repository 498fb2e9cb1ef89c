// SentencePiece models: read from files, trained on a text, and stored whole in a checkpoint.
#include "models/data/sentence_piece.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "engine/system/files.h"
#include "engine/types/check.h"
#include "models/data/added_tokens.h"
#include "models/data/json_members.h"
#include "models/data/sentence_piece_cuts.h"
#include "models/data/sentence_piece_model.h"
#include "models/formats/base64.h"
#include "models/formats/gzip.h"
#include "models/formats/json.h"
#include "models/formats/unicode.h"

// SentencePiece's protobuf prints "[libprotobuf FATAL ...]" before it throws what becomes an Error
// here; SetLogHandler disables that. SentencePiece installs no header that declares it, and
// protobuf lacks it from version 22 on, so it is weak.
namespace google::protobuf {
enum LogLevel : int;
using LogHandler = void(LogLevel, const char*, int, const std::string&);
[[gnu::weak]] LogHandler* SetLogHandler(LogHandler* handler);
}  // namespace google::protobuf

namespace orrery::models {
namespace {

using Processor = sentencepiece::SentencePieceProcessor;

[[maybe_unused]] const bool is_silent =
    google::protobuf::SetLogHandler != nullptr && google::protobuf::SetLogHandler(nullptr) != nullptr;

// Bytes; a model of this size still fits into a checkpoint's state.json in base64.
constexpr uint64_t max_model_bytes = uint64_t{8} << 20;
constexpr size_t part_bytes = size_t{1} << 16;      // encoded at once, if the text can be split
constexpr size_t max_part_bytes = size_t{1} << 24;  // encoded at once, if the text cannot be split
constexpr int64_t max_gaps = 4096;                  // between pieces and added tokens
constexpr const char* unreadable_pieces = "tokenizer: SentencePiece's result cannot be read";

// A tokenizer of a model, which may merge spaces, drop them at both ends and normalize equivalent
// characters: decode(encode(text)) is the normalized text.
class SentencePiece final : public Tokenizer {
 public:
  // `space`: whether texts get a space before them; empty: as the model specifies.
  SentencePiece(std::string model, std::string_view what, const SidecarTokens& sidecar = {},
                std::optional<bool> space = {})
      : model_(std::move(model)) {
    SentencePieceInfo info = sentence_piece_info(model_, what);
    if (space && info.one_in_front != *space)
      model_ = with_space_in_front(std::move(model_), *space), info.one_in_front = *space;
    std::string problem;
    std::tie(processor_, problem) = processor_of(model_);
    check(problem.empty() && processor_->GetPieceSize() > 0, what, ": not a SentencePiece model",
          problem.empty() ? "" : " (" + problem + ")");
    sums_scores_ = info.sums_scores;
    size_ = processor_->GetPieceSize();
    const int64_t max_id = size_ + static_cast<int64_t>(sidecar.added.size()) + max_gaps;
    for (AddedToken each : sidecar.added) {
      check(each.number < max_id, what, ": an added token has number ", each.number, "; it must be below ", max_id);
      size_ = std::max(size_, each.number + 1);
      each.special = is_special(each, sidecar);
      each.skipped = is_skipped(each, sidecar);
      added_.add(each);
    }
    notes_ = sidecar.notes;
    for (const std::string& special : sidecar.special) {
      const int piece = processor_->PieceToId(special);
      if (std::ranges::count(sidecar.added, special, &AddedToken::text) > 0) continue;
      if (processor_->IdToPiece(piece) == special)
        added_.add({.number = piece, .text = special, .special = true, .skipped = sidecar.splits_special});
      else
        notes_.push_back("tokenizer: " + special + " is named but has no number, so it is not a token");
    }
    added_.build_index();
    find_marks(info.entries);
    cuts_ = std::make_unique<SentencePieceCuts>(std::move(info));
  }
  std::string name() const override { return "sentence_piece"; }
  int64_t size() const override { return size_; }
  bool has_token(int32_t number) const override {
    return number >= 0 && (number < pieces() || added_text(number) != nullptr);
  }
  // Unigram models sum scores in f32. After a few thousand words the rounding exceeds the
  // differences between pieces, so the sums restart at each word.
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> tokens;
    encode(text, {tokens});
    return tokens;
  }
  size_t encode_beginning(std::string_view text, std::vector<int32_t>& tokens) const override {
    const SentencePieceCuts::Cut last = last_safe_cut(text);
    if (last.begin > 0) tokens = encode(text.substr(0, last.end));  // the rest begins like a text
    return last.begin;
  }
  size_t encode_with_ends(std::string_view text, bool whole, std::vector<int32_t>& tokens,
                          std::vector<size_t>& ends) const override {
    const SentencePieceCuts::Cut last =
        whole ? SentencePieceCuts::Cut{text.size(), text.size(), false} : last_safe_cut(text);
    if (last.begin == 0) return 0;
    encode(text.substr(0, last.end), {tokens, &ends, text.data()});
    if (ends.size() != tokens.size()) ends.clear();
    if (spaces_end_pieces() && !ends.empty()) ends.back() = last.begin;
    return last.begin;
  }
  bool decodes_exactly(std::span<const int32_t>) const override { return false; }
  std::string decode(std::span<const int32_t> tokens) const override {
    std::string text;
    for (size_t begin = 0, end = 0; begin < tokens.size(); begin = end + 1) {
      for (end = begin; end < tokens.size() && tokens[end] < pieces(); ++end) check_token(tokens[end], size());
      std::string some;
      const Processor& processor = begin > 0 ? within_words() : *processor_;
      const auto status = processor.Decode(std::vector<int>(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                                                            tokens.begin() + static_cast<std::ptrdiff_t>(end)),
                                           &some);
      check(status.ok(),
            "tokenizer: SentencePiece cannot decode the tokens: ", sentence_piece_reason(status.message()));
      text += some;
      if (end == tokens.size()) break;
      check_token(tokens[end], size());
      if (const std::string* const added = added_text(tokens[end])) text += *added;
    }
    return text;
  }
  std::string save() const override {
    Json saved{{"name", name()}, {"model", base64(model_)}};
    for (const AddedToken& each : added_.all()) {
      Json added = {{"number", each.number}, {"text", each.text}};
      if (each.strips_left) added["strips_left"] = true;
      if (each.strips_right) added["strips_right"] = true;
      if (each.normalized) added["normalized"] = true;
      if (each.skipped) added["skipped"] = true;
      if (!each.special) added["ordinary"] = true;
      saved["added"].push_back(std::move(added));
    }
    return json_text(saved);
  }
  std::optional<int32_t> begin() const override { return token(processor_->bos_id()); }
  std::optional<int32_t> end() const override { return token(processor_->eos_id()); }
  bool is_mark(int32_t number) const override {
    return number >= 0 && number < size() && marks_[static_cast<size_t>(number)];
  }
  std::optional<int32_t> number_of_added(std::string_view text) const override { return added_.number_of(text); }
  std::vector<std::string> notes() const override { return notes_; }

 private:
  void find_marks(const std::vector<SentencePieceEntry>& entries) {
    using Kind = SentencePieceEntry::Kind;
    marks_.resize(std::max(entries.size(), static_cast<size_t>(size_)));
    for (size_t i = 0; i < entries.size(); ++i) marks_[i] = entries[i].kind == Kind::control;
    for (const AddedToken& each : added_.all()) {
      const auto i = static_cast<size_t>(each.number);
      const Kind kind = i < entries.size() ? entries[i].kind : Kind::control;  // other text gives the first three
      if (each.special && kind != Kind::normal && kind != Kind::unknown && kind != Kind::byte) marks_[i] = true;
    }
  }
  int64_t pieces() const { return processor_->GetPieceSize(); }
  // Returns the text of an added token, or null for a number in a gap.
  const std::string* added_text(int32_t number) const {
    const auto found = std::ranges::find(added_.all(), number, &AddedToken::number);
    return found == added_.all().end() ? nullptr : &found->text;
  }
  bool spaces_end_pieces() const { return cuts_->end_pieces(); }
  // The tokens of a text and, unless `ends` is null, the offset after each from `text` on.
  struct Encoded {
    std::vector<int32_t>& tokens;
    std::vector<size_t>* ends = nullptr;
    const char* text = nullptr;

    // The characters before `end` that gave no token belong to the last token.
    void end_at(const char* end) const {
      if (ends && !ends->empty()) ends->back() = static_cast<size_t>(end - text);
    }
  };
  void encode(std::string_view text, const Encoded& to) const {
    check_characters(text);
    AddedTokens::Matcher matcher(added_, text);
    for (size_t at = 0;;) {
      const AddedTokens::Found next = matcher.next(at);
      if (next.begin > at) {
        add_tokens(text.substr(at, next.begin - at), at > 0, to);
        to.end_at(text.data() + next.begin);
      }
      if (!next.token) return;
      to.tokens.push_back(*next.token);
      if (to.ends) to.ends->push_back(0), to.end_at(text.data() + std::max(next.begin, next.end));
      at = next.end;
    }
  }
  // Returns the last cut that following text cannot change; at 0 if there is none.
  SentencePieceCuts::Cut last_safe_cut(std::string_view text) const {
    SentencePieceCuts::Cut last{0, 0, false};
    if (spaces_end_pieces() && added_.reach() > 0) return last;  // text after such a token gets no space
    if (added_.can_strip()) return last;
    AddedTokens::Matcher matcher(added_, text);
    for (size_t at = 0; at < text.size();) {
      const AddedTokens::Found next = matcher.next(at);
      const bool more = next.begin == text.size();
      cuts_->each(text.substr(at, next.begin - at), text.size(), more, [&](const SentencePieceCuts::Cut& cut) {
        // An added token may begin near the end.
        if (at + cut.begin + added_.reach() <= text.size()) last = {at + cut.end, at + cut.begin, false};
      });
      at = next.end;
    }
    return last;
  }
  // Encodes a text without added tokens, in parts. `within_word`: no space is added to it.
  void add_tokens(std::string_view text, bool within_word, const Encoded& to) const {
    if (text.size() > max_part_bytes)
      if (const std::string shorter = cuts_->with_short_runs(text); !shorter.empty())
        return add_tokens(shorter, within_word, {to.tokens});  // the ends are unknown
    SentencePieceCuts::Cut last{0, 0, within_word};            // where the part begins
    std::optional<SentencePieceCuts::Cut> next;                // where it can end, at a space
    const auto take = [&](const SentencePieceCuts::Cut& cut) {
      add_part(text.substr(last.begin, cut.end - last.begin), (spaces_end_pieces() ? cut : last).within_word,
               last.within_unknown, to);
      if (spaces_end_pieces()) to.end_at(text.data() + cut.begin);
      last = cut, next.reset();
    };
    cuts_->each(text, part_bytes, false, [&](const SentencePieceCuts::Cut& cut) {
      const auto is_enough = [&] { return cut.end - last.begin >= part_bytes; };
      if (next && is_enough()) take(*next);
      if (!cut.within_word) next = cut;
      if ((sums_scores_ && !cut.within_word) || is_enough()) take(cut);
    });
    add_part(text.substr(last.begin), spaces_end_pieces() ? within_word : last.within_word, last.within_unknown, to);
  }
  // Encodes a part; within a word, without the space that the library adds before or after texts.
  // `within_unknown`: the part may continue the unknown token of the previous part.
  void add_part(std::string_view part, bool within_word, bool within_unknown, const Encoded& to) const {
    // No cut was found, so the part is split between characters.
    for (; part.size() > max_part_bytes; within_word |= !spaces_end_pieces()) {
      const size_t bytes = end_of_first_part(part);
      add_part(part.substr(0, bytes), within_word || spaces_end_pieces(), std::exchange(within_unknown, false), to);
      part.remove_prefix(bytes);
    }
    check_word_memory(part.size() + 2 * static_cast<size_t>(std::count(part.begin(), part.end(), ' ')));  // in U+2581
    const Processor& processor = within_word ? within_words() : *processor_;
    std::vector<SentencePieceToken> pieces;
    if (to.ends) pieces = sentence_piece_tokens(processor.EncodeAsSerializedProto(part), unreadable_pieces);
    if (pieces.empty()) {  // the call above reports no error
      std::vector<int> numbers;
      const auto status = processor.Encode(part, &numbers);
      check(status.ok(), "tokenizer: SentencePiece cannot encode the text: ", sentence_piece_reason(status.message()));
      for (const int number : numbers) pieces.push_back({number});
    }
    const int unknown = processor_->unk_id();
    const bool joins = within_unknown && !pieces.empty() && pieces[0].number == unknown && to.tokens.back() == unknown;
    if (joins) to.end_at(part.data() + pieces[0].end);
    for (size_t i = joins ? 1 : 0; i < pieces.size(); ++i) {
      to.tokens.push_back(pieces[i].number);
      if (to.ends) to.ends->push_back(0), to.end_at(part.data() + pieces[i].end);
    }
  }
  // Returns the end of the first part, not next to a space if possible.
  static size_t end_of_first_part(std::string_view part) {
    const auto is_space = [&](size_t at) { return part[at] == ' ' || part[at] == '\n'; };
    const size_t max_bytes = end_of_characters(part.substr(0, max_part_bytes));
    size_t bytes = max_bytes;
    while (bytes > 0 && (is_space(bytes) || is_space(bytes - 1))) bytes = end_of_characters(part.substr(0, bytes - 1));
    return bytes > 0 ? bytes : max_bytes;
  }
  const Processor& within_words() const {
    std::call_once(within_words_made_, [&] { within_words_ = processor_of(with_space_in_front(model_, false)).first; });
    return *within_words_;
  }
  // Returns a processor and what is wrong with the model, or "".
  static std::pair<std::unique_ptr<Processor>, std::string> processor_of(const std::string& model) {
    auto processor = std::make_unique<Processor>();
    try {
      const auto status = processor->LoadFromSerializedProto(model);
      return {std::move(processor), status.ok() ? "" : sentence_piece_reason(status.message())};
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception&) {  // thrown by the library's trie of the pieces
      return {nullptr, "the library cannot index its pieces"};
    }
  }
  static std::optional<int32_t> token(int number) { return number < 0 ? std::optional<int32_t>() : number; }

  std::string model_;  // a serialized .model
  int64_t size_ = 0;
  AddedTokens added_;
  std::vector<std::string> notes_;
  std::vector<bool> marks_;  // by token
  bool sums_scores_ = false;
  std::unique_ptr<SentencePieceCuts> cuts_;
  std::unique_ptr<Processor> processor_;
  mutable std::once_flag within_words_made_;
  mutable std::unique_ptr<Processor> within_words_;  // made on first use
};

// Returns a folder's only .model, packed or not; empty if there is none, or more than one.
std::string the_model_in(const std::string& folder) {
  std::string found;
  for (const std::string& path : files_in(folder)) {
    if (!ends_with_or_packed(path, ".model")) continue;
    if (!found.empty() && path == found + ".gz") continue;  // the same file, packed
    if (!found.empty()) return {};
    found = path;
  }
  return found;
}
bool reads(const std::string& path) {
  return folder_exists(path) ? !the_model_in(path).empty() : ends_with_or_packed(path, ".model");
}
// Returns whether texts get a space before them, if the folder specifies it: transformers' Llama
// uses tokenizer_config.json, other classes the model.
std::optional<bool> space_in_front(const std::string& folder) {
  std::string path;
  const SortedJson config = object_in(folder, "tokenizer_config.json", path);
  const SortedJson &space = item(config, "add_prefix_space"), &of = item(config, "tokenizer_class");
  if (space.is_null() || !(of.is_null() || of == "LlamaTokenizer" || of == "LlamaTokenizerFast")) return {};
  check_form(space.is_boolean(), space, "add_prefix_space", path, "true or false");
  return space.get<bool>();
}

// A folder's other files may name tokens in addition to the model's pieces.
std::unique_ptr<Tokenizer> read(const std::string& path) {
  const bool folder = folder_exists(path);
  const std::string file = folder ? the_model_in(path) : path, what = "tokenizer: " + file;
  std::string model = read_data_file(file, max_model_bytes);
  if (!folder) return std::make_unique<SentencePiece>(std::move(model), what);
  const std::optional<bool> space = space_in_front(path);
  return std::make_unique<SentencePiece>(std::move(model), what, read_sidecar_tokens(path), space);
}
std::unique_ptr<Tokenizer> restore(const std::string& json) {
  const std::string_view what = unreadable_tokenizer;
  const Json saved = parse_json(json, what);
  SidecarTokens sidecar;
  if (saved.contains("added")) {
    for (const Json& each : list_member(saved, "added", what)) {
      const auto is_true = [&](const char* key) { return each.contains(key) && each[key] == Json(true); };
      const AddedToken one{.number = whole_number_member(each, "number", what),
                           .text = text_member(each, "text", what),
                           .strips_left = is_true("strips_left"),
                           .strips_right = is_true("strips_right"),
                           .normalized = is_true("normalized"),
                           .special = !is_true("ordinary"),
                           .skipped = is_true("skipped")};
      check(one.number >= 0 && !one.text.empty(), what, ": an added token must have a number and a text");
      sidecar.added.push_back(one);
    }
  }
  return std::make_unique<SentencePiece>(bytes_of_base64(text_member(saved, "model", what), what), what, sidecar);
}
// Returns the text or, above `max_bytes` bytes, every k-th line, with the smallest k that fits.
std::string sample_lines(const TextChunks& text, uint64_t max_bytes) {
  uint64_t bytes = 0;
  text.each([&](std::string_view chunk, uint64_t before) {
    check_characters(chunk, before);
    bytes += chunk.size();
  });
  const uint64_t k = (bytes + max_bytes - 1) / max_bytes;
  std::string some;
  uint64_t number = 0;  // of the line
  bool full = false;
  text.each([&](std::string_view chunk, uint64_t) {
    while (!chunk.empty()) {
      const size_t end = std::min(chunk.find('\n'), chunk.size() - 1) + 1;
      full |= number % k == 0 && some.size() + end > max_bytes;
      if (number % k == 0 && !full) some += chunk.substr(0, end);
      number += chunk[end - 1] == '\n';
      chunk.remove_prefix(end);
    }
  });
  return some;
}
std::unique_ptr<Tokenizer> train(const TextChunks& text, const Spec& spec, const TokenizerProgress&) {
  SentencePieceSettings settings;
  read_settings(spec, settings);
  return train_sentence_piece(sample_lines(text, static_cast<uint64_t>(settings.max_bytes)), settings);
}

REGISTER_TOKENIZER(
    sentence_piece,
    {.name = "sentence_piece",
     .description = "pieces trained on the text, sentence_piece(vocabulary=8000, kind=bpe, "
                    "coverage=0.9995, byte_fallback=no, max_bytes=1e8), or read from a .model file: --tokenizer=FILE",
     .read = read,
     .reads = reads,
     .restore = restore,
     .train = train});

}  // namespace

std::unique_ptr<Tokenizer> train_sentence_piece(std::string_view text, const SentencePieceSettings& settings) {
  return std::make_unique<SentencePiece>(train_sentence_piece_model(text, settings), "tokenizer: the trained model");
}

}  // namespace orrery::models
