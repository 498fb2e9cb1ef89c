// Learned positions.  Gehring et al. 2017, arXiv:1705.03122.
//   y[b, t] = x[b, t] + P[t],   dx = dy,   dP[t] = sum over b of dy[b, t]
// The operations are a leading slice and an addition with broadcasting; nothing is kept.
#include "engine/ops.h"
#include "nn/gradient_case.h"
#include "nn/position.h"

namespace orrery::nn {
namespace {

Tensor add_positions(const Tensor& x, const Tensor& table) {
  check(x.shape().rank() >= 2 && x.size(-2) <= table.size(0), "learned positions: ", x.size(-2),
        " positions asked for, the table has ", table.size(0), "; use a longer context in the model's settings");
  return x + table.slice(0, x.size(-2));
}

class LearnedPositions final : public Module {
 public:
  static inline const Info info{.name = "learned",
                                .formula = "x + P[position]",
                                .source = "Gehring et al. 2017, arXiv:1705.03122",
                                .parameters = "P N(0, 0.02^2)",
                                .keeps = "nothing"};
  LearnedPositions(const Spec& spec, const PositionOptions& options)
      : weight_(Shape{options.context, options.width}, normal(0.02)) {
    weight_.table = true;
    check(spec.items.empty(), "learned: takes no settings, not ", print(spec));
  }
  Tensor forward(const Tensor& x, Pass&) override { return add_positions(x, weight_.value); }
  void visit(Visitor& v) override { v("weight", weight_); }

 private:
  Parameter weight_;
};
REGISTER_POSITION(LearnedPositions);

GradientCase gradient_case(const CaseTensors& random) {
  return {{{"x", random({2, 3, 4})}, {"weight", random({5, 4})}},
          [](const auto& in) { return add_positions(in[0], in[1]); },
          [](const auto& in) {
            const std::vector<int32_t> at = {0, 1, 2, 0, 1, 2};
            return in[0] + matmul(one_hot(Tensor::from(Shape{2, 3}, at), 5, Dtype::f64), in[1]);
          }};
}
REGISTER_GRADIENT_CASE("position", "learned", gradient_case);

}  // namespace
}  // namespace orrery::nn
