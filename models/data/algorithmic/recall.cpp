// Recall of evidence that is spread: each of n tokens files a value under a key, the last one names a key q, and the
// value that was filed under q most often is asked for.
//   inputs   (k_1 v_1) ... (k_n v_n) q         token of a pair: k values + v
// Exactly `evidence` of the n tokens are filed under q, at places that are drawn; the answer leads by at least one.  A
// single token of them tells little, so what is read must be gathered from all: arXiv:2302.06461 says that weights that
// need not add up to 1 gather better the more there is to gather.
#include <algorithm>
#include <vector>

#include "models/data/algorithmic/base/problem.h"

namespace orrery::models {
namespace {

class Recall final : public Problem {
 public:
  struct Settings {
    int64_t length = 64, evidence = 16, keys = 4, values = 4;
    template <class V>
    void visit(V& v) {
      v("length", length, "tokens that file something", between(1, 16777215));
      v("evidence", evidence, "of them that are filed under the key that is asked for", between(1, 16777215));
      v("keys", keys, "that there are", between(2, 1024));
      v("values", values, "that there are", between(2, 1023));
    }
  };
  static inline const nn::Info info{.name = "recall",
                                    .formula = "(k_1 v_1) ... (k_n v_n) q -> the most frequent v under q",
                                    .source = "after A Study on ReLU and Softmax in Transformer, arXiv:2302.06461"};

  explicit Recall(const Spec& spec) : settings_(nn::settings_from<Settings>(spec)) {
    check(settings_.evidence <= settings_.length, "recall: evidence ", settings_.evidence, " of ", settings_.length,
          " tokens; it can be at most length");
  }
  int64_t vocabulary() const override { return settings_.keys * settings_.values + settings_.keys; }
  int64_t length() const override { return settings_.length + 1; }
  void write(RandomKey key, std::span<int32_t> inputs, std::span<int32_t> targets) const override {
    const Settings& s = settings_;
    Draws draws(key);
    const int64_t asked = draws.below(s.keys);
    const std::vector<int64_t> values = evidence(draws, targets.back());
    size_t used = 0;
    for (int64_t i = 0; i < s.length; ++i) {  // each place is taken with the chance that makes all choices alike
      const auto needed = static_cast<int64_t>(values.size() - used);
      const bool under_asked = draws.below(s.length - i) < needed;
      const int64_t other = draws.below(s.keys - 1), value = draws.below(s.values);
      const int64_t pair =
          under_asked ? asked * s.values + values[used++] : (other + (other >= asked ? 1 : 0)) * s.values + value;
      inputs[static_cast<size_t>(i)] = static_cast<int32_t>(pair);
    }
    inputs.back() = static_cast<int32_t>(s.keys * s.values + asked);
  }

 private:
  // Values of which one is the most frequent: while another has as many, one of those turns into it.
  std::vector<int64_t> evidence(Draws& draws, int32_t& answer) const {
    const int64_t leader = draws.below(settings_.values);
    std::vector<int64_t> drawn(static_cast<size_t>(settings_.evidence));
    std::vector<int64_t> count(static_cast<size_t>(settings_.values));
    for (int64_t& value : drawn) ++count[static_cast<size_t>(value = draws.below(settings_.values))];
    const auto rival = [&] {
      int64_t most = 0;
      for (int64_t value = 0; value < settings_.values; ++value)
        if (value != leader) most = std::max(most, count[static_cast<size_t>(value)]);
      return most;
    };
    for (size_t i = 0; count[static_cast<size_t>(leader)] <= rival(); i = (i + 1) % drawn.size()) {
      int64_t& value = drawn[i];
      if (value == leader || count[static_cast<size_t>(value)] != rival()) continue;
      --count[static_cast<size_t>(value)], ++count[static_cast<size_t>(leader)], value = leader;
    }
    answer = static_cast<int32_t>(leader);
    return drawn;
  }

  Settings settings_;
};
REGISTER_PROBLEM(Recall);

}  // namespace
}  // namespace orrery::models
