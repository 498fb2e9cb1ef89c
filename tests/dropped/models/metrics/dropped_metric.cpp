// The mean |x| of the residual stream after a sublayer.
#include "engine/ops/ops.h"
#include "models/metrics/base/model_metric.h"

namespace orrery::models {
namespace {

REGISTER_METRIC(dropped_metric, {.name = "dropped_metric",
                                 .description = "mean |x| of the residual stream after a sublayer",
                                 .watches = "residual",
                                 .of_value = [](MetricRow& row, nn::Module& sublayer, const Tensor& x) {
                                   log_metric(row, "dropped_metric", sublayer.path(), mean(abs(x)).item());
                                 }});

}  // namespace
}  // namespace orrery::models
