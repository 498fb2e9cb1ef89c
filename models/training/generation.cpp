#include "models/training/generation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/autograd/autograd.h"
#include "engine/base/check.h"
#include "engine/base/random.h"

namespace orrery::models {
namespace {

void check_finite(const std::vector<double>& logits) {
  const bool finite = std::all_of(logits.begin(), logits.end(), [](double x) { return std::isfinite(x); });
  check(finite,
        "generate: what the model predicts is not finite: its weights are too large; use an earlier checkpoint");
}

// How many of the weights, the largest first, make up the share top_p of their total; `total` becomes their sum.
size_t nucleus(const std::vector<double>& weight, double top_p, double& total) {
  const double wanted = top_p * total;
  double sum = 0;
  for (size_t i = 0; i < weight.size(); ++i)
    if ((sum += weight[i]) >= wanted) {
      total = sum;
      return i + 1;
    }
  return weight.size();
}

// Draws from softmax(logits / temperature) over the `top_k` largest, and of those from top_p; a uniform number decides.
int32_t draw(const std::vector<double>& logits, const SamplingSettings& s, double uniform) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  size_t kept = s.top_k > 0 ? std::min(logits.size(), static_cast<size_t>(s.top_k)) : logits.size();
  const auto likelier = [&](int32_t a, int32_t b) {
    const double x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(), likelier);
  if (s.temperature == 0) return order[0];
  std::vector<double> weight(kept);
  double total = 0;
  for (size_t i = 0; i < kept; ++i)
    total += weight[i] =
        std::exp((logits[static_cast<size_t>(order[i])] - logits[static_cast<size_t>(order[0])]) / s.temperature);
  if (s.top_p < 1) kept = nucleus(weight, s.top_p, total);
  double left = uniform * total;
  for (size_t i = 0; i < kept; ++i)
    if ((left -= weight[i]) < 0) return order[i];
  return order[kept - 1];
}

}  // namespace

std::vector<int32_t> generate(LanguageModel& model, std::vector<int32_t> tokens, const SamplingSettings& s,
                              const std::function<void(int32_t)>& each) {
  check(!tokens.empty(), "generate: the prompt is empty; give at least one token");
  check(s.temperature >= 0 && std::isfinite(s.temperature), "generate: temperature ", s.temperature,
        " must not be negative");
  check(s.top_k >= 0 && s.tokens >= 0, "generate: top_k ", s.top_k, " and tokens ", s.tokens, " must not be negative");
  check(s.top_p > 0 && s.top_p <= 1, "generate: top_p ", s.top_p, " must be above 0 and at most 1");
  const auto context = static_cast<size_t>(model.context());
  check(s.keep >= 0 && static_cast<size_t>(s.keep) <= context, "generate: keep ", s.keep, " must be between 0 and ",
        context, " (the context)");
  const size_t keep = s.keep > 0 ? static_cast<size_t>(s.keep) : std::max<size_t>(1, context / 2);
  const NoGrad guard;
  const RandomKey key = RandomKey{static_cast<uint64_t>(s.seed), 0}.derive("generate");
  const Device device = nn::device_of(model);
  nn::Cache cache = model.make_cache();
  size_t unread = std::min(tokens.size(), context);  // the last tokens, which the cache does not hold
  for (int64_t i = 0; i < s.tokens; ++i) {
    if (static_cast<size_t>(cache.tokens) + unread > context) cache = model.make_cache(), unread = keep;
    nn::Pass pass;
    pass.cache = &cache;
    const auto read = static_cast<int64_t>(unread);
    const Tensor input = Tensor::from(Shape{1, read}, std::span<const int32_t>(tokens).last(unread));
    const std::vector<double> last = model.next(input.to(device), pass).to_vector();
    check_finite(last);
    const int32_t next = draw(last, s, static_cast<double>(uniform(key, static_cast<uint64_t>(i))));
    tokens.push_back(next);
    unread = 1;
    if (each) each(next);
  }
  return tokens;
}

}  // namespace orrery::models
