// Copy: s_1 ... s_n, a separator, and then s_1 ... s_n again, which are the targets.
//   inputs   s_1 s_2 ... s_n  |   s_1 ... s_(n-1)
//   targets   .   .  ...  .  s_1  s_2 ...   s_n
// Symbols are uniform, so a model that does not copy has a loss of ln symbols.
#include "models/data/algorithmic/base/problem.h"

namespace orrery::models {
namespace {

class Copy final : public Problem {
 public:
  struct Settings {
    int64_t length = 16, symbols = 8;
    template <class V>
    void visit(V& v) {
      v("length", length, "number of symbols to copy", between(1, 8388608));
      v("symbols", symbols, "number of different symbols", between(2, 1048575));
    }
  };
  static inline const nn::Info info{
      .name = "copy", .formula = "s_1 ... s_n | s_1 ... s_n", .source = "Graves et al. 2014, arXiv:1410.5401"};

  explicit Copy(const Spec& spec) : settings_(nn::settings_from<Settings>(spec)) {}
  int64_t vocabulary() const override { return settings_.symbols + 1; }
  int64_t length() const override { return 2 * settings_.length; }
  void write(RandomKey rng, std::span<int32_t> inputs, std::span<int32_t> targets) const override {
    Draws draws(rng);
    const auto n = static_cast<size_t>(settings_.length);
    inputs[n] = static_cast<int32_t>(settings_.symbols);
    for (size_t i = 0; i < n; ++i) {
      inputs[i] = targets[n + i] = draws.token(settings_.symbols);
      if (i + 1 < n) inputs[n + 1 + i] = inputs[i];
    }
  }

 private:
  Settings settings_;
};
REGISTER_PROBLEM(Copy);

}  // namespace
}  // namespace orrery::models
