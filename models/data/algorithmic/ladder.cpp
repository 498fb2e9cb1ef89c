// Ladder of lags: symbols and marks; mark r's target is the symbol `first + r gap` tokens before.
//   lag_r = first + r gap,  r = 0 ... rungs - 1
// An adaptive span gets its gradient only from its ramp of R tokens, so a far lag is never found.
// With a gap below R, each lag that a head covers puts the next one on its ramp, and the span
// grows. With rungs=1 nothing leads the span.
#include "models/data/algorithmic/base/problem.h"

namespace orrery::models {
namespace {

class Ladder final : public Problem {
 public:
  struct Settings {
    int64_t length = 128, first = 4, gap = 10, rungs = 6, symbols = 8;
    template <class V>
    void visit(V& v) {
      v("length", length, "tokens per sequence", between(2, 16777216));
      v("first", first, "shortest lag, in tokens", between(1, 16777215));
      v("gap", gap, "difference between consecutive lags, in tokens", between(1, 16777215));
      v("rungs", rungs, "number of lags", between(1, 65536));
      v("symbols", symbols, "number of different symbols", between(2, 983040));
    }
  };
  static inline const nn::Info info{.name = "ladder",
                                    .formula = "s_1 s_2 ... mark_r -> the symbol first + r gap before",
                                    .source = "after Sukhbaatar et al. 2019, arXiv:1905.07799"};

  explicit Ladder(const Spec& spec) : settings_(nn::settings_from<Settings>(spec)) {
    check(settings_.length > lag(0), "ladder: length=", settings_.length,
          " is too short for the shortest lag, first=", lag(0), "; use at least length=", lag(0) + 1,
          " or a smaller first");
  }
  int64_t vocabulary() const override { return settings_.symbols + settings_.rungs; }
  int64_t length() const override { return settings_.length; }
  // Half of the tokens are marks, where their target exists and is a symbol.
  void write(RandomKey rng, std::span<int32_t> inputs, std::span<int32_t> targets) const override {
    Draws draws(rng);
    for (int64_t t = 0; t < settings_.length; ++t) {
      const int32_t symbol = draws.token(settings_.symbols);
      const int64_t rung = draws.below(settings_.rungs), from = t - lag(rung);
      const bool marks = draws.below(2) == 0 || t + 1 == settings_.length;
      const auto at = static_cast<size_t>(t);
      inputs[at] = symbol;
      if (!marks || from < 0 || inputs[static_cast<size_t>(from)] >= settings_.symbols) continue;
      inputs[at] = static_cast<int32_t>(settings_.symbols + rung);
      targets[at] = inputs[static_cast<size_t>(from)];
    }
    if (targets.back() == no_target) query_at_end(inputs, targets);
  }

 private:
  int64_t lag(int64_t rung) const { return settings_.first + rung * settings_.gap; }
  // Ensures an answer: the last token becomes mark 0, and its target a symbol if it is a mark.
  void query_at_end(std::span<int32_t> inputs, std::span<int32_t> targets) const {
    const size_t from = inputs.size() - 1 - static_cast<size_t>(lag(0));
    if (inputs[from] >= settings_.symbols) inputs[from] = targets[from], targets[from] = no_target;
    inputs.back() = static_cast<int32_t>(settings_.symbols);
    targets.back() = inputs[from];
  }

  Settings settings_;
};
REGISTER_PROBLEM(Ladder);

}  // namespace
}  // namespace orrery::models
