// Penalty of attention spans. Sukhbaatar et al. 2019, arXiv:1905.07799.
//   loss = S mean_h z'_h,   dz'_h = S dloss / H          S the longest span, z' = z / S in [0, 1] the relative ones
// For one layer; the paper adds the layers and multiplies by lambda: 2e-6, or 5e-7 for S = 8192.
// Adagrad normalizes the gradient's size, so lambda only decides its sign once the language model's
// gradient has faded. Other optimizers need another lambda. Spans per token (dynamic span) have the
// same penalty, as a mean over the tokens without padding. Saved for backward: z' and the mask.
#include "nn/base/gradient_case.h"
#include "nn/losses/base/loss.h"
#include "nn/losses/counted_mean.h"

namespace orrery::nn {
namespace {

struct Span {
  static constexpr const char* name = "span_penalty";
  double limit;
  template <class A>
  HOST_DEVICE bool counts(A, A counted) const {
    return counted != 0;
  }
  template <class A>
  HOST_DEVICE A value(A z, A) const {
    return A(limit) * z;
  }
  template <class A>
  HOST_DEVICE A derivative(A, A) const {
    return A(limit);
  }
};

constexpr LossInfo info{.name = "span_penalty",
                        .formula = "S mean_h z'_h",
                        .source = "Sukhbaatar et al. 2019, arXiv:1905.07799",
                        .parameters = "none",
                        .saves = "z'",
                        .weight_of =
                            "the span penalty, S mean z', of each layer with a learned span "
                            "(`orrery list span_penalty`)"};
REGISTER_LOSS(info);

GradientCase gradient_case(const CaseTensors& random) {
  return {{{"spans", random({6})}},
          [](const auto& in) { return span_penalty(in[0], 40); },
          [](const auto& in) { return mean(in[0]) * 40.0; }};
}
REGISTER_GRADIENT_CASE("loss", "span_penalty", gradient_case);

}  // namespace

Tensor span_penalty(const Tensor& spans, double limit, const Tensor& counted) {
  check(limit > 0, "span_penalty: the longest span must be above 0, not ", limit);
  const Tensor all = counted ? counted.detach().to(spans.dtype()) : Tensor::full_like(spans, {1}, 1);
  return record(CountedMean<Span>{{limit}}, spans, broadcast_to(all, spans.shape()));
}

}  // namespace orrery::nn
