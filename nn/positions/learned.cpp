// Learned positions. Gehring et al. 2017, arXiv:1705.03122.
//   y[b, t] = x[b, t] + P[p],   dx = dy,   dP[p] = sum of dy[b, t] over the tokens at position p
// p counts within a document and continues after cached tokens. Operations: a slice (rows by index
// with documents) and a broadcast addition. Saved for backward: positions, with documents.
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/positions/base/position.h"

namespace orrery::nn {
namespace {

class LearnedPositions final : public Position {
 public:
  static inline const Info info{.name = "learned",
                                .formula = "x + P[position]",
                                .source = "Gehring et al. 2017, arXiv:1705.03122",
                                .parameters = "P N(0, 0.02^2)",
                                .saves = "nothing; positions of packed documents"};
  LearnedPositions(const Spec& spec, const PositionOptions& options)
      : weight_(Shape{options.context, options.width}, normal(options.table_std)) {
    weight_.is_lookup_table = true;
    check(spec.items.empty(), "position: ", spec, ": learned takes no settings; use position=learned");
  }
  Tensor forward(const Tensor& x, ForwardPass& pass) override {
    return x + rows_at_positions("learned positions", weight_.value, x, pass);
  }
  void visit(Visitor& v) override { v("weight", weight_); }

 private:
  Parameter weight_;
};
REGISTER_POSITION(LearnedPositions);

GradientCase case_with(const ForwardPass& pass, std::vector<int32_t> positions, const CaseTensors& random) {
  return {{{"x", random({2, 3, 4})}, {"weight", random({5, 4})}},
          [pass](const auto& in) {
            ForwardPass on_device = pass;
            if (pass.document_ids) on_device.document_ids = pass.document_ids.to(in[0].device());
            return in[0] + rows_at_positions("learned positions", in[1], in[0], on_device);
          },
          [positions](const auto& in) {
            return in[0] + matmul(one_hot(Tensor::from(Shape{2, 3}, positions), 5, Dtype::f64), in[1]);
          }};
}
GradientCase whole_case(const CaseTensors& random) { return case_with({}, {0, 1, 2, 0, 1, 2}, random); }
REGISTER_GRADIENT_CASE("position", "learned", whole_case);
GradientCase documents_case(const CaseTensors& random) {
  ForwardPass pass;
  pass.document_ids = Tensor::from(Shape{2, 3}, std::vector<int32_t>{7, 7, 3, 1, 2, 2});
  return case_with(pass, {0, 1, 0, 0, 0, 1}, random);
}
REGISTER_GRADIENT_CASE("position", "learned", documents_case);

}  // namespace
}  // namespace orrery::nn
