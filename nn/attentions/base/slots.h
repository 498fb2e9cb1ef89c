// Persistent slots: learned keys and values that every query reads jointly with the context.
// Sukhbaatar et al. 2019, arXiv:1907.01470.
//
//   slots(N, split=no, scaled=yes)
//
// scaled: kappa ~ N(0, 1) / sqrt(D) and nu ~ N(0, 1) / sqrt(N) are stored, K = sqrt(D) kappa and V = sqrt(N) nu are
// used; the vectors in use are N(0, 1) either way, but an optimizer that normalizes gradients takes steps sqrt(D) and
// sqrt(N) times as large.  Otherwise N(0, 1) is stored and used. split: o = o_context + o_slots, each read on its own
// (the ablation).
#pragma once

#include "nn/attentions/base/fused.h"
#include "nn/base/entry.h"
#include "nn/base/module.h"

namespace orrery::nn {

struct SlotKeysAndValues {
  Tensor key, value;  // (N, Hk, D), (N, Hk, Dv)
};

Info slots_setting();                   // catalogue row
Spec resolved_slots(const Spec& spec);  // with all settings by name, N as slots(N, ...); none stays

class Slots final : public Module {
 public:
  Slots(const Spec& spec, int64_t key_heads, int64_t head_size);
  bool split() const { return split_; }
  int64_t count() const { return count_; }
  SlotKeysAndValues use() const;
  void store(const SlotKeysAndValues& used);  // so that `use` gives these numbers
  Tensor forward(const Tensor& x, Pass&) override { return x; }
  void visit(Visitor& v) override;

 private:
  int64_t count_ = 0;
  bool split_ = false, scaled_ = true;
  Parameter key_, value_;
};

// Slots as the only keys, which every token reads: x (..., Hk D) -> (..., Hk Dv).  Without a function: softmax over the
// slots.  Of the options scale, soft_cap and dropout have a meaning here.
Tensor read_slots(const Tensor& x, const SlotKeysAndValues& slots, const AttentionOptions& options,
                  const std::optional<Activation>& function = {});
// What attention gets for that: the tokens ask, and there is no context.
AttentionInputs slots_alone(const Tensor& x, const SlotKeysAndValues& slots);

}  // namespace orrery::nn
