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

class MaskParser {
 public:
  MaskParser(std::string_view text, int64_t layer) : text_(text), layer_(layer) {}
  Node whole() {
    Node all = joined(false);
    if (at_ < text_.size()) fail_here("and, or, or the end");
    return all;
  }

 private:
  // Reads parts with `and` or `or` between them; parts of an `or` are joined by `and`.
  Node joined(bool is_and) {
    auto all = std::make_shared<NamedMask::Node>();
    all->is_and = is_and;
    do all->parts.push_back(is_and ? factor() : joined(true));
    while (take(is_and ? "and" : "or"));
    return all->parts.size() == 1 ? all->parts[0] : all;
  }
  Node factor() {
    if (take("(")) {
      check_usage(++depth_ <= max_depth, "mask: '", orrery::detail::shortened(text_), "' has more than ", max_depth,
                  " levels of parentheses");
      Node all = joined(false);
      if (!take(")")) fail_here("and, or, or ')'");
      return --depth_, all;
    }
    const size_t begin = at_, end = end_of_spec();
    if (end == begin || word() == "and" || word() == "or") fail_here("a name such as causal, or '('");
    auto leaf = std::make_shared<NamedMask::Node>();
    leaf->formula = make_from(masks(), parse_spec(text_.substr(begin, end - begin)));
    leaf->formula->set_layer(layer_);
    at_ = end, skip_space();
    return leaf;
  }
  std::string_view word() const {
    size_t end = at_;
    while (end < text_.size() && (is_letter_or_digit(text_[end]) || text_[end] == '_')) ++end;
    return text_.substr(at_, end - at_);
  }
  size_t end_of_spec() const {  // a name, and all up to the parenthesis that closes its settings
    size_t end = at_ + word().size(), open = text_.find_first_not_of(" \t", end);
    if (end == at_ || open == text_.npos || text_[open] != '(') return end;
    int64_t level = 0;
    for (end = open; end < text_.size(); ++end)
      if ((level += (text_[end] == '(') - (text_[end] == ')')) == 0) return end + 1;
    return end;
  }
  bool take(std::string_view what) {
    if (what.size() > 1 ? word() != what : !text_.substr(at_).starts_with(what)) return false;
    at_ += what.size(), skip_space();
    return true;
  }
  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t", at_), text_.size()); }
  [[noreturn]] void fail_here(const char* expected) const {
    throw UsageError(text("mask: '", orrery::detail::shortened(text_), "' must have ", expected, " at position ",
                          at_ + 1));
  }

  static constexpr int max_depth = 32;
  std::string_view text_;
  int64_t layer_;
  size_t at_ = 0;
  int depth_ = 0;
};

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

MaskTable empty_table(const MaskArea& area, Device device) {
  constexpr int64_t side = MaskView::tile;
  const int64_t rows = (area.queries + side - 1) / side, columns = (area.keys + side - 1) / side;
  return {Tensor::empty(Shape{rows * side, columns * (side / 32)}, Dtype::i32, device),
          Tensor::empty(Shape{(rows * columns + 3) / 4}, Dtype::i32, device)};
}
MaskTable table_of(const NamedMask::Node& node, const MaskArea& area, Device device);
MaskTable table_of(const std::vector<Node>& parts, bool is_and, const MaskArea& area, Device device) {
  const MaskTable all = table_of(*parts[0], area, device);
  for (size_t n = 1; n < parts.size(); ++n) {
    const MaskTable one = table_of(*parts[n], area, device);
    write_tiles(device, area,
                JoinedWords{all.bits.data<int32_t>(), one.bits.data<int32_t>(), all.bits.size(1), is_and}, all);
  }
  return all;
}
MaskTable table_of(const NamedMask::Node& node, const MaskArea& area, Device device) {
  if (!node.formula) return table_of(node.parts, node.is_and, area, device);
  const MaskTable table = empty_table(area, device);
  node.formula->write(device, area, table);
  return table;
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
    : expression_(expression),
      context_(context),
      root_(MaskParser(expression_, layer).whole()),
      facts_(root_->facts()) {
  MaskBand band;
  for (const auto& part : root_->formula || !root_->is_and ? std::vector{root_} : root_->parts)
    if (const std::optional<MaskBand> one = part->facts().band) {
      band.causal |= one->causal;
      band.window = band.window && one->window ? std::min(band.window, one->window) : band.window + one->window;
    } else {
      rest_.push_back(part);
    }
  facts_.band = band;
}

std::shared_ptr<const NamedMask> NamedMask::of_layer(int64_t layer) const {
  return std::make_shared<const NamedMask>(expression_, context_, layer);
}

const MaskTable& NamedMask::table_for(const MaskArea& area, Device device) const {
  const bool is_whole = area.queries == area.keys && area.first_query == 0 && area.first_key == 0;
  if (!is_whole) {
    if (!last_ || last_->device != device || last_->area != area)
      last_ = Made{device, area, table_of(rest_, true, area, device)};
    return last_->table;
  }
  for (const Made& made : whole_)
    if (made.device == device && made.area.queries >= area.queries) return made.table;
  // A CUDA graph must never make one, so there the first is long enough; else they double.
  const auto doubled = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(area.queries)));
  const int64_t tokens = std::max(area.queries, device == Device::cuda ? context_ : std::min(context_, doubled));
  const MaskArea all{tokens, tokens};
  whole_.push_back({device, all, table_of(rest_, true, all, device)});
  kept_bytes += mask_table_bytes(tokens);
  return whole_.back().table;
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
