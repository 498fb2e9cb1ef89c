// Sinusoidal positions. Vaswani et al. 2017, arXiv:1706.03762, section 3.5.
//   y[b, t] = x[b, t] + scale S[p],   S[p, 2i] = sin(p / base^(2i/C)),   S[p, 2i + 1] = cos(p / base^(2i/C))
// over C channels; an odd last channel has only its sine. S is constant: dx = dy, nothing is saved.
// p counts within a document and continues after cached tokens.
// The paper multiplies the embedding by sqrt(C), to about the size of S. Here x is not scaled. S is
// as small as an embedding with initial values N(0, 0.02^2), which keeps the paper's ratio. With
// scale=1 S dominates such an embedding, and a small GPT learns almost nothing in a hundred steps.
#include <cmath>

#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/positions/base/position.h"

namespace orrery::nn {
namespace {

Tensor sinusoids(int64_t positions, int64_t channels, double base, double scale) {
  std::vector<double> s;
  for (int64_t p = 0; p < positions; ++p)
    for (int64_t c = 0; c < channels; ++c) {
      const double angle =
          static_cast<double>(p) * std::pow(base, -static_cast<double>(c / 2 * 2) / static_cast<double>(channels));
      s.push_back(scale * (c % 2 ? std::cos(angle) : std::sin(angle)));
    }
  return Tensor::from(Shape{positions, channels}, s, Dtype::f64);
}

class SinusoidalPositions final : public Position {
 public:
  struct Settings {
    double base = 10000, scale = 0.02;
    template <class V>
    void visit(V& v) {
      v("base", base, "base of the frequencies: the longest wavelength is 2 pi base positions", above(0, 1e12, 1e-6));
      v("scale", scale, "factor of the sinusoids; 1: as large as an embedding of standard deviation 1", above(0, 1e6));
    }
  };
  static inline const Info info{.name = "sinusoidal",
                                .formula = "x + scale (sin or cos)(position / base^(2i / C))",
                                .source = "Vaswani et al. 2017, arXiv:1706.03762",
                                .parameters = "none",
                                .saves = "nothing"};
  SinusoidalPositions(const Spec& spec, const PositionOptions& options) {
    const auto s = settings_from<Settings>(spec);
    table_ = sinusoids(options.context, options.width, s.base, s.scale);
  }
  Tensor forward(const Tensor& x, ForwardPass& pass) override {
    if (table_.device() != x.device()) table_ = table_.to(x.device());  // once, not at every step
    return x + rows_at_positions("sinusoidal positions", table_, x, pass);
  }

 private:
  Tensor table_;  // (context, width) f64; not a buffer, because it can be recomputed
};
REGISTER_POSITION(SinusoidalPositions);

// The reference uses sines; odd channels are a quarter period ahead: cos(a) = sin(a + pi/2).
GradientCase gradient_case(const CaseTensors& random) {
  return {{{"x", random({2, 3, 5})}},
          [](const auto& in) {
            ForwardPass pass;
            const auto position = make_position(parse_spec("sinusoidal(100, 0.5)"), {.context = 4, .width = 5});
            return (*position)(in[0], pass) * in[0];
          },
          [](const auto& in) {
            std::vector<double> s;
            for (const double p : {0., 1., 2.})
              for (const double c : {0., 0., 2., 2., 4.}) {
                const double angle = p * std::exp(-c / 5 * std::log(100.));
                s.push_back(0.5 * std::sin(angle + (s.size() % 5 % 2 ? std::acos(0.) : 0)));
              }
            return (in[0] + Tensor::from(Shape{3, 5}, s, Dtype::f64)) * in[0];
          }};
}
REGISTER_GRADIENT_CASE("position", "sinusoidal", gradient_case);

}  // namespace
}  // namespace orrery::nn
