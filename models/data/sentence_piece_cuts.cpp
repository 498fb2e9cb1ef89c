#include "models/data/sentence_piece_cuts.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "models/formats/unicode.h"

namespace orrery::models {
namespace {

constexpr char32_t space = ' ', escaped_space = 0x2581, nothing = 0xFFFFFFFF;

uint64_t pair_of(char32_t a, char32_t b) { return static_cast<uint64_t>(a) << 32 | b; }

template <class T>
void sort_once(std::vector<T>& all) {
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
}

char32_t first_of(std::string_view text) {
  const auto found = character_if_any(text, 0);
  return found ? found->point : nothing;
}
char32_t last_of(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return first_of(text.substr(at));
}

std::vector<std::string> symbols_in(const std::vector<SentencePieceEntry>& entries) {
  std::vector<std::string> symbols;
  for (const SentencePieceEntry& each : entries)
    if (each.kind == SentencePieceEntry::Kind::user_defined) symbols.push_back(each.piece);
  return symbols;
}

}  // namespace

SentencePieceRules::SentencePieceRules(std::string rules, std::vector<std::string> symbols) : rules_(std::move(rules)) {
  for (std::string& symbol : symbols)
    if (!symbol.empty()) symbols_[static_cast<unsigned char>(symbol[0])].push_back(std::move(symbol));
}

// Reads a double array like Darts-clone; models/data/sentence_piece_model.cpp has its layout.
SentencePieceRules::Replaced SentencePieceRules::first(std::string_view text) const {
  const auto unit = [&](uint64_t index) {
    uint32_t number;
    std::memcpy(&number, rules_.data() + 4 * (index + 1), sizeof number);
    return number;
  };
  const auto below = [](uint32_t node) { return static_cast<uint64_t>(node >> 10) << ((node & 1u << 9) >> 6); };
  const std::string* symbol = nullptr;  // the longest symbol
  bool may_be_symbol = false;           // following text may complete a longer symbol
  for (const std::string& each : symbols_[static_cast<unsigned char>(text[0])]) {
    if (text.starts_with(each) && (!symbol || each.size() > symbol->size())) symbol = &each;
    may_be_symbol |= each.size() > text.size() && each.starts_with(text);
  }
  if (symbol) return {symbol->size(), text.substr(0, symbol->size()), !may_be_symbol};
  Replaced found{0, {}, true};
  if (!rules_.empty()) {
    found.is_certain = false;
    uint32_t bytes;
    std::memcpy(&bytes, rules_.data(), sizeof bytes);
    const char* const texts = rules_.data() + 4 + bytes;
    uint64_t index = below(unit(0));
    for (size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      index ^= byte;
      const uint32_t node = unit(index);
      if ((node & (1u << 31 | 255u)) != byte) {
        found.is_certain = true;
        break;
      }
      index ^= below(node);
      if (node & 1u << 8) found = {i + 1, texts + (unit(index) & 0x7fffffffu), false};
    }
  }
  found.is_certain &= !may_be_symbol;
  if (found.bytes > 0) return found;
  const auto character = character_if_any(text, 0);
  found.bytes = character ? character->bytes : 1;
  found.text = text.substr(0, found.bytes);
  return found;
}

SentencePieceCuts::SentencePieceCuts(SentencePieceInfo info)
    : info_(std::move(info)), rules_(std::move(info_.rules), symbols_in(info_.entries)) {
  using Kind = SentencePieceEntry::Kind;
  for (const auto& [piece, score, kind] : info_.entries) {
    if (kind != Kind::normal && kind != Kind::user_defined && kind != Kind::unused) continue;
    char32_t before = nothing;
    for (size_t at = 0; at < piece.size();) {
      const auto c = character_if_any(piece, at);
      const char32_t point = c ? c->point : nothing;
      if (before != nothing) together_.push_back(pair_of(before, point));
      at += c ? c->bytes : 1;
      if (before == nothing && at == piece.size()) known_.push_back(point);
      before = point;
    }
  }
  info_.entries = {};
  sort_once(known_), sort_once(together_);
}

bool SentencePieceCuts::are_together(char32_t a, char32_t b) const {
  return std::binary_search(together_.begin(), together_.end(), pair_of(a, b));
}
bool SentencePieceCuts::are_unknown(char32_t a, char32_t b) const {
  const auto is_known = [&](char32_t c) { return std::binary_search(known_.begin(), known_.end(), c); };
  return !info_.byte_fallback && !is_known(a) && !is_known(b);
}

std::string SentencePieceCuts::with_short_runs(std::string_view text) const {
  constexpr size_t longest = size_t{1} << 16;
  if (!info_.in_a_row_are_one) return {};
  std::array<bool, 256> is_space = {};
  for (const char c : {' ', '\t', '\n', '\r'})
    is_space[static_cast<unsigned char>(c)] = rules_.first(std::string_view(&c, 1)).text == " ";
  std::string shorter;
  size_t taken = 0;  // bytes
  for (size_t at = 0; at < text.size(); ++at) {
    size_t end = at;
    while (end < text.size() && is_space[static_cast<unsigned char>(text[end])]) ++end;
    if (end - at > longest) shorter += text.substr(taken, at + 1 - taken), taken = end;
    at = end;
  }
  return taken > 0 ? shorter.append(text.substr(taken)) : std::string();
}

void SentencePieceCuts::each(std::string_view text, size_t spacing, bool more,
                             const std::function<void(const Cut&)>& take) const {
  if (info_.finds_words) return;  // consecutive unknown words are one token
  const char32_t written_space = info_.are_escaped ? escaped_space : space;
  // A part gets a space where the text was split, or keeps the text's.
  const bool divides_at_spaces = info_.one_in_front || !info_.in_a_row_are_one;
  char32_t a = space;
  size_t last = 0;                  // position of the last cut
  std::optional<Cut> behind_space;  // cut after the space a, if it ends a piece
  for (size_t at = 0; at < text.size();) {
    const SentencePieceRules::Replaced here = rules_.first(text.substr(at));
    if (more && !here.is_certain) return;
    if (!here.text.empty()) {
      const char32_t b = first_of(here.text);
      if (behind_space && b != space && b != escaped_space && b != nothing && are_apart(written_space, b))
        take(*behind_space), last = behind_space->begin;
      behind_space.reset();
      const bool certain = a != space && a != escaped_space && a != nothing && b != escaped_space && b != nothing;
      if (certain && b == space && info_.end_pieces) {
        const size_t behind = at + here.bytes;
        if (divides_at_spaces && here.text == " ") behind_space = {info_.one_in_front ? at : behind, behind, false};
      } else if (certain && b == space) {
        const size_t begin = info_.one_in_front ? at + here.bytes : at;
        // Spaces at the end are tokens if they are not dropped, so the next part must not be empty.
        const bool whole = here.text == " " && (begin < text.size() || info_.in_a_row_are_one);
        if (divides_at_spaces && whole && are_apart(a, written_space)) take({at, begin, false}), last = at;
      } else if (certain && at - last >= spacing && !are_together(a, b)) {
        take({at, at, true, are_unknown(a, b)}), last = at;
      }
      a = last_of(here.text);
    }
    at += here.bytes;
  }
}

}  // namespace orrery::models
