#include "models/data/sentence_piece_model.h"

#include <cstdint>
#include <cstring>
#include <functional>

#include "engine/base/check.h"

namespace orrery::models {
namespace {

// Base 128, seven bits a byte, the lowest first; removed from the front of the message.
uint64_t take_number(std::string_view& message, std::string_view what) {
  uint64_t number = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    check(!message.empty(), what, ": this is no SentencePiece model (it ends in a number)");
    const auto byte = static_cast<unsigned char>(message[0]);
    message.remove_prefix(1);
    number |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) return number;
  }
  fail(what, ": this is no SentencePiece model (a number of more than 64 bits)");
}

// Each field of the message that holds bytes, by its number, and each that holds a whole number; the others are passed
// over.
void each_field(
    std::string_view message, std::string_view what,
    const std::function<void(uint64_t field, std::string_view bytes)>& take,
    const std::function<void(uint64_t field, uint64_t number)>& take_whole = [](uint64_t, uint64_t) {}) {
  while (!message.empty()) {
    const uint64_t key = take_number(message, what), kind = key & 7;
    if (kind == 0) {
      take_whole(key >> 3, take_number(message, what));
      continue;
    }
    check(kind == 1 || kind == 2 || kind == 5, what, ": this is no SentencePiece model (a field of kind ", kind, ")");
    const uint64_t bytes = kind == 1 ? 8 : kind == 5 ? 4 : take_number(message, what);
    check(bytes <= message.size(), what, ": this is no SentencePiece model (a field of ", bytes, " bytes, where ",
          message.size(), " are left)");
    if (kind == 2) take(key >> 3, message.substr(0, bytes));
    message.remove_prefix(bytes);
  }
}

uint32_t word(std::string_view bytes, uint64_t place) {
  uint32_t number;
  std::memcpy(&number, bytes.data() + 4 * place, sizeof number);
  return number;
}

// The trie's size in bytes, the trie, and texts with a zero after each.  The trie is a double array of words, as
// Darts-clone has it: from the node at p, the child by byte c is at p ^ offset ^ c if that one's label is c, and its
// value, a place in the texts, is at p ^ offset.  A word with the highest bit is a value and nobody's child.
void check_rules(std::string_view rules, std::string_view what) {
  if (rules.empty()) return;
  const auto whole = [&](bool holds) {
    check(holds, what, ": the rules of normalization in this SentencePiece model are damaged");
  };
  whole(rules.size() > 4);
  const uint64_t bytes = word(rules, 0), words = bytes / 4;
  whole(bytes > 0 && bytes % 4 == 0 && bytes < rules.size() - 4);
  const std::string_view trie = rules.substr(4, bytes), texts = rules.substr(4 + bytes);
  whole(texts.ends_with('\0'));
  for (uint64_t p = 0; p < words; ++p) {
    const uint32_t unit = word(trie, p);
    if (unit >> 31) continue;
    const uint64_t node = p ^ static_cast<uint64_t>(unit >> 10) << ((unit & 1u << 9) >> 6);
    whole((node | 255) < words);
    if (unit & 1u << 8) whole((word(trie, node) & 0x7fffffffu) < texts.size());
  }
}

void add_number(std::string& message, uint64_t number) {
  for (; number >= 128; number >>= 7) message += static_cast<char>((number & 127) | 128);
  message += static_cast<char>(number);
}
void add_key(std::string& message, uint64_t field, uint64_t kind) { add_number(message, field << 3 | kind); }
void add_number_field(std::string& message, uint64_t field, uint64_t number) {
  add_key(message, field, 0);
  add_number(message, number);
}
void add_bytes_field(std::string& message, uint64_t field, std::string_view bytes) {
  add_key(message, field, 2);
  add_number(message, bytes.size());
  message += bytes;
}
void add_float_field(std::string& message, uint64_t field, float number) {
  add_key(message, field, 5);
  message.append(reinterpret_cast<const char*>(&number), sizeof number);
}

constexpr uint64_t sums_scores = 1, merges_pairs = 2;  // kinds of models in the trainer's settings

// What a model says of spaces, as far as sentence_piece_spaces asks.
struct Spaces {
  std::string rules = "nmt_nfkc";  // sentencepiece_model.proto's own defaults
  uint64_t kind = sums_scores;
  bool one_in_front = true, in_a_row_are_one = true, are_escaped = true, end_pieces = false;
  bool is_a_piece = false, stand_within_pieces = false;

  void read_piece(std::string_view piece) {
    constexpr std::string_view escaped = "\xE2\x96\x81";
    is_a_piece |= piece == escaped;
    stand_within_pieces |= piece.find(' ') != piece.npos || (!piece.empty() && piece.find(escaped, 1) != piece.npos);
  }
  void read_trainer(uint64_t field, uint64_t number) {
    if (field == 3) kind = number;
    if (field == 24) end_pieces = number != 0;
  }
  void read_normalizer(uint64_t field, uint64_t number) {
    if (field == 3) one_in_front = number != 0;
    if (field == 4) in_a_row_are_one = number != 0;
    if (field == 5) are_escaped = number != 0;
  }
};

}  // namespace

SentencePieceSpaces sentence_piece_spaces(std::string_view model, std::string_view what) {
  constexpr uint64_t pieces = 1, trainer = 2, normalizer = 3;
  Spaces s;
  const auto none = [](uint64_t, std::string_view) {};
  each_field(model, what, [&](uint64_t field, std::string_view part) {
    if (field == pieces)
      each_field(part, what, [&](uint64_t of_part, std::string_view text) {
        if (of_part == 1) s.read_piece(text);
      });
    if (field == trainer)
      each_field(part, what, none, [&](uint64_t of_part, uint64_t number) { s.read_trainer(of_part, number); });
    if (field == normalizer)
      each_field(
          part, what,
          [&](uint64_t of_part, std::string_view text) {
            if (of_part == 1) s.rules = text;
          },
          [&](uint64_t of_part, uint64_t number) { s.read_normalizer(of_part, number); });
  });
  const bool sums = s.kind == sums_scores;
  if ((!sums && s.kind != merges_pairs) || !s.is_a_piece || s.stand_within_pieces || s.end_pieces || !s.one_in_front ||
      !s.in_a_row_are_one || !s.are_escaped)
    return {};
  if (s.rules == "nmt_nfkc" || s.rules == "nmt_nfkc_cf") return {" \n", sums};
  return {s.rules == "nfkc" || s.rules == "nfkc_cf" || s.rules == "identity" ? " " : "", sums};
}

// The fields' numbers are those of sentencepiece_model.proto.
std::string sentence_piece_model(const std::vector<SentencePieceEntry>& pieces) {
  std::string model, trainer, normalizer;
  bool bytes = false;
  for (const SentencePieceEntry& each : pieces) {
    std::string piece;
    add_bytes_field(piece, 1, each.piece);
    add_float_field(piece, 2, each.score);
    add_number_field(piece, 3, static_cast<uint64_t>(each.kind));
    add_bytes_field(model, 1, piece);
    bytes |= each.kind == SentencePieceEntry::Kind::byte;
  }
  add_number_field(trainer, 3, merges_pairs);
  add_number_field(trainer, 4, pieces.size());
  add_number_field(trainer, 35, bytes);  // an unknown character as its bytes
  for (uint64_t token = 0; token < 3; ++token) add_number_field(trainer, 40 + token, token);
  add_bytes_field(model, 2, trainer);
  add_bytes_field(normalizer, 1, "identity");
  add_number_field(normalizer, 3, 1);  // a space in front
  add_number_field(normalizer, 4, 0);  // spaces in a row stay
  add_number_field(normalizer, 5, 1);  // spaces are U+2581
  add_bytes_field(model, 3, normalizer);
  return model;
}

void check_sentence_piece_model(std::string_view model, std::string_view what) {
  constexpr uint64_t normalizer = 3, denormalizer = 5, rules = 2;  // numbers of sentencepiece_model.proto
  each_field(model, what, [&](uint64_t field, std::string_view part) {
    if (field == normalizer || field == denormalizer)
      each_field(part, what, [&](uint64_t of_part, std::string_view bytes) {
        if (of_part == rules) check_rules(bytes, what);
      });
  });
}

}  // namespace orrery::models
