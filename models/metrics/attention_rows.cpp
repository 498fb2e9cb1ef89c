// Statistics of attention weight rows, by head, as means over a batch's queries: heads that focus,
// spread out or have switched off (Jha & Reagen 2024, arXiv:2410.09637, for entropies).
#include "models/metrics/base/model_metric.h"
#include "nn/diagnostics/diagnostics.h"

namespace orrery::models {
namespace {

REGISTER_METRIC(entropy, {.name = "entropy",
                          .description = "entropy of a head's attention weights in nats, mean over queries",
                          .watches = "row_entropy",
                          .of_value = [](MetricRow& row, nn::Module& attention, const Tensor& rows) {
                            log_metrics(row, "entropy", attention.path(), means_of_heads(rows));
                          }});
REGISTER_METRIC(attention_zero_fraction,
                {.name = "attention_zero_fraction",
                 .description = "fraction of exact zeros among a head's visible attention weights",
                 .watches = "row_zero_fraction",
                 .of_value = [](MetricRow& row, nn::Module& attention, const Tensor& rows) {
                   log_metrics(row, "attention_zero_fraction", attention.path(), means_of_heads(rows));
                 }});
REGISTER_METRIC(row_sum, {.name = "row_sum",
                          .description = "sum of a head's attention weights, mean over queries; 1 for softmax",
                          .watches = "row_sum",
                          .of_value = [](MetricRow& row, nn::Module& attention, const Tensor& rows) {
                            log_metrics(row, "row_sum", attention.path(), means_of_heads(rows));
                          }});

}  // namespace
}  // namespace orrery::models
