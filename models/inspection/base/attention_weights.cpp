#include "models/inspection/base/attention_weights.h"

#include "nn/attentions/base/span.h"

namespace orrery::models {
namespace {

struct SpanFinder final : nn::Visitor {
  std::map<std::string, const nn::Span*> of_path;
  void module(const std::string&, nn::Module& module) override {
    if (const auto* const span = dynamic_cast<const nn::Span*>(&module)) of_path[span->path()] = span;
  }
};

std::vector<double> reach_of(const AttentionSeen& seen, const nn::Span& span, const Tensor& shown) {
  const auto heads = static_cast<size_t>(seen.heads()), queries = seen.queries.size();
  if (!span.learned()) {
    const bool own = seen.visible.to_vector()[0] > 0;  // the query's own key is one of the S keys
    return std::vector<double>(heads * queries, static_cast<double>(span.limit() - (own ? 1 : 0)));
  }
  const std::vector<double> tokens = span.tokens_read(shown).to_vector();  // (H) or (1, H, T)
  std::vector<double> reach;
  for (size_t i = 0; i < heads * queries; ++i) reach.push_back(tokens[tokens.size() == heads ? i / queries : i]);
  return reach;
}

}  // namespace

std::vector<AttentionSeen> see_attentions(const Subject& subject) {
  SpanFinder spans;
  subject.model().visit(spans);
  std::map<std::string, Tensor> asked;  // learned spans, by path
  std::map<std::string, Tensor> visible;
  std::vector<Seen> weights;
  see_values(subject, {"*.weights", "*.visible", "*.span"},
             [&](const std::string& path, const std::string& name, const Tensor& value) {
               if (name == "weights") weights.push_back({path, as_seen(value)});
               if (name != "weights") (name == "span" ? asked : visible)[path] = as_seen(value);
             });
  std::vector<AttentionSeen> all;
  for (const auto& [path, value] : weights) {
    const Shape shape{value.size(1), value.size(2), value.size(3)};
    AttentionSeen seen{path, value.reshape(shape), visible.at(path).reshape(shape), 0, {}, {}, {}};
    seen.queries = subject.places(path), seen.columns = subject.keys(path);
    seen.keys = std::min(static_cast<int64_t>(seen.columns.size()), seen.weights.size(2));
    seen.columns.resize(static_cast<size_t>(seen.keys));
    for (int64_t slot = 0; slot < seen.slots(); ++slot) seen.columns.push_back("slot " + std::to_string(slot));
    if (const auto span = spans.of_path.find(path + ".span"); span != spans.of_path.end())
      seen.reach = reach_of(seen, *span->second, span->second->learned() ? asked.at(span->first) : Tensor());
    all.push_back(std::move(seen));
  }
  return all;
}

}  // namespace orrery::models
