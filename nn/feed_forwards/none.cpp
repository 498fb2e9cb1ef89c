// No feed-forward:  y = r, the residual.
// For blocks whose attention has learned slots (persistent=N), which replace the feed-forward:
// Sukhbaatar et al. 2019, arXiv:1907.01470. A block also skips the normalization before it.
//   dr = dy,   dx = 0
// Saved for backward: nothing. Without a residual y is 0.
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/feed_forwards/base/feed_forward.h"

namespace orrery::nn {
namespace {

class None final : public Sublayer {
 public:
  struct Settings {
    template <class V>
    void visit(V&) {}
  };
  static inline const Info info{.name = "none",
                                .formula = "0",
                                .source = "Sukhbaatar et al. 2019, arXiv:1907.01470",
                                .parameters = "none",
                                .saves = "nothing"};

  None(const Spec& spec, const FeedForwardOptions&) { settings_from<Settings>(spec); }
  bool is_noop() const override { return true; }
  Tensor forward_with_residual(const Tensor& x, const Tensor& residual, ForwardPass&) override {
    return residual ? residual : Tensor::zeros_like(x);
  }
};
REGISTER_FEED_FORWARD(None);

GradientCase gradient_case(const CaseTensors& random) {
  const std::shared_ptr<Sublayer> none = make_feed_forward(parse_spec("none"), {.width = 5, .d_ff = 7});
  return {{{"x", random({2, 5})}, {"residual", random({2, 5})}},
          [none](const auto& in) {
            ForwardPass pass;
            return none->call_with_residual(in[0], in[1] * 2.0, pass);
          },
          [](const auto& in) { return in[0] * 0.0 + in[1] * 2.0; }};
}
REGISTER_GRADIENT_CASE("feed_forward", "none", gradient_case);

}  // namespace
}  // namespace orrery::nn
