// Adds a ramp to every channel:  y[b, t] = x[b, t] + t / context
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/positions/base/position.h"

namespace orrery::nn {
namespace {

class DroppedPosition final : public Position {
 public:
  static inline const Info info{.name = "dropped_position",
                                .formula = "x + place / context",
                                .source = "a test",
                                .parameters = "none",
                                .saves = "nothing"};
  DroppedPosition(const Spec& spec, const PositionOptions& options) {
    check(spec.items.empty(), "dropped_position: takes no settings, not ", print(spec));
    std::vector<double> ramp;
    for (int64_t position = 0; position < options.context; ++position)
      ramp.insert(ramp.end(), static_cast<size_t>(options.width),
                  static_cast<double>(position) / static_cast<double>(options.context));
    table_ = Tensor::from(Shape{options.context, options.width}, ramp, Dtype::f64);
  }
  Tensor forward(const Tensor& x, ForwardPass& pass) override {
    if (table_.device() != x.device()) table_ = table_.to(x.device());
    return x + rows_at_positions("dropped_position", table_, x, pass);
  }

 private:
  Tensor table_;
};
REGISTER_POSITION(DroppedPosition);

GradientCase gradient_case(const CaseTensors& random) {
  return {{{"x", random({2, 2, 2})}},
          [](const auto& in) {
            ForwardPass pass;
            return (*make_position(parse_spec("dropped_position"), {.context = 2, .width = 2}))(in[0], pass) * in[0];
          },
          [](const auto& in) {
            return (in[0] + Tensor::from(Shape{2, 2}, {0, 0, 0.5, 0.5}, Dtype::f64)) * in[0];
          }};
}
REGISTER_GRADIENT_CASE("position", "dropped_position", gradient_case);

}  // namespace
}  // namespace orrery::nn
