// The size of the residual stream after each sublayer, sqrt(mean x^2): without normalization it grows layer by layer.
#include <cmath>

#include "engine/ops/ops.h"
#include "models/figures/base/figure.h"

namespace orrery::models {
namespace {

REGISTER_FIGURE(residual_rms, {.name = "residual_rms",
                               .description = "root mean square of the residual stream after a sublayer",
                               .watches = "residual",
                               .of_value = [](FigureRow& row, nn::Module& sublayer, const Tensor& x) {
                                 const Tensor wide = x.to(Dtype::f32);
                                 tell(row, "residual_rms", sublayer.path(),
                                      std::sqrt(mean(wide * wide).to_vector().at(0)));
                               }});

}  // namespace
}  // namespace orrery::models
