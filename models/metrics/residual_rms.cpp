// The size of the residual stream after each sublayer, sqrt(mean x^2) in f64: without normalization
// it grows layer by layer.
#include <cmath>

#include "models/metrics/base/model_metric.h"

namespace orrery::models {
namespace {

REGISTER_METRIC(residual_rms, {.name = "residual_rms",
                               .description = "root mean square of the residual stream after a sublayer",
                               .watches = "residual",
                               .of_value = [](MetricRow& row, nn::Module& sublayer, const Tensor& x) {
                                 const Tensor square = Tensor::zeros(Shape{}, Dtype::f64, x.device());
                                 nn::sum_of_squares(x, square);
                                 log_metric(row, "residual_rms", sublayer.path(),
                                            std::sqrt(square.item() / static_cast<double>(x.numel())));
                               }});

}  // namespace
}  // namespace orrery::models
