// Use of few slots: over many slots softmax concentrates, and their values become parallel (A Study
// on ReLU and Softmax in Transformer, arXiv:2302.06461: 0.2 % of them carry over 85 %).
//   top fraction   fraction of a position's hidden values in the largest 0.2 % of the slots, at least one slot;
//                  values below 0 count as 0
//   value cosine   sum_(s != t) m_s m_t cos(v_s, v_t) / sum_(s != t) m_s m_t,  m_s the mean |hidden value| of slot s:
//                  the mean cosine of two values, weighted by use. With u_s = v_s / |v_s| the sums are
//                  |sum m_s u_s|^2 - sum m_s^2 and (sum m_s)^2 - sum m_s^2, so no table of pairs is made

#include "engine/ops/ops.h"
#include "models/metrics/base/model_metric.h"
#include "nn/diagnostics/diagnostics.h"

namespace orrery::models {
namespace {

constexpr double top = 0.002;

REGISTER_METRIC(top_unit_fraction,
                {.name = "top_unit_fraction",
                 .description = "fraction of a feed-forward's hidden values in the largest 0.2 % of its units",
                 .watches = "hidden",
                 .of_value = [](MetricRow& row, nn::Module& layer, const Tensor& hidden) {
                   log_metric(row, "top_unit_fraction", layer.path(), nn::top_fraction(hidden, top));
                 }});

// Returns the parameter `value`, one row per slot; undefined if the layer has no slots.
Tensor values_of(nn::Module& layer) {
  for (const auto& [path, parameter] : nn::parameters_of(layer))
    if (path == "value") return parameter->value;
  return {};
}

void log_value_cosine(MetricRow& row, nn::Module& layer, const Tensor& hidden) {
  const Tensor values = values_of(layer);
  if (!values) return;
  const int64_t slots = values.size(0);
  const Tensor v = values.to(Dtype::f64), u = v / sqrt(sum(v * v, {1}, true)),
               m = mean(abs(hidden.reshape(Shape{hidden.numel() / slots, slots})).to(Dtype::f64), {0}, true),
               weighted_sum = matmul(m, u);
  const double squares = sum(m * m).item(), all = sum(m).item();
  const double pairs = all * all - squares;
  if (pairs > 0)
    log_metric(row, "value_cosine", layer.path(), (sum(weighted_sum * weighted_sum).item() - squares) / pairs);
}

REGISTER_METRIC(value_cosine, {.name = "value_cosine",
                               .description = "mean cosine between two slots' values, weighted by the use of the slots",
                               .owners = "feed-forwards with slots, as in --feed_forward=memory",
                               .watches = "hidden",
                               .of_value = log_value_cosine});

}  // namespace
}  // namespace orrery::models
