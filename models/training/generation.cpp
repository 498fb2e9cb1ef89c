#include "models/training/generation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/autograd/autograd.h"
#include "engine/math/random.h"
#include "engine/types/check.h"
#include "models/data/tokenizer.h"

namespace orrery::models {
namespace {

void check_finite(const std::vector<double>& logits) {
  const bool finite = std::all_of(logits.begin(), logits.end(), [](double x) { return std::isfinite(x); });
  check(finite,
        "generate: the model's logits are not finite, because its weights are too large; use an earlier checkpoint");
}

// The tokens by decreasing likelihood, sorted only as far as they are read: a full sort of a
// vocabulary of 50,000 takes a fifth of the time in which GPT-2 reads its weights.
class MostLikely {
  auto less_likely() const {
    return [this](int32_t a, int32_t b) {
      const double x = logits_[static_cast<size_t>(a)], y = logits_[static_cast<size_t>(b)];
      return x != y ? x < y : a > b;
    };
  }

 public:
  explicit MostLikely(const std::vector<double>& logits) : logits_(logits), order_(logits.size()) {
    std::iota(order_.begin(), order_.end(), 0);
    std::make_heap(order_.begin(), order_.end(), less_likely());
  }
  int32_t operator[](size_t i) {
    for (; sorted_ <= i; ++sorted_)
      std::pop_heap(order_.begin(), order_.end() - static_cast<std::ptrdiff_t>(sorted_), less_likely());
    return order_[order_.size() - 1 - i];
  }

 private:
  const std::vector<double>& logits_;
  std::vector<int32_t> order_;  // a heap, followed by the most likely tokens in increasing order
  size_t sorted_ = 0;
};

// Samples from softmax(logits / temperature) over the `top_k` largest logits, restricted to the
// fewest whose probabilities add up to top_p. `uniform` in [0, 1) selects the token.
int32_t draw(const std::vector<double>& logits, const SamplingSettings& s, double uniform) {
  MostLikely token(logits);
  if (s.temperature == 0) return token[0];
  const double max_logit = logits[static_cast<size_t>(token[0])];
  const auto weight = [&](int32_t i) { return std::exp((logits[static_cast<size_t>(i)] - max_logit) / s.temperature); };
  const size_t drawn = logits.size() - s.never.size();  // tokens in s.never come last
  size_t kept = s.top_k > 0 ? std::min(drawn, static_cast<size_t>(s.top_k)) : drawn;
  double total = 0;
  for (size_t i = 0; i < (s.top_k > 0 ? kept : logits.size()); ++i)
    total += weight(s.top_k > 0 ? token[i] : static_cast<int32_t>(i));
  if (s.top_p < 1) {
    const double wanted = s.top_p * total;
    const size_t max_kept = kept;
    for (kept = 0, total = 0; kept < max_kept && total < wanted; ++kept) total += weight(token[kept]);
  }
  double left = uniform * total;
  for (size_t i = 0; i < kept; ++i)
    if ((left -= weight(token[i])) < 0) return token[i];
  return token[kept - 1];
}

}  // namespace

std::vector<int32_t> generate(LanguageModel& model, std::vector<int32_t> tokens, const SamplingSettings& s,
                              const std::function<void(int32_t)>& each) {
  check(!tokens.empty(), "generate: the prompt is empty; give at least one token");
  check(s.temperature >= 0 && std::isfinite(s.temperature), "generate: temperature is ", s.temperature,
        "; it must be finite and at least 0; 0: always the most likely token");
  check(s.top_k >= 0, "generate: top_k is ", s.top_k, "; it must be at least 0");
  check(s.tokens >= 0, "generate: tokens is ", s.tokens, "; it must be at least 0");
  check(s.top_p > 0 && s.top_p <= 1, "generate: top_p is ", s.top_p, "; it must be above 0 and at most 1");
  const auto context = static_cast<size_t>(model.context());
  check(s.keep >= 0 && static_cast<size_t>(s.keep) <= context, "generate: keep is ", s.keep,
        "; it must be between 0 and ", context, " (the context)");
  const int64_t vocabulary = model.vocabulary();
  for (const int32_t token : s.never) check_token(token, vocabulary);
  check(static_cast<int64_t>(s.never.size()) < vocabulary, "generate: none of the model's ", vocabulary,
        " token ids is a token of its tokenizer; use the tokenizer that it was trained with");
  const size_t keep = s.keep > 0 ? static_cast<size_t>(s.keep) : std::max<size_t>(1, context / 2);
  const auto prefix = static_cast<size_t>(model.prefix());
  const NoGrad guard;
  const RandomKey rng = RandomKey{static_cast<uint64_t>(s.seed), 0}.derive("generate");
  const Device device = nn::device_of(model);
  nn::Cache cache = model.make_cache();
  size_t unread = std::min(tokens.size(), context);  // the last tokens, which the cache lacks
  for (int64_t i = 0; i < s.tokens; ++i) {
    const auto cached = static_cast<size_t>(cache.length);
    if (cached + unread > context)
      cache = model.make_cache(), unread = keep;
    else if (cached > 0 && cached < prefix)
      cache = model.make_cache(), unread += cached;
    nn::ForwardPass pass;
    pass.cache = &cache;
    const auto read = static_cast<int64_t>(unread);
    const Tensor input = Tensor::from(Shape{1, read}, std::span<const int32_t>(tokens).last(unread));
    std::vector<double> last = model.next(input.to(device), pass).to_vector();
    check_finite(last);
    for (const int32_t token : s.never) last[static_cast<size_t>(token)] = -std::numeric_limits<double>::infinity();
    const int32_t next = draw(last, s, static_cast<double>(uniform(rng, static_cast<uint64_t>(i))));
    if (std::find(s.ends.begin(), s.ends.end(), next) != s.ends.end()) break;
    tokens.push_back(next);
    unread = 1;
    if (each) each(next);
  }
  return tokens;
}

}  // namespace orrery::models
