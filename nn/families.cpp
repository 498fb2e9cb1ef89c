// One registry for each family, and what walks them all.
#include <algorithm>

#include "nn/activation.h"
#include "nn/attention.h"
#include "nn/feed_forward.h"
#include "nn/gradient_case.h"
#include "nn/initialization.h"
#include "nn/layer.h"
#include "nn/loss.h"
#include "nn/normalization.h"
#include "nn/optimizer.h"
#include "nn/position.h"
#include "nn/schedule.h"

namespace orrery::nn {
namespace {

std::vector<RegisteredCase>& cases() {
  static std::vector<RegisteredCase> all;
  return all;
}

}  // namespace

Registry<NormalizationEntry>& normalizations() {
  static Registry<NormalizationEntry> all("normalization");
  return all;
}
std::unique_ptr<Module> make_normalization(const Spec& spec, const NormalizationOptions& options) {
  return make_from(normalizations(), spec, options);
}

Registry<AttentionEntry>& attentions() {
  static Registry<AttentionEntry> all("attention");
  return all;
}
std::unique_ptr<Sublayer> make_attention(const Spec& spec, const AttentionOptions& options) {
  return make_from(attentions(), spec, options);
}

Registry<FeedForwardEntry>& feed_forwards() {
  static Registry<FeedForwardEntry> all("feed_forward");
  return all;
}
std::unique_ptr<Sublayer> make_feed_forward(const Spec& spec, const FeedForwardOptions& options) {
  return make_from(feed_forwards(), spec, options);
}

Registry<PositionEntry>& positions() {
  static Registry<PositionEntry> all("position");
  return all;
}
std::unique_ptr<Position> make_position(const Spec& spec, const PositionOptions& options) {
  return make_from(positions(), spec, options);
}

Registry<Info>& layers() {
  static Registry<Info> all("layer");
  return all;
}

Registry<LossEntry>& losses() {
  static Registry<LossEntry> all("loss");
  return all;
}

bool add_gradient_case(std::string family, std::string name, MakeGradientCase make, std::string title) {
  cases().push_back({std::move(family), std::move(name), std::move(title), std::move(make)});
  return true;
}
const std::vector<RegisteredCase>& gradient_cases() {
  std::stable_sort(cases().begin(), cases().end(), [](const auto& a, const auto& b) {
    return std::tie(a.family, a.name) < std::tie(b.family, b.name);
  });
  return cases();
}
GradientCase make_case(const RegisteredCase& registered, uint64_t seed) {
  uint64_t count = 0;
  const RandomKey key = RandomKey{seed, 0}.derive(registered.family).derive(registered.name).derive(registered.title);
  return registered.make([&](const Shape& shape) {
    const Tensor x = Tensor::empty(shape, Dtype::f64);
    fill(x, normal(1), key.derive(count++));
    return x;
  });
}

std::vector<Family> families() {
  std::vector<Family> all = {{"activation", activation_names()},
                             {"attention", attentions().names()},
                             {"feed_forward", feed_forwards().names()},
                             {"layer", layers().names()},
                             {"learned_activation", learned_activation_names()},
                             {"loss", losses().names()},
                             {"normalization", normalizations().names()},
                             {"optimizer", optimizers().names()},
                             {"position", positions().names()},
                             {"schedule", schedules().names()}};
  return all;
}

}  // namespace orrery::nn
