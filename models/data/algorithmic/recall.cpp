// Recall of distributed evidence: each of n tokens has a key and a value, the last tokens are
// queried keys, and the target is the most frequent value of each queried key.
//   inputs   (k_1 v_1) ... (k_n v_n) q_1 ... q_m         token of a pair: k values + v
// Exactly `evidence` of the n tokens have each q, at random positions; the answer leads by at least
// one. One token is weak evidence, so attention must sum all: weights that need not add up to 1 do
// so better with more evidence (arXiv:2302.06461). More questions give more training targets.
#include <algorithm>
#include <numeric>
#include <vector>

#include "models/data/algorithmic/base/problem.h"

namespace orrery::models {
namespace {

class Recall final : public Problem {
 public:
  struct Settings {
    int64_t length = 64, evidence = 16, keys = 4, values = 4, questions = 1;
    template <class V>
    void visit(V& v) {
      v("length", length, "number of key-value tokens", between(1, 16777215));
      v("evidence", evidence, "number of these tokens that have each queried key", between(1, 16777215));
      v("keys", keys, "number of different keys", between(2, 1024));
      v("values", values, "number of different values", between(2, 1023));
      v("questions", questions, "number of queried keys, each queried once", between(1, 1024));
    }
  };
  static inline const nn::Info info{.name = "recall",
                                    .formula = "(k_1 v_1) ... (k_n v_n) q -> the most frequent v under q",
                                    .source = "after A Study on ReLU and Softmax in Transformer, arXiv:2302.06461"};

  explicit Recall(const Spec& spec) : settings_(nn::settings_from<Settings>(spec)) {
    const Settings& s = settings_;
    check(s.questions <= s.keys, "recall: questions=", s.questions, " must be at most keys=", s.keys,
          ", because each key is queried at most once");
    check(s.evidence <= s.length / s.questions, "recall: evidence=", s.evidence, " for questions=", s.questions,
          " does not fit into length=", s.length, "; use at most evidence=", s.length / s.questions);
    check(s.questions < s.keys || s.evidence * s.questions == s.length, "recall: questions=", s.questions,
          " queries all keys (keys=", s.keys, "), so none is left for tokens that are not evidence (",
          s.length - s.evidence * s.questions, "); use fewer questions or more keys");
  }
  int64_t vocabulary() const override { return settings_.keys * settings_.values + settings_.keys; }
  int64_t length() const override { return settings_.length + settings_.questions; }
  void write(RandomKey rng, std::span<int32_t> inputs, std::span<int32_t> targets) const override {
    const Settings& s = settings_;
    Draws draws(rng);
    std::vector<int64_t> others(static_cast<size_t>(s.keys)), pairs;  // keys that are not queried; evidence
    std::iota(others.begin(), others.end(), 0);
    for (size_t at = static_cast<size_t>(s.length); at < inputs.size(); ++at) {
      const auto drawn = others.begin() + draws.below(static_cast<int64_t>(others.size()));
      const int64_t queried = *drawn;
      others.erase(drawn);
      for (const int64_t value : evidence(draws, targets[at])) pairs.push_back(queried * s.values + value);
      inputs[at] = static_cast<int32_t>(s.keys * s.values + queried);
    }
    for (int64_t i = 0; i < s.length; ++i) {  // probabilities that make all choices equally likely
      const bool is_evidence = draws.below(s.length - i) < static_cast<int64_t>(pairs.size());
      int64_t pair = 0;
      if (is_evidence) {
        const auto taken = pairs.begin() + draws.below(static_cast<int64_t>(pairs.size()));
        pair = *taken, *taken = pairs.back(), pairs.pop_back();
      } else {
        const auto other = static_cast<size_t>(draws.below(static_cast<int64_t>(others.size())));
        pair = others[other] * s.values + draws.below(s.values);
      }
      inputs[static_cast<size_t>(i)] = static_cast<int32_t>(pair);
    }
  }

 private:
  // Draws values with one leader: while another value is as frequent, one of that value becomes it.
  std::vector<int64_t> evidence(Draws& draws, int32_t& target) const {
    const int64_t leader = draws.below(settings_.values);
    std::vector<int64_t> drawn(static_cast<size_t>(settings_.evidence));
    std::vector<int64_t> count(static_cast<size_t>(settings_.values));
    for (int64_t& value : drawn) ++count[static_cast<size_t>(value = draws.below(settings_.values))];
    const auto rival = [&] {
      int64_t max_count = 0;
      for (int64_t value = 0; value < settings_.values; ++value)
        if (value != leader) max_count = std::max(max_count, count[static_cast<size_t>(value)]);
      return max_count;
    };
    for (size_t i = 0; count[static_cast<size_t>(leader)] <= rival(); i = (i + 1) % drawn.size()) {
      int64_t& value = drawn[i];
      if (value == leader || count[static_cast<size_t>(value)] != rival()) continue;
      --count[static_cast<size_t>(value)], ++count[static_cast<size_t>(leader)], value = leader;
    }
    target = static_cast<int32_t>(leader);
    return drawn;
  }

  Settings settings_;
};
REGISTER_PROBLEM(Recall);

}  // namespace
}  // namespace orrery::models
