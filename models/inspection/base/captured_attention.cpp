#include "models/inspection/base/captured_attention.h"

#include "nn/attentions/base/span.h"

namespace orrery::models {
namespace {

struct SpanFinder final : nn::Visitor {
  std::map<std::string, const nn::Span*> by_path;
  void module(const std::string&, nn::Module& module) override {
    if (const auto* const span = dynamic_cast<const nn::Span*>(&module)) by_path[span->path()] = span;
  }
};

std::vector<double> reach_of(const CapturedAttention& captured, const nn::Span& span, const Tensor& span_value) {
  const auto heads = static_cast<size_t>(captured.heads()), queries = captured.queries.size();
  if (!span.learned()) {
    const bool own = captured.visible.to_vector()[0] > 0;  // the query's own key is one of the S keys
    return std::vector<double>(heads * queries, static_cast<double>(span.max_span() - (own ? 1 : 0)));
  }
  const std::vector<double> tokens = span.attended_tokens(span_value).to_vector();  // (H) or (1, H, T)
  std::vector<double> reach;
  for (size_t i = 0; i < heads * queries; ++i) reach.push_back(tokens[tokens.size() == heads ? i / queries : i]);
  return reach;
}

}  // namespace

std::vector<CapturedAttention> capture_attentions(const InspectedExample& example) {
  SpanFinder spans;
  example.model().visit(spans);
  std::map<std::string, Tensor> learned_spans;  // learned spans, by path
  std::map<std::string, Tensor> visible;
  std::vector<Captured> weights;
  capture_values(example, {"*.weights", "*.visible", "*.span"},
                 [&](const std::string& path, const std::string& name, const Tensor& value) {
                   if (name == "weights") weights.push_back({path, to_cpu(value)});
                   if (name != "weights") (name == "span" ? learned_spans : visible)[path] = to_cpu(value);
                 });
  std::vector<CapturedAttention> all;
  for (const auto& [path, value] : weights) {
    const Shape shape{value.size(1), value.size(2), value.size(3)};
    CapturedAttention captured{path, value.reshape(shape), visible.at(path).reshape(shape), 0, {}, {}, {}};
    captured.queries = example.position_labels(path), captured.columns = example.key_labels(path);
    captured.keys = std::min(static_cast<int64_t>(captured.columns.size()), captured.weights.size(2));
    captured.columns.resize(static_cast<size_t>(captured.keys));
    for (int64_t slot = 0; slot < captured.slots(); ++slot) captured.columns.push_back("slot " + std::to_string(slot));
    if (const auto span = spans.by_path.find(path + ".span"); span != spans.by_path.end())
      captured.reach =
          reach_of(captured, *span->second, span->second->learned() ? learned_spans.at(span->first) : Tensor());
    all.push_back(std::move(captured));
  }
  return all;
}

}  // namespace orrery::models
