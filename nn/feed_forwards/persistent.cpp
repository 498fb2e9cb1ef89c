// Persistent slots as a feed-forward: an all-attention layer with an empty context.
// Sukhbaatar et al. 2019, arXiv:1907.01470.
//   s_n = scale <x_h, K_hn>,   a = softmax(s) over the N slots of head h,   y_h = sum_n a_n V_hn,   y = (y_h) + r
// x_h: the D = C / H channels of head h, with its own slots, (N, H, D). r: residual. With g = dy:
//   dV_hn = sum a_n g_h,   ds_n = a_n (<g_h, V_hn> - <g_h, y_h>),
//   dK_hn = scale sum ds_n x_h,   dx_h = scale sum ds_n K_hn
// These are the formulas of engine/attention_formula/problem.h with the slots as the only keys.
// Saved for backward: x, y, K and V as used, the log-sum-exp of each row and head, and what the
// projections save. No (R, N) array exists.
//
// Conventions: scale is 1 / sqrt(D) by default. Stored and used values differ as in
// nn/attentions/base/slots.h (equal if scaled=no), so K and V are N(0, 1) in use and y has a
// variance of about e / N. One head is exactly memory(softmax, scale=1 / sqrt(C)). The slots have
// 2 N C parameters, like a dense layer with N hidden units, no biases. projections=yes adds x W_q^T
// before and y W_o^T after the slots: the whole all-attention layer. Without them heads do not mix.
#include <cmath>

#include "engine/ops/ops.h"
#include "nn/attentions/base/slots.h"
#include "nn/base/gradient_case.h"
#include "nn/feed_forwards/base/conversions.h"
#include "nn/feed_forwards/base/feed_forward.h"
#include "nn/feed_forwards/base/hidden.h"
#include "nn/layers/linear.h"

namespace orrery::nn {
namespace {

class Persistent final : public SlotFeedForward {
 public:
  struct Settings {
    int64_t slots = 0, heads = 1;
    double scale = 0, dropout = 0;
    bool scaled = true, projections = false;
    template <class V>
    void visit(V& v) {
      v("slots", slots, "number of keys and values per head; 0: the block's d_ff", between(0, 262144));
      v("heads", heads, "number of heads: groups of channels, each with its own slots", between(1, 65536));
      v("scale", scale, "factor of the scores; 0: 1 / sqrt(head size)", zero_or(tiny, 1e6));
      v("dropout", dropout, "fraction of the attention weights set to zero in training", fraction());
      v("scaled", scaled, "store keys divided by sqrt(head size), values by sqrt(slots)");
      v("projections", projections, "linear layers before and after the slots");
    }
  };
  static inline const Info info{
      .name = "persistent",
      .formula = "sum_n softmax_n(<x_h, K_hn> / sqrt(D)) V_hn in each head h",
      .source = "Sukhbaatar et al. 2019, arXiv:1907.01470",
      .parameters =
          "K N(0, 1), stored / sqrt(D), V N(0, 1), stored / sqrt(slots); W_q N(0, 0.02^2), W_o N(0, 0.02^2 / "
          "(2 layers)), biases 0",
      .saves = "x, y, K, V, log-sum-exp of each row and head"};

  Persistent(const Spec& spec, const FeedForwardOptions& options)
      : Persistent(settings_from<Settings>(spec), options) {}
  Persistent(const Settings& settings, const FeedForwardOptions& o)
      : dropout_(settings.dropout), slots_(slots_spec(settings, o), settings.heads, head_size(settings, o)) {
    scale_ = settings.scale > 0 ? settings.scale : 1 / std::sqrt(static_cast<double>(head_size(settings, o)));
    if (!settings.projections) return;
    const Linear::Options query{.bias = o.bias, .weight = o.initial_weights.hidden(o.width, o.width, o.layers)};
    const Linear::Options output{.bias = o.bias,
                                 .weight = o.initial_weights.residual_output(o.width, o.width, o.layers)};
    query_ = std::make_unique<Linear>(o.width, o.width, query);
    output_ = std::make_unique<Linear>(o.width, o.width, output);
  }

  Tensor forward_with_residual(const Tensor& x, const Tensor& residual, ForwardPass& pass) override {
    const AttentionOptions options{.scale = scale_,
                                   .dropout = pass.training ? dropout_ : 0,
                                   .rng_key = pass.training && dropout_ > 0 ? rng_key(pass) : DeviceRandomKey{}};
    const Tensor query = query_ ? (*query_)(x, pass) : x;
    const Tensor y = attend_to_hooked_slots(path(), query, slots_.keys_and_values(), options);
    if (output_) return linear(y, output_->weight.value, output_->bias.value, residual);
    return residual ? y + residual : y;
  }
  void visit(Visitor& v) override {
    v("query", query_);
    v("slots", slots_);
    v("output", output_);
  }

  SlotWeights slot_weights() const override {
    check(!query_, info.name, ": projections=yes cannot be converted; use projections=no");
    const SlotKeysAndValues used = slots_.keys_and_values();
    return {.key = used.key, .value = used.value, .key_bias = {}, .value_bias = {}, .function = {}, .scale = scale_};
  }
  void store(const SlotWeights& w) override { slots_.store({w.key, w.value}); }

 private:
  static int64_t head_size(const Settings& settings, const FeedForwardOptions& o) {
    check(o.width % settings.heads == 0, info.name, ": heads (", settings.heads, ") must divide width (", o.width, ")");
    return o.width / settings.heads;
  }
  static Spec slots_spec(const Settings& settings, const FeedForwardOptions& o) {
    Spec spec{.name = "slots", .items = {}};
    set_item(spec, "N", Spec{std::to_string(settings.slots ? settings.slots : o.d_ff), {}});
    set_item(spec, "scaled", Spec{settings.scaled ? "yes" : "no", {}});
    return spec;
  }

  double scale_ = 1, dropout_;
  Slots slots_;
  std::unique_ptr<Linear> query_, output_;
};
REGISTER_FEED_FORWARD(Persistent);

bool add_cases() {
  for (const char* const spec :
       {"persistent", "persistent(slots=9, heads=2, scale=0.8, scaled=no)", "persistent(heads=3, projections=yes)"})
    add_gradient_case(
        "feed_forward", "persistent",
        [spec](const CaseTensors& random) {
          return module_case({.module = make_feed_forward(parse_spec(spec), {.width = 6, .d_ff = 7}),
                              .input = {2, 3, 6},
                              .compare_reference_mode = true},
                             random);
        },
        spec);
  return true;
}
const bool cases = add_cases();

}  // namespace
}  // namespace orrery::nn
