// Sums modulo k: d_1 ... d_n and an equals sign; the target is (d_1 + ... + d_n) mod k. Every term
// counts: if one is unknown, all answers are equally likely, and the loss is at least ln k.
#include "models/data/algorithmic/base/problem.h"

namespace orrery::models {
namespace {

class ModularSum final : public Problem {
 public:
  struct Settings {
    int64_t terms = 4, modulus = 5;
    template <class V>
    void visit(V& v) {
      v("terms", terms, "number of terms to add", between(1, 16777215));
      v("modulus|k", modulus, "modulus k; terms are 0 to k - 1", between(2, 1048575));
    }
  };
  static inline const nn::Info info{.name = "modular_sum",
                                    .formula = "d_1 ... d_n = (d_1 + ... + d_n) mod k",
                                    .source = "Power et al. 2022, arXiv:2201.02177"};

  explicit ModularSum(const Spec& spec) : settings_(nn::settings_from<Settings>(spec)) {}
  int64_t vocabulary() const override { return settings_.modulus + 1; }
  int64_t length() const override { return settings_.terms + 1; }
  void write(RandomKey rng, std::span<int32_t> inputs, std::span<int32_t> targets) const override {
    Draws draws(rng);
    int64_t sum = 0;
    for (int32_t& term : inputs.first(inputs.size() - 1)) sum += term = draws.token(settings_.modulus);
    inputs.back() = static_cast<int32_t>(settings_.modulus);
    targets.back() = static_cast<int32_t>(sum % settings_.modulus);
  }

 private:
  Settings settings_;
};
REGISTER_PROBLEM(ModularSum);

}  // namespace
}  // namespace orrery::models
