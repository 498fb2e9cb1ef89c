// Values of the losses that layers can add, in training or not.
#include "models/metrics/base/model_metric.h"

namespace orrery::models {
namespace {

REGISTER_METRIC(losses, {.name = "losses",
                         .description = "every extra loss that the model's layers can add, with or without a weight",
                         .owners = "layers with an extra loss, as in --attention='softmax(span=adaptive_span(64))'",
                         .of_pass = [](MetricRow& row, const nn::ForwardPass& pass) {
                           for (const nn::ForwardPass::Loss& loss : pass.losses)
                             row["loss/" + loss.name] += loss.value.to_vector().at(0);
                         }});

}  // namespace
}  // namespace orrery::models
