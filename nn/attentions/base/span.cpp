#include "nn/attentions/base/span.h"

#include <algorithm>
#include <cmath>

#include "engine/autograd/hooks.h"
#include "engine/ops/ops.h"
#include "nn/attentions/base/length_scale.h"
#include "nn/losses/base/loss.h"

namespace orrery::nn {
namespace {

struct Settings {
  int64_t max_span = 0;
  double ramp = 32;
  template <class V>
  void visit(V& v) {
    v("S", max_span, "longest span, in tokens", between(1, 16777216));
    v("R", ramp, "length of the ramp, in tokens", between(1, 16777216));
  }
};
struct FixedSettings {
  int64_t max_span = 0;
  template <class V>
  void visit(V& v) {
    v("S", max_span, "span, in tokens", between(1, 16777216));
  }
};

}  // namespace

std::vector<Info> span_settings() {
  return {{.name = "adaptive_span",
           .formula = "w_ij m(i - j), m(x) = clip((R + S z' + 1 - x) / R, 0, 1)",
           .source = "Sukhbaatar et al. 2019, arXiv:1905.07799",
           .parameters = "z' 0, one per head",
           .saves = "z of each head",
           .ranges = settings_without_values<Settings>},
          {.name = "dynamic_span",
           .formula = "as adaptive_span, z' = sigmoid(v.x_i + b)",
           .source = "Sukhbaatar et al. 2019, arXiv:1905.07799",
           .parameters = "v N(0, 0.02^2), b -4, one each per head",
           .saves = "x, z' of each head and query",
           .ranges = settings_without_values<Settings>},
          {.name = "fixed",
           .formula = "span=fixed(S): w_ij = 0 at distances of S or more",
           .source = "Sukhbaatar et al. 2019, arXiv:1905.07799",
           .parameters = "none",
           .saves = "nothing",
           .ranges = settings_without_values<FixedSettings>}};
}

Spec resolved_span(const Spec& spec) {
  if (spec.name == "fixed") return make_spec(spec.name, settings_from<FixedSettings>(spec));
  if (spec.name == "adaptive_span" || spec.name == "dynamic_span")
    return make_spec(spec.name, settings_from<Settings>(spec));
  return spec;
}

Span::Span(const Spec& spec, int64_t width, int64_t heads, int64_t context) {
  const bool adaptive = spec.name == "adaptive_span", dynamic = spec.name == "dynamic_span";
  check(adaptive || dynamic || spec.name == "fixed", "span: '", spec.name,
        "' is unknown; use none, fixed(S), adaptive_span(S, R=32) or dynamic_span(S, R=32)");
  kind_ = adaptive ? Kind::adaptive : dynamic ? Kind::dynamic : Kind::fixed;
  if (kind_ == Kind::fixed) {
    max_span_ = settings_from<FixedSettings>(spec).max_span;
  } else {
    const auto settings = settings_from<Settings>(spec);
    max_span_ = settings.max_span, ramp_ = settings.ramp;
  }
  check(max_span_ >= 1, "span: ", spec.name, " needs S, at least 1, as in ", spec.name, "(256)");
  check(context == 0 || max_span_ <= context, "span: ", spec, " reaches back ", max_span_,
        " tokens, but the context has ", context, "; S must be in [1, ", context, "]");
  if (kind_ == Kind::adaptive) {
    fraction_ = Parameter(Shape{heads}, constant(0));
    fraction_.min_value = 0, fraction_.max_value = 1, fraction_.lr_group = "spans";
  }
  if (kind_ == Kind::dynamic) {
    fraction_projection_ = std::make_unique<Linear>(width, heads, Linear::Options{.weight = normal(0.02)});
    fraction_projection_->bias.initialization = constant(-4);
    fraction_projection_->weight.decay = false;
    fraction_projection_->weight.lr_group = fraction_projection_->bias.lr_group = "spans";
  }
}

Tensor Span::forward(const Tensor& x, ForwardPass& pass) {
  static const Activation sigmoid("sigmoid");
  const Tensor fraction =
      kind_ == Kind::adaptive ? fraction_.value : permute(sigmoid((*fraction_projection_)(x, pass)), {0, 2, 1});
  // f32, because bf16 lacks some whole tokens above 256 and fractions of a token well below it.
  return (fraction.dtype() == Dtype::bf16 ? fraction.to(Dtype::f32) : fraction) * static_cast<double>(max_span_) + 1.0;
}

void Span::add_to(AttentionInputs& inputs, const Tensor& x, ForwardPass& pass) {
  if (!learned()) return;
  inputs.span = hook(path(), "span", (*this)(x, pass));
  const double limit = static_cast<double>(max_span_);
  if (!pass.wants_loss("span_penalty")) return;
  const Tensor real = real_rows(inputs, {.query_offset = pass.offset(), .query_lengths = pass.lengths});
  pass.add_loss("span_penalty",
                span_penalty((inputs.span - 1.0) / limit, limit, kind_ == Kind::dynamic ? real : Tensor()));
}

Tensor Span::attended_tokens(const Tensor& span) const {
  std::vector<double> tokens = span.detach().to_vector();
  for (double& z : tokens) z = std::min(z - 1 + ramp_, static_cast<double>(max_span_));
  return Tensor::from(span.shape(), tokens, Dtype::f64);
}

void Span::set_window_and_ramp(AttentionOptions& options) const {
  options.mask.window = learned() || !options.mask.attend_to_self ? max_span_ + 1 : max_span_;
  options.ramp = ramp_;
}

int64_t Span::reach(const AttentionOptions& options) const {
  // Does not copy from a GPU: keys beyond the span but within S are kept, with weight 0.
  if (kind_ != Kind::adaptive || fraction_.value.device() != Device::cpu) return options.mask.window;
  // m > 0 at the distances x < R + z + 1
  double max_fraction = 0;
  for (const double fraction : fraction_.value.to_vector()) max_fraction = std::max(max_fraction, fraction);
  const double visible = std::ceil(ramp_ + max_fraction * static_cast<double>(max_span_) + 1);
  return std::min(options.mask.window, static_cast<int64_t>(visible));
}

void Span::visit(Visitor& v) {
  v("share", fraction_);
  v("share_of_token", fraction_projection_);
}

}  // namespace orrery::nn
