#include "models/data/sentence_piece_model.h"

#include <cstdint>
#include <cstring>
#include <functional>

#include "engine/types/check.h"

namespace orrery::models {
namespace {

// Takes a number in base 128 (7 bits per byte, lowest first) from the front of the message.
uint64_t take_number(std::string_view& message, std::string_view what) {
  uint64_t number = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    check(!message.empty(), what, ": not a SentencePiece model (it ends within a number)");
    const auto byte = static_cast<unsigned char>(message[0]);
    message.remove_prefix(1);
    number |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) return number;
  }
  fail(what, ": not a SentencePiece model (a number of more than 64 bits)");
}

// Passes each field with bytes or an f32 to `take`, by its number, and each field with a whole
// number to `take_whole`; skips the others.
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
    check(kind == 1 || kind == 2 || kind == 5, what, ": not a SentencePiece model (unknown field kind ", kind, ")");
    const uint64_t bytes = kind == 1 ? 8 : kind == 5 ? 4 : take_number(message, what);
    check(bytes <= message.size(), what, ": not a SentencePiece model (a field has ", bytes, " bytes, but ",
          message.size(), " are left)");
    if (kind == 2 || kind == 5) take(key >> 3, message.substr(0, bytes));
    message.remove_prefix(bytes);
  }
}

uint32_t word(std::string_view bytes, uint64_t index) {
  uint32_t number;
  std::memcpy(&number, bytes.data() + 4 * index, sizeof number);
  return number;
}

// Checks the trie's size in bytes, the trie, and zero-terminated texts. The trie is Darts-clone's
// array of 32-bit words: from the node at p, the child for byte c is at p ^ offset ^ c if its label
// is c, and the value, an offset in the texts, is at p ^ offset. The highest bit marks a value.
void check_rules(std::string_view rules, std::string_view what) {
  if (rules.empty()) return;
  const auto whole = [&](bool holds) {
    check(holds, what, ": the normalization rules of this SentencePiece model are damaged");
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

// The fields' numbers are those of sentencepiece_model.proto, here and below.
constexpr uint64_t pieces_field = 1, trainer_field = 2, normalizer_field = 3, denormalizer_field = 5;
constexpr uint64_t rules_field = 2, one_in_front_field = 3, in_a_row_are_one_field = 4, are_escaped_field = 5;
constexpr uint64_t sums_scores = 1, merges_pairs = 2, finds_words = 3;  // kinds of models in the trainer's settings

SentencePieceEntry read_piece(std::string_view part, std::string_view what) {
  SentencePieceEntry piece{"", 0, SentencePieceEntry::Kind::normal};
  each_field(
      part, what,
      [&](uint64_t field, std::string_view bytes) {
        if (field == 1) piece.piece = bytes;
        if (field == 2 && bytes.size() == sizeof piece.score)
          std::memcpy(&piece.score, bytes.data(), sizeof piece.score);
      },
      [&](uint64_t field, uint64_t number) {
        if (field == 3) piece.kind = static_cast<SentencePieceEntry::Kind>(number);
      });
  return piece;
}

}  // namespace

SentencePieceInfo sentence_piece_info(std::string_view model, std::string_view what) {
  SentencePieceInfo info;
  each_field(model, what, [&](uint64_t field, std::string_view part) {
    if (field == pieces_field) info.entries.push_back(read_piece(part, what));
    if (field != trainer_field && field != normalizer_field && field != denormalizer_field) return;
    each_field(
        part, what,
        [&](uint64_t of_part, std::string_view text) {
          if (field == trainer_field || of_part != rules_field) return;
          check_rules(text, what);
          if (field == normalizer_field) info.rules = text;
        },
        [&](uint64_t of_part, uint64_t number) {
          if (field == trainer_field && of_part == 3)
            info.sums_scores = number == sums_scores, info.finds_words = number == finds_words;
          if (field == trainer_field && of_part == 24) info.end_pieces = number != 0;
          if (field == trainer_field && of_part == 35) info.byte_fallback = number != 0;
          if (field != normalizer_field) return;
          if (of_part == one_in_front_field) info.one_in_front = number != 0;
          if (of_part == in_a_row_are_one_field) info.in_a_row_are_one = number != 0;
          if (of_part == are_escaped_field) info.are_escaped = number != 0;
        });
  });
  return info;
}

// Fields as in sentencepiece.proto; protobuf omits no number here, because the fields are optional.
std::vector<SentencePieceToken> sentence_piece_tokens(std::string_view message, std::string_view what) {
  std::vector<SentencePieceToken> tokens;
  each_field(message, what, [&](uint64_t field, std::string_view part) {
    if (field != 2) return;
    SentencePieceToken& token = tokens.emplace_back();
    each_field(
        part, what, [](uint64_t, std::string_view) {},
        [&](uint64_t of_part, uint64_t number) {
          if (of_part == 2) token.number = static_cast<int32_t>(number);
          if (of_part == 5) token.end = number;
        });
  });
  return tokens;
}

// If a field occurs twice, protobuf merges the two messages, and the last number counts.
std::string with_space_in_front(std::string model, bool space) {
  std::string normalizer;
  add_number_field(normalizer, one_in_front_field, space);
  add_bytes_field(model, normalizer_field, normalizer);
  return model;
}

std::string sentence_piece_model(const std::vector<SentencePieceEntry>& pieces) {
  std::string model, trainer, normalizer;
  bool bytes = false;
  for (const SentencePieceEntry& each : pieces) {
    std::string piece;
    add_bytes_field(piece, 1, each.piece);
    add_float_field(piece, 2, each.score);
    add_number_field(piece, 3, static_cast<uint64_t>(each.kind));
    add_bytes_field(model, pieces_field, piece);
    bytes |= each.kind == SentencePieceEntry::Kind::byte;
  }
  add_number_field(trainer, 3, merges_pairs);
  add_number_field(trainer, 4, pieces.size());
  add_number_field(trainer, 35, bytes);  // an unknown character as its bytes
  for (uint64_t token = 0; token < 3; ++token) add_number_field(trainer, 40 + token, token);
  add_bytes_field(model, trainer_field, trainer);
  add_bytes_field(normalizer, 1, "identity");
  add_number_field(normalizer, one_in_front_field, 1);
  add_number_field(normalizer, in_a_row_are_one_field, 0);
  add_number_field(normalizer, are_escaped_field, 1);  // as U+2581
  add_bytes_field(model, normalizer_field, normalizer);
  return model;
}

}  // namespace orrery::models
