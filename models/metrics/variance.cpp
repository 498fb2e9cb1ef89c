// Variances along a model, Var x = mean (x - mean x)^2 over all elements of a batch: of a
// sublayer's output and the stream it joins, of a head output and its values. For n scores and n
// values of variance 1, the predicted variance of the head output, before any projection, is
//   softmax over n     about e / n,    for sum_j w_j^2 is about n E[e^2s] / (n E[e^s])^2
//   relu, unscaled     n / 2,          for E[relu(s)^2] = 1/2;   1 after division by sqrt(n / 2)
// for slots as for keys (A Study on ReLU and Softmax in Transformer, arXiv:2302.06461). Keys and
// values of one input are dependent: C channels add a mean of about n^2 / (4 C) to n / 2.
#include "models/metrics/base/model_metric.h"
#include "nn/base/sublayer.h"
#include "nn/diagnostics/diagnostics.h"

namespace orrery::models {
namespace {

REGISTER_METRIC(output_variance,
                {.name = "output_variance",
                 .description = "variance of a sublayer's output, which it adds to the residual stream",
                 .watches = "output",
                 .of_value = [](MetricRow& row, nn::Module& module, const Tensor& output) {
                   if (dynamic_cast<nn::Sublayer*>(&module))
                     log_metric(row, "output_variance", module.path(), nn::variance(output));
                 }});
REGISTER_METRIC(residual_variance, {.name = "residual_variance",
                                    .description = "variance of the residual stream that a sublayer adds its output to",
                                    .watches = "stream",
                                    .of_value = [](MetricRow& row, nn::Module& sublayer, const Tensor& x) {
                                      log_metric(row, "residual_variance", sublayer.path(), nn::variance(x));
                                    }});
REGISTER_METRIC(head_output_variance,
                {.name = "head_output_variance",
                 .description = "variance of an attention's head outputs, before the output projection",
                 .watches = "head_output",
                 .of_value = [](MetricRow& row, nn::Module& attention, const Tensor& head_output) {
                   log_metric(row, "head_output_variance", attention.path(), nn::variance(head_output));
                 }});
REGISTER_METRIC(value_variance, {.name = "value_variance",
                                 .description = "variance of an attention's values",
                                 .watches = "value",
                                 .of_value = [](MetricRow& row, nn::Module& attention, const Tensor& value) {
                                   log_metric(row, "value_variance", attention.path(), nn::variance(value));
                                 }});

}  // namespace
}  // namespace orrery::models
