// Sparsity of feed-forwards: zeros among hidden values, and units that are zero for a whole batch.
#include "engine/ops/ops.h"
#include "models/metrics/base/model_metric.h"
#include "nn/diagnostics/diagnostics.h"

namespace orrery::models {
namespace {

REGISTER_METRIC(hidden_zero_fraction, {.name = "hidden_zero_fraction",
                                       .description = "fraction of exact zeros among a feed-forward's hidden values",
                                       .watches = "hidden",
                                       .of_value = [](MetricRow& row, nn::Module& layer, const Tensor& hidden) {
                                         log_metric(row, "hidden_zero_fraction", layer.path(),
                                                    nn::zero_fraction(hidden));
                                       }});

// hidden (..., N) as positions x N: a unit is dead if all of its values are exact zeros.
REGISTER_METRIC(dead_units, {.name = "dead_units",
                             .description = "fraction of hidden units that are zero for every token of a batch",
                             .watches = "hidden",
                             .of_value = [](MetricRow& row, nn::Module& layer, const Tensor& hidden) {
                               const int64_t units = hidden.size(-1);
                               const Tensor flat = hidden.reshape(Shape{hidden.numel() / units, units});
                               log_metric(row, "dead_units", layer.path(), nn::zero_fraction(max(abs(flat), 0)));
                             }});

}  // namespace
}  // namespace orrery::models
