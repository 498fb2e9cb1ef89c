// Attention span of a head in tokens (nn/attentions/base/span.h); the mean of a dynamic span.
#include "nn/attentions/base/span.h"
#include "models/metrics/base/model_metric.h"

namespace orrery::models {
namespace {

REGISTER_METRIC(span, {.name = "span",
                       .description = "attention span of a head, in tokens",
                       .owners = "attentions with a span, as in --attention='softmax(span=adaptive_span(64))'",
                       .watches = "span",
                       .of_value = [](MetricRow& row, nn::Module& module, const Tensor& value) {
                         const auto& span = dynamic_cast<nn::Span&>(module);
                         const Tensor tokens = span.attended_tokens(value);
                         const int64_t heads = tokens.shape().rank() == 3 ? tokens.size(1) : tokens.size(0);
                         const Tensor rows = tokens.shape().rank() == 3 ? tokens : tokens.reshape(Shape{1, heads, 1});
                         // Drop the span's own name at the end of the path.
                         log_metrics(row, "span", module.path().substr(0, module.path().rfind('.')),
                                     means_of_heads(rows));
                       }});

}  // namespace
}  // namespace orrery::models
