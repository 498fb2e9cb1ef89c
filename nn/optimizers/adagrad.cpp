// Adagrad with gradient clipping per tensor. Duchi, Hazan and Singer 2011, JMLR 12; clipping as in
// Adaptive Span, Sukhbaatar et al. 2019, arXiv:1905.07799, and its code. For each (packed) tensor:
//   n = |g|_2,   a = lr clip / (n + 1e-10) if n > clip, else lr
//   s <- s + g^2,   p <- p - a g / (sqrt(s) + epsilon)
// Clipping scales the step, not s, which accumulates all of g; grad_clip=0: no clipping. There is
// no decay. g is already clipped by the run's global norm. The paper's recipe is --grad_clip=0,
// --learning_rate=0.07, --warmup_steps=32000, --schedule=constant. Two passes: one computes n, the
// other reads p, g, s and writes p, s.
#include <cmath>

#include "engine/math/scalar.h"
#include "nn/optimizers/base/elementwise.h"

namespace orrery::nn {
namespace {

struct AdagradFormula {
  static constexpr int moments = 1;
  double clip, epsilon;
  const double* square;  // n^2 of the tensor, before any global clip

  template <class A>
  struct Step {
    A lr, epsilon;
    HOST_DEVICE A operator()(A p, A g, A* m) const {
      m[0] = m[0] + g * g;
      return p - lr * g / (scalar::sqrt(m[0]) + epsilon);
    }
  };
  template <class A>
  HOST_DEVICE Step<A> step(const Optimizer::StepArguments& arguments, double lr, bool) const {
    const double n = std::sqrt(*square) * arguments.clip_factor;
    return {A(clip > 0 && n > clip ? lr * clip / (n + 1e-10) : lr), A(epsilon)};
  }
};

class Adagrad final : public Optimizer {
 public:
  struct Settings {
    double grad_clip = 0.03, epsilon = 1e-10;
    GroupLearningRates lr_scales;
    template <class V>
    void visit(V& v) {
      v("grad_clip|clip", grad_clip,
        "largest norm of each tensor's gradient, above which it is scaled down; 0: no clipping", zero_or(tiny, 1e12));
      v("epsilon", epsilon, "added to the square root", above(0, 100));
      lr_scales.visit(v);
    }
  };
  static inline const Info info{
      .name = "adagrad",
      .formula = "p - learning_rate min(1, grad_clip / |g|) g / (sqrt(s) + epsilon), |g| of each tensor",
      .source = "Duchi et al. 2011, JMLR 12; grad_clip: Sukhbaatar et al. 2019, arXiv:1905.07799",
      .parameters = "s 0",
      .saves = "s: one number per parameter"};

  Adagrad(const Spec& spec, FlatParameters& parameters)
      : Optimizer(parameters),
        sums_{parameters.make_moments()},
        squares_(parameters.gradients(), packed_ranges(parameters)) {
    read_settings(spec, settings_);
    set_lr_scales(spec.name, settings_.lr_scales);
  }
  NamedMoments moments() const override { return named_segments("sum_of_squares", sums_[0]); }

 private:
  void update_parameters(const StepArguments* arguments) override {
    const double* square = squares_.of(parameters_.gradients(), parameters_.owners()).data<double>();
    for (const FlatParameters::Segment& s : parameters_.segments())
      for (const FlatParameters::PackedTensor& packed : FlatParameters::packed_tensors_of(s)) {
        const AdagradFormula formula{settings_.grad_clip, settings_.epsilon, square++};
        update_elements(parameters_, packed.begin, packed.end, sums_, packed.begin, arguments, formula,
                        group_options(*s.parameter));
      }
  }
  static std::vector<IndexRange> packed_ranges(const FlatParameters& parameters) {
    std::vector<IndexRange> ranges;
    for (const FlatParameters::Segment& s : parameters.segments())
      for (const FlatParameters::PackedTensor& packed : FlatParameters::packed_tensors_of(s))
        ranges.push_back({packed.begin, packed.end});
    return ranges;
  }

  Settings settings_;
  std::array<Tensor, 1> sums_;
  SquareSums squares_;  // n^2 of each tensor
};
REGISTER_OPTIMIZER(Adagrad);

}  // namespace
}  // namespace orrery::nn
