// Induction: predicts the token that followed the last token at its earlier occurrence.
//   inputs   ... A B ... A          the target is B; A occurs in no third position
// Needs two attention layers in sequence: one marks each token with the token before it, the next
// attends to the mark of A.
#include "models/data/algorithmic/base/problem.h"

namespace orrery::models {
namespace {

class Induction final : public Problem {
 public:
  struct Settings {
    int64_t length = 32, symbols = 16;
    template <class V>
    void visit(V& v) {
      v("length", length, "tokens per sequence", between(3, 16777216));
      v("symbols", symbols, "number of different symbols", between(2, 1048576));
    }
  };
  static inline const nn::Info info{
      .name = "induction", .formula = "... A B ... A -> B", .source = "Olsson et al. 2022, arXiv:2209.11895"};

  explicit Induction(const Spec& spec) : settings_(nn::settings_from<Settings>(spec)) {}
  int64_t vocabulary() const override { return settings_.symbols; }
  int64_t length() const override { return settings_.length; }
  void write(RandomKey rng, std::span<int32_t> inputs, std::span<int32_t> targets) const override {
    Draws draws(rng);
    const int32_t queried = draws.token(settings_.symbols);
    const auto position = static_cast<size_t>(draws.below(settings_.length - 2));
    for (int32_t& token : inputs) {
      token = draws.token(settings_.symbols - 1);
      token += token >= queried ? 1 : 0;
    }
    inputs[position] = inputs.back() = queried;
    targets.back() = inputs[position + 1];
  }

 private:
  Settings settings_;
};
REGISTER_PROBLEM(Induction);

}  // namespace
}  // namespace orrery::models
