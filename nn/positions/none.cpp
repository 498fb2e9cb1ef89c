// No positions: y = x, dx = dy. A causal model can still infer positions from the number of visible
// tokens (Haviv et al. 2022, arXiv:2203.16634). For full attention the context is a set.
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/positions/base/position.h"

namespace orrery::nn {
namespace {

class NoPositions final : public Position {
 public:
  static inline const Info info{.name = "none",
                                .formula = "x",
                                .source = "Haviv et al. 2022, arXiv:2203.16634",
                                .parameters = "none",
                                .saves = "nothing"};
  NoPositions(const Spec& spec, const PositionOptions&) {
    check(spec.items.empty(), "position: ", spec, ": none takes no settings; use position=none");
  }
};
REGISTER_POSITION(NoPositions);

GradientCase gradient_case(const CaseTensors& random) {
  return {{{"x", random({2, 3, 4})}},
          [](const auto& in) {
            ForwardPass pass;
            return (*make_position(parse_spec("none"), {.context = 3, .width = 4}))(in[0], pass) * 2.0;
          },
          [](const auto& in) { return in[0] + in[0]; }};
}
REGISTER_GRADIENT_CASE("position", "none", gradient_case);

}  // namespace
}  // namespace orrery::nn
