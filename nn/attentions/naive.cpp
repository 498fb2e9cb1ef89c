// Naive pointwise attention, the negative control: no factor of the length at all.
// A Study on ReLU and Softmax in Transformer, arXiv:2302.06461, reports that it does not converge.
//   w_ij = F(<q_i, k_j> / sqrt(D)),   o_i = sum_j w_ij v_j,   ds_ij = F'(s_ij) <do_i, v_j>
// With scores and values of variance 1 and F = relu, o has variance n / 2 for n keys.  Equals pointwise(F, alpha=0).
// Kept: q, k, v.  No (T, T) array exists.
#include "nn/attentions/base/attention.h"

namespace orrery::nn {
namespace {

class Naive final : public AttentionLayer {
 public:
  struct Settings {
    Spec function = parse_spec("relu");
    AttentionSettings layer;
    template <class V>
    void visit(V& v) {
      v("function", function, "F, any activation");
      layer.visit(v);
    }
  };
  static inline const Info info{.name = "naive",
                                .formula = "o_i = sum_j F(<q_i, k_j> / sqrt(D)) v_j",
                                .source = "A Study on ReLU and Softmax in Transformer, arXiv:2302.06461",
                                .parameters = "as softmax",
                                .keeps = "q, k, v"};

  Naive(const Spec& spec, const AttentionLayerOptions& options) : Naive(settings_from<Settings>(spec), options) {}
  Naive(const Settings& settings, const AttentionLayerOptions& options)
      : AttentionLayer(info.name, settings.layer, options, {}), function_(settings.function) {}

 private:
  Tensor read(const AttentionInputs& r, const AttentionOptions& o, Pass&) override {
    return attention(r, o, function_).output;
  }
  Tensor weights(const AttentionInputs& r, const AttentionOptions& o) override {
    return attention_weights(r, o, function_);
  }

  Activation function_;
};
REGISTER_ATTENTION(Naive);
const bool cases = add_attention_cases("naive", {"naive(relu)", "naive(tanh)"});

}  // namespace
}  // namespace orrery::nn
