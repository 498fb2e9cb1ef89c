// ALiBi: scores decrease with distance. Press et al. 2021, arXiv:2108.12409.
//   s_ij += -m_h |i - j|
// Slopes of H heads: m_h = 2^(-8h/H) for h = 1 ... H if H is a power of two. Otherwise, as in the authors' code, the
// slopes of the next lower power n, then every other slope of 2n heads: 2^(-4 (2k - 1) / n) for k = 1 ... H - n.
// Full attention (not in the paper) uses |i - j| on both sides. Packing and caches keep distances.
//
// learned=yes: m_h = f_h times the slope above; f_h is learned, initially 1 and at least 0. With ds
// the bias gradient (H, distances) that nn/attentions/base/fused.h sums per distance:
//   df_h = -sum over d of ds_hd m_h d
// Saved for backward: nothing; with learned slopes the constant table (H, distances).
#include <bit>
#include <cmath>
#include <mutex>

#include "engine/loops/tensor_loops.h"
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/positions/base/position.h"

namespace orrery::nn {
namespace {

std::vector<double> slopes_of(int64_t heads) {
  const auto power_of_two = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  const auto n = static_cast<double>(power_of_two);
  std::vector<double> slopes;
  for (int64_t h = 1; h <= power_of_two; ++h) slopes.push_back(std::exp2(-8 * static_cast<double>(h) / n));
  for (int64_t k = 1; k <= heads - power_of_two; ++k)
    slopes.push_back(std::exp2(-4 * static_cast<double>(2 * k - 1) / n));
  return slopes;
}

// Returns -slope distance, (H, distances) f64.
Tensor bias_table(const std::vector<double>& slopes, int64_t distances) {
  std::vector<double> table;
  for (const double slope : slopes)
    for (int64_t d = 0; d < distances; ++d) table.push_back(-slope * static_cast<double>(d));
  return Tensor::from(Shape{static_cast<int64_t>(slopes.size()), distances}, table, Dtype::f64);
}
Tensor scaled(const Tensor& table, const Tensor& factor) {  // factor (H, 1); bf16 is inexact for distances above 256
  const Dtype arithmetic = arithmetic_dtype(factor.dtype());
  return factor.to(arithmetic) * table.to(arithmetic);
}

class Alibi final : public Position {
 public:
  struct Settings {
    bool learned = false;
    template <class V>
    void visit(V& v) {
      v("learned", learned, "learn a factor of each head's slope");
    }
  };
  static inline const Info info{.name = "alibi",
                                .formula = "score - 2^(-8 (head + 1) / heads) |i - j|",
                                .source = "Press et al. 2021, arXiv:2108.12409",
                                .parameters = "none; if learned, a factor 1 per slope",
                                .saves = "nothing; if learned, the table of biases"};
  Alibi(const Spec& spec, const PositionOptions& options) : slopes_(slopes_of(options.heads)) {
    const auto s = settings_from<Settings>(spec);
    if (!s.learned) return;
    factor_ = Parameter(Shape{options.heads, 1}, constant(1));
    factor_.decay = false, factor_.min_value = 0;
  }
  Tensor relative_bias(int64_t distances, Device device) const override {
    const Tensor table = table_of(distances, device);
    return factor_.value ? scaled(table, factor_.value) : table;
  }
  bool acts_on_scores() const override { return true; }
  void visit(Visitor& v) override { v("factor", factor_); }

 private:
  Tensor table_of(int64_t distances, Device device) const {
    const std::lock_guard lock(mutex_);
    if (!table_ || table_.size(1) != distances || table_.device() != device)
      table_ = bias_table(slopes_, distances).to(device);
    return table_;
  }
  std::vector<double> slopes_;
  Parameter factor_;  // (H, 1)
  mutable std::mutex mutex_;
  mutable Tensor table_;  // the last table: every layer of a step uses the same one
};
REGISTER_POSITION(Alibi);

GradientCase gradient_case(const CaseTensors& random) {
  return {{{"factor", random({3, 1})}, {"weight", random({3, 5})}},
          [](const auto& in) { return scaled(bias_table(slopes_of(3), 5).to(in[0].device()), in[0]) * in[1]; },
          [](const auto& in) {
            const Tensor slopes = Tensor::from(Shape{3, 1}, {1. / 16, 1. / 256, 1. / 4}, Dtype::f64);
            const Tensor distances = Tensor::from(Shape{1, 5}, {0, 1, 2, 3, 4}, Dtype::f64);
            return -matmul(in[0] * slopes, distances) * in[1];
          }};
}
REGISTER_GRADIENT_CASE("position", "alibi", gradient_case);

}  // namespace
}  // namespace orrery::nn
