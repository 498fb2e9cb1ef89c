// Weights F(s) with F = softplus, not normalized:  o_i = sum_j softplus(<q_i, k_j> / sqrt(D)) v_j
#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "nn/attentions/base/cases.h"

namespace orrery::nn {
namespace {

class DroppedAttention final : public AttentionLayer {
 public:
  struct Settings {
    AttentionSettings layer;
    template <class V>
    void visit(V& v) {
      layer.visit(v);
    }
  };
  static inline const Info info{.name = "dropped_attention",
                                .formula = "o_i = sum_j softplus(<q_i, k_j> / sqrt(D)) v_j",
                                .source = "a test",
                                .parameters = "as softmax",
                                .saves = "q, k, v"};

  DroppedAttention(const Spec& spec, const AttentionLayerOptions& options)
      : AttentionLayer(info.name, settings_from<Settings>(spec).layer, options, {.span = false, .slots = false}) {}

 private:
  Tensor attend(const AttentionInputs& in, const AttentionOptions& o, ForwardPass&) override {
    return attention(in, o, softplus_).output;
  }
  Tensor weights(const AttentionInputs& in, const AttentionOptions& o) override {
    return attention_weights(in, o, softplus_);
  }

  Activation softplus_{"softplus"};
};
REGISTER_ATTENTION(DroppedAttention);
const bool cases = add_attention_cases("dropped_attention", {"dropped_attention(scale=1)"});

}  // namespace
}  // namespace orrery::nn
