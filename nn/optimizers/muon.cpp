// Muon: orthogonalized momentum. Jordan et al. 2024, kellerjordan.github.io/posts/muon. For a matrix W (R, C):
//   u <- mu u + g,   d = g + mu u          nesterov=no: d = u
//   X = d / (|d|_F + 1e-7),   five times:  X <- 3.4445 X - 4.7750 (X X^T) X + 2.0315 (X X^T)^2 X
//   W <- (1 - lr decay) W - lr sqrt(max(1, R / C)) X
// The polynomial maps every singular value of X to about [0.7, 1.2] and keeps the singular vectors.
// So X is close to U V^T for d = U S V^T: an equal step in every direction. If R > C the polynomial
// is computed as X (X^T X), so that the square products have the size of the shorter side.
//
// Matrices are parameters with two axes (packed ones separately) and convolutions, (N, h, w, C) as
// (N, h w C). The source scales convolution steps by sqrt(max(1, h / w)): its R and C are h and w
// of (N, C, h, w). All others (vectors, scalars, and tables such as embeddings and the output head:
// Parameter::is_lookup_table) use AdamW; its learning rate is learning_rate * adamw_learning_rate
// (default: the source's 3e-4 / 0.02). g is already clipped; decay is as in AdamW.
#include <cmath>

#include "engine/ops/ops.h"
#include "nn/optimizers/adamw.h"

namespace orrery::nn {
namespace {

bool is_matrix(const Parameter& p) {
  const Shape& shape = p.value.shape();
  return !p.is_lookup_table && (shape.rank() == 2 || shape.rank() == 4) && shape[0] > 1 && shape.numel() > shape[0];
}

struct Direction {  // (g, u) -> (u, d)
  const Optimizer::StepArguments* arguments;
  double momentum;
  bool nesterov;
  template <class A>
  HOST_DEVICE Values<A, 2> operator()(A g, A u) const {
    if (arguments->skip != 0) return {{u, A(0)}};
    const A mu = A(momentum), gradient = g * A(arguments->clip_factor), velocity = mu * u + gradient;
    return {{velocity, nesterov ? gradient + mu * velocity : velocity}};
  }
};
struct Normalize {  // d -> d / (|d| + 1e-7)
  template <class A>
  HOST_DEVICE A operator()(A d, In<double> square) const {
    return d / A(std::sqrt(square[0]) + 1e-7);
  }
};
struct ApplyStep {  // (p, x) -> p
  const Optimizer::StepArguments* arguments;
  Optimizer::GroupOptions group_options;
  double decay, scale;
  template <class A>
  HOST_DEVICE A operator()(A p, A x) const {
    if (arguments->skip != 0) return p;
    const double lr = arguments->lr * group_options.lr_scale;
    const A updated = A(1 - (group_options.decay ? lr * decay : 0)) * p - A(lr * scale) * x;
    const A low = A(group_options.min_value), high = A(group_options.max_value);
    return updated < low ? low : updated > high ? high : updated;
  }
};

// Returns x (R, C), of Frobenius norm at most 1, with its singular values moved near 1.
Tensor orthogonalize(Tensor x, int64_t iterations) {
  const bool tall = x.size(0) > x.size(1);
  for (int64_t i = 0; i < iterations; ++i) {
    const Tensor square = tall ? matmul(x, x, {.a = true}) : matmul(x, x, {.b = true});
    const Tensor factor = -4.7750 * square + 2.0315 * matmul(square, square);
    x = 3.4445 * x + (tall ? matmul(x, factor) : matmul(factor, x));
  }
  return x;
}

class Muon final : public Optimizer {
 public:
  struct Settings {
    double momentum = 0.95, weight_decay = 0;
    bool nesterov = true;
    int64_t iterations = 5;
    double adamw_learning_rate = 0.015, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-10;
    GroupLearningRates lr_scales;
    template <class V>
    void visit(V& v) {
      v("momentum", momentum, "fraction of a matrix's momentum that is kept per step", fraction());
      v("weight_decay|decay", weight_decay, "decoupled weight decay of matrices and tables", between(0, 1000));
      v("nesterov", nesterov, "use Nesterov momentum");
      v("iterations", iterations, "iterations of the polynomial that makes a step orthogonal", between(1, 20));
      v("adamw_learning_rate|adamw_rate", adamw_learning_rate,
        "learning rate of the AdamW for non-matrices, as a fraction of that of matrices", between(0, 1000));
      v("beta1", beta1, "decay of the mean of the gradients in AdamW", moving_average());
      v("beta2", beta2, "decay of the mean of the squared gradients in AdamW", moving_average());
      v("epsilon", epsilon, "added to the square root in AdamW", above(0, 100));
      lr_scales.visit(v);
    }
  };
  static inline const Info info{.name = "muon",
                                .formula =
                                    "p (1 - learning_rate weight_decay) - learning_rate sqrt(max(1, rows / columns)) "
                                    "orthogonal(d), d from the momentum; AdamW for non-matrices",
                                .source = "Jordan et al. 2024, kellerjordan.github.io/posts/muon",
                                .parameters = "momentum 0, m 0, v 0",
                                .saves = "one number per parameter of a matrix, two per other parameter"};

  Muon(const Spec& spec, FlatParameters& parameters) : Optimizer(parameters) {
    read_settings(spec, settings_);
    set_lr_scales(spec.name, settings_.lr_scales);
    int64_t in_matrices = 0, in_others = 0;
    for (const FlatParameters::Segment& s : parameters.segments()) {
      int64_t& count = is_matrix(*s.parameter) ? in_matrices : in_others;
      first_.push_back(count);
      count += s.parameter->value.numel();
    }
    const Tensor& like = parameters.values();
    momentum_ = Tensor::zeros_like(like, Shape{in_matrices});
    for (Tensor& moment : moments_) moment = Tensor::zeros_like(like, Shape{in_others});
  }

  NamedMoments moments() const override {
    NamedMoments all;
    for (size_t i = 0; i < first_.size(); ++i) {
      const FlatParameters::Segment& s = parameters_.segments()[i];
      const auto add = [&](const char* name, const Tensor& flat) {
        all.emplace_back(name + s.path,
                         Tensor::view(flat.impl()->buffer, first_[i], s.parameter->value.shape(), flat.dtype()));
      };
      if (is_matrix(*s.parameter))
        add("momentum.", momentum_);
      else
        add("first_moment.", moments_[0]), add("second_moment.", moments_[1]);
    }
    return all;
  }

 private:
  int64_t cut_before(int64_t element) const override {  // no matrix is cut
    const int64_t cut = Optimizer::cut_before(element);
    for (const FlatParameters::Segment& s : parameters_.segments())
      for (const FlatParameters::PackedTensor& matrix : FlatParameters::packed_tensors_of(s))
        if (is_matrix(*s.parameter) && matrix.begin < cut && cut < matrix.end) return matrix.begin;
    return cut;
  }
  AdamWFormula adamw() const { return {settings_.beta1, settings_.beta2, settings_.epsilon, settings_.weight_decay}; }
  std::pair<double, double> corrections(int64_t step) const override { return adamw().corrections(step); }

  void update_parameters(const StepArguments* arguments) override {
    for (size_t i = 0; i < first_.size(); ++i) {
      const FlatParameters::Segment& s = parameters_.segments()[i];
      GroupOptions options = group_options(*s.parameter);
      if (is_matrix(*s.parameter)) {
        for (const FlatParameters::PackedTensor& matrix : FlatParameters::packed_tensors_of(s))
          if (parameters_.mine().begin <= matrix.begin && matrix.end <= parameters_.mine().end)
            update_matrix(matrix, first_[i] + matrix.begin - s.begin, arguments, options);
        parameters_.round(s);
        continue;
      }
      options.lr_scale *= settings_.adamw_learning_rate;
      update_elements(parameters_, s.begin, s.end, moments_, first_[i], arguments, adamw(), options);
    }
  }
  void update_matrix(const FlatParameters::PackedTensor& matrix, int64_t first, const StepArguments* arguments,
                     const GroupOptions& options) {
    const Tensor &p = parameters_.values(), &g = parameters_.gradients();
    const Shape flat{matrix.shape[0], matrix.shape.numel() / matrix.shape[0]};
    const Shape& sides = matrix.shape.rank() == 4 ? matrix.shape.without(0) : flat;
    const double scale = std::sqrt(std::max(1.0, static_cast<double>(sides[0]) / static_cast<double>(sides[1])));
    const Tensor value = p.flat_view(matrix.begin, flat), velocity = momentum_.flat_view(first, flat),
                 d = Tensor::empty_like(velocity), x = Tensor::empty_like(d),
                 square = Tensor::empty_like(p, Shape{}, Dtype::f64);
    each_element("muon", Direction{arguments, settings_.momentum, settings_.nesterov}, out_elements(velocity, d),
                 row_of(g.flat_view(matrix.begin, flat)), row_of(velocity));
    sum_of_squares(d, square);
    each_element("muon", Normalize{}, out_elements(x), row_of(d), broadcast<double>(square));
    const Tensor step = orthogonalize(x, settings_.iterations);
    each_element("muon", ApplyStep{arguments, options, settings_.weight_decay, scale}, out_elements(value),
                 row_of(value), row_of(step));
  }

  Settings settings_;
  std::vector<int64_t> first_;     // first element of each segment in momentum_ or moments_
  Tensor momentum_;                // matrices
  std::array<Tensor, 2> moments_;  // all other parameters
};
REGISTER_OPTIMIZER(Muon);

}  // namespace
}  // namespace orrery::nn
