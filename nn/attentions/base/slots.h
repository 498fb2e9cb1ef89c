// Persistent slots: learned keys and values that every query attends to along with the context.
// Sukhbaatar et al. 2019, arXiv:1907.01470.
//
//   slots(N, split=no, scaled=yes)
//
// scaled=yes: stores kappa ~ N(0, 1) / sqrt(D) and nu ~ N(0, 1) / sqrt(N), uses K = sqrt(D) kappa and V = sqrt(N) nu. K
// and V are N(0, 1), but an optimizer that normalizes gradients steps sqrt(D) and sqrt(N) times as far. scaled=no:
// stores and uses N(0, 1). split=yes: o = o_context + o_slots, two separate attentions (the ablation).
#pragma once

#include "nn/attentions/base/fused.h"
#include "nn/base/entry.h"
#include "nn/base/module.h"

namespace orrery::nn {

struct SlotKeysAndValues {
  Tensor key, value;  // (N, Hk, D), (N, Hk, Dv)
};

Info slots_setting();                   // catalogue row
Spec resolved_slots(const Spec& spec);  // with all settings by name; N becomes slots(N, ...), none stays

class Slots final : public Module {
 public:
  Slots(const Spec& spec, int64_t kv_heads, int64_t head_size);
  bool split() const { return split_; }
  int64_t count() const { return count_; }
  SlotKeysAndValues keys_and_values() const;
  void store(const SlotKeysAndValues& used);  // makes keys_and_values return these
  Tensor forward(const Tensor& x, ForwardPass&) override { return x; }
  void visit(Visitor& v) override;

 private:
  int64_t count_ = 0;
  bool split_ = false, scaled_ = true;
  Parameter key_, value_;
};

// Attends from x (..., Hk D) to the slots as the only keys; returns (..., Hk Dv). Without a function: softmax over the
// slots. parameters: those of the function. Uses only scale, soft_cap and dropout of the options.
Tensor attend_to_slots(const Tensor& x, const SlotKeysAndValues& slots, const AttentionOptions& options,
                       const std::optional<Activation>& function = {}, const Tensor& parameters = {});
// Returns the inputs of this attention: the tokens are the queries, and the context is empty.
AttentionInputs slot_inputs(const Tensor& x, const SlotKeysAndValues& slots);
AttentionInputs slot_inputs_of(const Tensor& query, const SlotKeysAndValues& slots);  // likewise; (B, Tq, H, D)

}  // namespace orrery::nn
