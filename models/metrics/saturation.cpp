// Where alpha x leaves (-2, 2), tanh and erf are flat: almost no gradient (Zhu et al. 2025,
// arXiv:2503.10622).
#include "models/metrics/base/model_metric.h"
#include "nn/normalizations/base/dynamic.h"

namespace orrery::models {
namespace {

REGISTER_METRIC(
    saturation,
    {.name = "saturation",
     .description = "fraction of the inputs of a dynamic normalization (dyt, derf, dynamic) with |alpha x| > 2",
     .owners = "dynamic normalizations, as in --normalization=dyt",
     .watches = "input",
     .of_value = [](MetricRow& row, nn::Module& module, const Tensor& x) {
       if (const auto* const normalization = dynamic_cast<nn::DynamicNormalization*>(&module))
         log_metric(row, "saturation", module.path(), normalization->saturation(x));
     }});

}  // namespace
}  // namespace orrery::models
