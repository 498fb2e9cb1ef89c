#include "models/tasks/span_report.h"

#include <algorithm>
#include <numeric>

#include "engine/ops/ops.h"

namespace orrery::models {
namespace {

struct Finder final : nn::Visitor {
  std::vector<const nn::Span*> found;
  void module(const std::string&, nn::Module& module) override {
    if (const auto* const span = dynamic_cast<const nn::Span*>(&module)) found.push_back(span);
  }
};

double mean_of(const std::vector<double>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}
double max_of(const std::vector<double>& x) { return *std::max_element(x.begin(), x.end()); }

}  // namespace

SpanReport::SpanReport(nn::Module& model) {
  Finder finder;
  model.visit(finder);
  std::vector<std::string> names;
  for (const nn::Span* span : finder.found) {
    layers_.push_back({span});
    if (span->learned()) names.push_back(span->path() + ".span");
  }
  if (names.empty()) return;
  hooks_.emplace(names, [this](const std::string& name, const Tensor& value) {
    for (Layer& layer : layers_)
      if (layer.span->path() + ".span" == name) record(layer, value);
  });
}

void SpanReport::record(Layer& layer, const Tensor& span) const {
  const Tensor tokens = layer.span->attended_tokens(span);  // (H) or (B, H, T)
  const bool each_token = tokens.shape().rank() == 3;
  const int64_t heads = tokens.size(each_token ? 1 : 0);
  const Tensor by_head = each_token ? permute(tokens, {0, 2, 1}).reshape(Shape{tokens.numel() / heads, heads})
                                    : tokens.reshape(Shape{1, heads});
  const std::vector<double> all = by_head.to_vector();
  layer.sums.resize(static_cast<size_t>(heads));
  for (size_t i = 0; i < all.size(); ++i) layer.sums[i % layer.sums.size()] += all[i];
  layer.count += static_cast<double>(by_head.size(0));
}

void SpanReport::add_to(Validation& validation) const {
  std::vector<double> all;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    std::vector<double> heads = layer.sums;
    for (double& tokens : heads) tokens /= layer.count;
    if (!layer.span->learned()) heads = {static_cast<double>(layer.span->max_span())};
    if (heads.empty()) continue;  // the span was not used
    const std::string name = "span." + std::to_string(i);
    validation.details.insert(validation.details.end(),
                              {{name + ".mean", mean_of(heads)}, {name + ".max", max_of(heads)}});
    for (size_t head = 0; layer.span->learned() && head < heads.size(); ++head)
      validation.details.emplace_back(name + "." + std::to_string(head), heads[head]);
    all.insert(all.end(), heads.begin(), heads.end());
  }
  if (all.empty()) return;
  validation.metrics.insert(validation.metrics.end(), {{"span_mean", mean_of(all)}, {"span_max", max_of(all)}});
}

}  // namespace orrery::models
