// Masks by name: which keys a query attends to, by the positions of both in their sequence.
//
//   mask = term {"or" term}     term = factor {"and" factor}     factor = "(" mask ")" | NAME | NAME(setting, ...)
//
// Each name is one file of nn/masks, with nn/masks/base/formula.h. What `causal` and `window` demand of every pair is a
// band of distances, which the kernels compute; the rest is a table of L^2 bits and, for its tiles, 1/512 of that.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/attention/attention.h"
#include "engine/attention_formula/problem.h"
#include "nn/base/entry.h"

namespace orrery::nn {

struct Positions {  // [begin, end)
  int64_t begin, end;
};
struct MaskArea {  // queries and keys of a table, and the positions of the first of each; a cache changes no position
  int64_t queries, keys, first_query = 0, first_key = 0;
  bool operator==(const MaskArea&) const = default;
};
struct MaskBand {
  bool causal = false;
  int64_t window = 0;  // only keys at a smaller distance are visible; 0: all
};
// Facts that a formula states, or an expression by its parts.
struct MaskFacts {
  std::optional<MaskBand> band = {};  // none: the mask is not a band of distances
  std::optional<int64_t> later = {};  // no token from this position on sees a later one; none: unknown
  bool differs_by_layer = false;
};

class MaskFormula {
 public:
  virtual ~MaskFormula() = default;
  virtual bool visible(int64_t i, int64_t j) const = 0;
  virtual std::optional<Coverage> coverage(Positions i, Positions j) const = 0;  // none: not stated
  virtual MaskFacts facts() const = 0;
  virtual void set_layer(int64_t layer) = 0;
  virtual void write(Device device, const MaskArea& area, const MaskTable& to) const = 0;
};

class NamedMask {
 public:
  // `context`: length of the tables of whole sequences on a GPU, 0: as needed; `layer`: number of the block.
  explicit NamedMask(std::string_view expression, int64_t context = 0, int64_t layer = 0);
  bool visible(int64_t i, int64_t j) const { return root_->visible(i, j); }
  const MaskFacts& facts() const { return facts_; }
  const MaskBand& band() const { return *facts_.band; }  // that of its outermost parts
  bool has_table() const { return !rest_.parts.empty(); }
  // Narrows `mask` to the keys that this one leaves.
  void narrow(AttentionMask& mask, const MaskArea& area, Device device) const;

  struct Node : PairRule {  // a formula, or parts joined by `and` or `or`
    Spec spec = {};         // of the formula
    std::unique_ptr<MaskFormula> formula = {};
    std::vector<std::shared_ptr<const Node>> parts = {};
    bool is_and = true;
    bool visible(int64_t i, int64_t j) const override;
    MaskFacts facts() const;
  };
  const Node& root() const { return *root_; }

 private:
  struct Made {
    Device device;
    MaskArea area;
    MaskTable table;
  };
  const MaskTable& table_for(const MaskArea& area, Device device) const;

  int64_t context_;
  std::shared_ptr<const Node> root_;
  Node rest_;  // the parts of the outermost `and` without a band
  MaskFacts facts_;
  // Tables of whole sequences stay, since a replayed CUDA graph reads them.
  mutable std::deque<Made> whole_;
  mutable std::optional<Made> last_;  // of a pass after a cache; its layers share it
};

int64_t mask_table_bytes(int64_t tokens);  // of a table for a whole sequence
int64_t kept_mask_bytes();                 // of all tables of whole sequences made so far

using MaskEntry = Entry<MaskFormula>;
Registry<MaskEntry>& masks();

}  // namespace orrery::nn
