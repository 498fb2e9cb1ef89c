// One linear layer:  y = r + x W^T
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/feed_forwards/base/feed_forward.h"
#include "nn/layers/linear.h"

namespace orrery::nn {
namespace {

class DroppedFeedForward final : public Sublayer {
 public:
  struct Settings {
    template <class V>
    void visit(V&) {}
  };
  static inline const Info info{.name = "dropped_feed_forward",
                                .formula = "x W^T",
                                .source = "a test",
                                .parameters = "weights N(0, 0.02^2)",
                                .saves = "x"};

  DroppedFeedForward(const Spec& spec, const FeedForwardOptions& options)
      : weight_(Shape{options.width, options.width}, normal(0.02)) {
    Settings settings;
    read_settings(spec, settings);
  }
  Tensor forward_with_residual(const Tensor& x, const Tensor& residual, ForwardPass&) override {
    return linear(x, weight_.value, {}, residual);
  }
  void visit(Visitor& v) override { v("weight", weight_); }

 private:
  Parameter weight_;
};
REGISTER_FEED_FORWARD(DroppedFeedForward);

GradientCase gradient_case(const CaseTensors& random) {
  const std::shared_ptr<Sublayer> layer =
      make_feed_forward(parse_spec("dropped_feed_forward"), {.width = 5, .d_ff = 7});
  return module_case({.module = layer, .input = {2, 5}, .compare_reference_mode = true}, random);
}
REGISTER_GRADIENT_CASE("feed_forward", "dropped_feed_forward", gradient_case);

}  // namespace
}  // namespace orrery::nn
