// The registry of masks, the parser of expressions, and tables.
#include "nn/masks/base/mask.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "engine/types/ascii.h"
#include "engine/types/usage_error.h"
#include "nn/base/spec_family.h"
#include "nn/masks/base/formula.h"

namespace orrery::nn {

Registry<MaskEntry>& masks() {
  static Registry<MaskEntry> all("mask");
  return all;
}
const bool family_of_masks = add_spec_family<masks>("mask");

namespace {

using Node = std::shared_ptr<const NamedMask::Node>;

// Returns the parts of the text between occurrences of a word outside of parentheses.
std::vector<std::string_view> split(std::string_view text, std::string_view word) {
  const auto is_edge = [&](size_t i) { return i >= text.size() || (!is_letter_or_digit(text[i]) && text[i] != '_'); };
  std::vector<std::string_view> parts;
  size_t begin = 0;
  for (size_t at = 0, level = 0; at < text.size(); ++at) {
    level += text[at] == '(', level -= text[at] == ')' && level > 0;
    const bool found = level == 0 && text.substr(at).starts_with(word) && is_edge(at - 1) && is_edge(at + word.size());
    if (found) parts.push_back(text.substr(begin, at - begin)), begin = at + word.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

Node parsed(std::string_view text, int64_t layer, int depth = 0) {
  constexpr int max_depth = 32;
  check_usage(depth <= max_depth, "mask: more than ", max_depth, " levels of parentheses; use fewer");
  text = trimmed(text);
  check_usage(!text.empty(), "mask: a name such as causal must be on both sides of `and` and `or`, and in parentheses");
  auto all = std::make_shared<NamedMask::Node>();
  for (const bool is_and : {false, true}) {  // `or` first: its parts are joined by `and`
    const std::vector<std::string_view> parts = split(text, is_and ? "and" : "or");
    if (parts.size() == 1) continue;
    all->is_and = is_and;
    for (const std::string_view part : parts) all->parts.push_back(parsed(part, layer, depth));
    return all;
  }
  if (text.front() == '(' && text.back() == ')') return parsed(text.substr(1, text.size() - 2), layer, depth + 1);
  int64_t level = 0;
  const bool is_one = std::ranges::all_of(text, [&](char c) {
    level += (c == '(') - (c == ')');
    return level > 0 || c == ')' || c == '_' || is_letter_or_digit(c);
  });
  check_usage(is_one && level == 0, "mask: '", text,
              "' is not a mask; give a name, such as window(256), or join several by `and`, `or` and parentheses");
  all->spec = as_usage([&] { return parse_spec(text); }, [](const char* why) { return std::string("mask: ") + why; });
  (all->formula = make_from(masks(), all->spec))->set_layer(layer);
  return all;
}

// The words of two tables of one area, joined.
struct JoinedWords {
  const int32_t *a, *b;
  int64_t words;
  bool is_and;
  HOST_DEVICE Coverage coverage(Positions, Positions) const { return Coverage::some; }
  HOST_DEVICE uint32_t operator()(int64_t i, int64_t w) const {
    const auto x = static_cast<uint32_t>(a[i * words + w]), y = static_cast<uint32_t>(b[i * words + w]);
    return is_and ? x & y : x | y;
  }
};

MaskTable table_of(const NamedMask::Node& node, const MaskArea& area, Device device) {
  if (node.formula) {
    constexpr int64_t side = MaskView::tile;
    const int64_t rows = (area.queries + side - 1) / side, columns = (area.keys + side - 1) / side;
    const MaskTable table = {Tensor::empty(Shape{rows * side, columns * (side / 32)}, Dtype::i32, device),
                             Tensor::empty(Shape{(rows * columns + 3) / 4}, Dtype::i32, device)};
    node.formula->write(device, area, table);
    return table;
  }
  const MaskTable all = table_of(*node.parts[0], area, device);
  for (size_t n = 1; n < node.parts.size(); ++n) {
    const MaskTable one = table_of(*node.parts[n], area, device);
    const int32_t *const a = all.bits.data<int32_t>(), *const b = one.bits.data<int32_t>();
    write_tiles(device, area, JoinedWords{a, b, all.bits.size(1), node.is_and}, all);
  }
  return all;
}

std::atomic<int64_t> kept_bytes = 0;

}  // namespace

bool NamedMask::Node::visible(int64_t i, int64_t j) const {
  if (formula) return formula->visible(i, j);
  const auto sees = [&](const auto& part) { return part->visible(i, j); };
  return is_and ? std::all_of(parts.begin(), parts.end(), sees) : std::any_of(parts.begin(), parts.end(), sees);
}
MaskFacts NamedMask::Node::facts() const {
  if (formula) return formula->facts();
  MaskFacts all = parts[0]->facts();
  all.band.reset();
  for (size_t n = 1; n < parts.size(); ++n) {
    const MaskFacts one = parts[n]->facts();
    all.differs_by_layer |= one.differs_by_layer;
    if (all.later && one.later)
      all.later = is_and ? std::min(*all.later, *one.later) : std::max(*all.later, *one.later);
    else
      all.later = !is_and ? std::nullopt : all.later ? all.later : one.later;
  }
  return all;
}

NamedMask::NamedMask(std::string_view expression, int64_t context, int64_t layer)
    : context_(context), root_(parsed(expression, layer)), facts_(root_->facts()) {
  MaskBand band;
  for (const auto& part : root_->formula || !root_->is_and ? std::vector{root_} : root_->parts)
    if (const std::optional<MaskBand> one = part->facts().band) {
      band.causal |= one->causal;
      band.window = band.window && one->window ? std::min(band.window, one->window) : band.window + one->window;
    } else {
      rest_.parts.push_back(part);
    }
  facts_.band = band;
}

const MaskTable& NamedMask::table_for(const MaskArea& area, Device device) const {
  const auto make = [&](const MaskArea& all) { return Made{device, all, table_of(rest_, all, device)}; };
  if (area != MaskArea{area.queries, area.queries}) {  // after a cache
    if (!last_ || last_->device != device || last_->area != area) last_ = make(area);
    return last_->table;
  }
  for (const Made& made : whole_)
    if (made.device == device && made.area.queries >= area.queries) return made.table;
  // A CUDA graph must never make one, so there the first is long enough; else they double.
  const auto doubled = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(area.queries)));
  const int64_t tokens = std::max(area.queries, device == Device::cuda ? context_ : std::min(context_, doubled));
  kept_bytes += mask_table_bytes(tokens);
  return whole_.emplace_back(make({tokens, tokens})).table;
}

void NamedMask::narrow(AttentionMask& mask, const MaskArea& area, Device device) const {
  mask.causal = band().causal;
  if (const int64_t window = band().window; window > 0)
    mask.window = mask.window > 0 ? std::min(mask.window, window) : window;
  mask.rule = root_;
  if (has_table()) mask.table = table_for(area, device);
}

int64_t mask_table_bytes(int64_t tokens) {
  const int64_t tiles = (tokens + MaskView::tile - 1) / MaskView::tile;
  return tiles * tiles * (MaskView::tile * MaskView::tile / 8 + 1);
}
int64_t kept_mask_bytes() { return kept_bytes; }

}  // namespace orrery::nn
