// Without normalization only training limits the scores; a growing maximum shows divergence.

#include "engine/ops/ops.h"
#include "models/metrics/base/model_metric.h"

namespace orrery::models {
namespace {

REGISTER_METRIC(max_score, {.name = "max_score",
                            .description = "largest |score| of an attention, except masked scores",
                            .watches = "scores",
                            .of_value = [](MetricRow& row, nn::Module& attention, const Tensor& scores) {
                              const Tensor all = abs(scores).reshape(Shape{1, scores.numel()});
                              log_metric(row, "max_score", attention.path(), max(all, 1).to_vector().at(0));
                            }});

}  // namespace
}  // namespace orrery::models
