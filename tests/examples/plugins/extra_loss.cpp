// A plug-in with a loss and an attention that adds it: softmax, and a penalty on loud outputs.
#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "nn/base/gradient_case.h"
#include "nn/losses/base/loss.h"

namespace orrery::nn {
namespace {

constexpr LossInfo output_power{.name = "output_power",
                                .formula = "mean y^2",
                                .source = "a test",
                                .parameters = "none",
                                .saves = "y",
                                .weight_of = "mean y^2 of priced_softmax"};
REGISTER_LOSS(output_power);

struct Power {  // l = mean y^2:  dy = 2 y dl / n
  static constexpr const char* name = "output_power";
  Tensor forward(Saved& saved, const Tensor& y) const {
    saved.save(y);
    return mean(y * y);
  }
  Gradients<1> backward(const Saved& saved, const Tensor& dl) const {
    return {saved[0] * dl * (2 / static_cast<double>(saved[0].numel()))};
  }
};

class PricedSoftmax final : public Sublayer {
 public:
  static inline const Info info{
      .name = "priced_softmax", .formula = "softmax", .source = "a test", .parameters = "as softmax", .saves = "y"};

  PricedSoftmax(const Spec& spec, const AttentionLayerOptions& options)
      : softmax_(make_attention(parse_spec("softmax"), options)) {
    read_settings(spec, {});
  }
  Tensor forward_with_residual(const Tensor& x, const Tensor& residual, ForwardPass& pass) override {
    const Tensor y = (*softmax_)(x, pass);
    if (pass.wants_loss("output_power")) pass.add_loss("output_power", record(Power{}, y));
    return residual ? residual + y : y;
  }
  void visit(Visitor& v) override { v("softmax", softmax_); }

 private:
  std::unique_ptr<Sublayer> softmax_;
};
REGISTER_ATTENTION(PricedSoftmax);

GradientCase loss_case(const CaseTensors& random) {
  return {{{"y", random({2, 3, 4})}},
          [](const auto& in) { return record(Power{}, in[0]); },
          [](const auto& in) { return mean(in[0] * in[0]); }};
}
REGISTER_GRADIENT_CASE("loss", "output_power", loss_case);

GradientCase attention_case(const CaseTensors& random) {
  const std::shared_ptr<Module> module = make_attention(parse_spec("priced_softmax"), {.width = 6, .heads = 2});
  return module_case({.module = module,
                      .input = {2, 5, 6},
                      .prepare = [](ForwardPass& pass) { pass.requested_losses = {"output_power"}; },
                      .compare_reference_mode = true},
                     random);
}
REGISTER_GRADIENT_CASE("attention", "priced_softmax", attention_case);

}  // namespace
}  // namespace orrery::nn
