// A plug-in with an attention that cannot resume: its output grows with the number of training
// passes in this process, which no checkpoint stores.
#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "nn/base/gradient_case.h"

namespace orrery::nn {
namespace {

class ForgetfulSoftmax final : public Sublayer {
 public:
  static inline const Info info{.name = "forgetful_softmax",
                                .formula = "softmax, (1 + t/100) times, t the passes of this process",
                                .source = "a test",
                                .parameters = "as softmax",
                                .saves = "y"};

  ForgetfulSoftmax(const Spec& spec, const AttentionLayerOptions& options)
      : softmax_(make_attention(parse_spec("softmax"), options)) {
    read_settings(spec, {});
  }
  Tensor forward_with_residual(const Tensor& x, const Tensor& residual, ForwardPass& pass) override {
    if (pass.training) ++passes_;
    const Tensor y = (*softmax_)(x, pass) * (1 + 0.01 * static_cast<double>(passes_));
    return residual ? residual + y : y;
  }
  void visit(Visitor& v) override { v("softmax", softmax_); }

 private:
  std::unique_ptr<Sublayer> softmax_;
  int64_t passes_ = 0;
};
REGISTER_ATTENTION(ForgetfulSoftmax);

GradientCase attention_case(const CaseTensors& random) {
  const std::shared_ptr<Module> module = make_attention(parse_spec("forgetful_softmax"), {.width = 6, .heads = 2});
  return module_case({.module = module, .input = {2, 5, 6}, .compare_reference_mode = true}, random);
}
REGISTER_GRADIENT_CASE("attention", "forgetful_softmax", attention_case);

}  // namespace
}  // namespace orrery::nn
