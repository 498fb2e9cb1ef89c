#include "models/inspection/base/attention_weights.h"

namespace orrery::models {

std::vector<AttentionSeen> see_attentions(const Subject& subject) {
  std::vector<AttentionSeen> all;
  for (const auto& [path, value] : see(subject, "weights")) {
    AttentionSeen seen{path, value.reshape(Shape{value.size(1), value.size(2), value.size(3)}), 0, {}, {}};
    seen.queries = subject.places(path), seen.columns = subject.keys(path);
    seen.keys = std::min(static_cast<int64_t>(seen.columns.size()), seen.weights.size(2));
    seen.columns.resize(static_cast<size_t>(seen.keys));
    for (int64_t slot = 0; slot < seen.slots(); ++slot) seen.columns.push_back("slot " + std::to_string(slot));
    all.push_back(std::move(seen));
  }
  return all;
}

}  // namespace orrery::models
