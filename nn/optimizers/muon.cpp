// Muon: orthogonalized momentum. Jordan et al. 2024, kellerjordan.github.io/posts/muon. For a matrix W (R, C):
//   u <- mu u + g,   d = g + mu u          nesterov=no: d = u
//   X = d / (|d|_F + 1e-7),   five times:  X <- 3.4445 X - 4.7750 (X X^T) X + 2.0315 (X X^T)^2 X
//   W <- (1 - rate decay) W - rate sqrt(max(1, R / C)) X
// The polynomial maps every singular value of X to about [0.7, 1.2] and keeps the singular vectors.
// So X is close to U V^T for d = U S V^T: an equal step in every direction. If R > C the polynomial
// is computed as X (X^T X), so that the square products have the size of the shorter side.
//
// Matrices are parameters with two axes (packed ones separately) and convolutions, (N, h, w, C) as
// (N, h w C). The source scales convolution steps by sqrt(max(1, h / w)): its R and C are h and w
// of (N, C, h, w). All others (vectors, scalars, and tables such as embeddings and the output head:
// Parameter::table) use AdamW with learning rate learning_rate adamw_learning_rate (default: the
// source's 3e-4 / 0.02). g is already clipped; decay is as in AdamW.
#include <cmath>

#include "engine/ops/ops.h"
#include "nn/optimizers/adamw.h"

namespace orrery::nn {
namespace {

bool is_matrix(const Parameter& p) {
  const Shape& shape = p.value.shape();
  return !p.table && (shape.rank() == 2 || shape.rank() == 4) && shape[0] > 1 && shape.numel() > shape[0];
}

struct Direction {  // (g, u) -> (u, d)
  const Optimizer::Control* control;
  double momentum;
  bool nesterov;
  template <class A>
  HOST_DEVICE Values<A, 2> operator()(A g, A u) const {
    if (control->skip != 0) return {{u, A(0)}};
    const A mu = A(momentum), slope = g * A(control->clip_factor), speed = mu * u + slope;
    return {{speed, nesterov ? slope + mu * speed : speed}};
  }
};
struct Normalize {  // d -> d / (|d| + 1e-7)
  template <class A>
  HOST_DEVICE A operator()(A d, In<double> square) const {
    return d / A(std::sqrt(square[0]) + 1e-7);
  }
};
struct Move {  // (p, x) -> p
  const Optimizer::Control* control;
  Optimizer::Handling handling;
  double decay, scale;
  template <class A>
  HOST_DEVICE A operator()(A p, A x) const {
    if (control->skip != 0) return p;
    const double rate = control->rate * handling.rate_factor;
    const A moved = A(1 - (handling.decay ? rate * decay : 0)) * p - A(rate * scale) * x;
    const A low = A(handling.lowest), high = A(handling.highest);
    return moved < low ? low : moved > high ? high : moved;
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
    GroupRates rates;
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
      rates.visit(v);
    }
  };
  static inline const Info info{.name = "muon",
                                .formula =
                                    "p (1 - learning_rate weight_decay) - learning_rate sqrt(max(1, rows / columns)) "
                                    "orthogonal(d), d from the momentum; AdamW for non-matrices",
                                .source = "Jordan et al. 2024, kellerjordan.github.io/posts/muon",
                                .parameters = "momentum 0, m 0, v 0",
                                .keeps = "one number per parameter of a matrix, two per other parameter"};

  Muon(const Spec& spec, FlatParameters& parameters) : Optimizer(parameters) {
    read_settings(spec, settings_);
    scale_rates(spec.name, settings_.rates);
    int64_t in_matrices = 0, in_others = 0;
    for (const FlatParameters::Segment& s : parameters.segments()) {
      int64_t& size = is_matrix(*s.parameter) ? in_matrices : in_others;
      first_.push_back(size);
      size += s.parameter->value.numel();
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
                         Tensor::view(flat.body()->buffer, first_[i], s.parameter->value.shape(), flat.dtype()));
      };
      if (is_matrix(*s.parameter))
        add("momentum.", momentum_);
      else
        add("first_moment.", moments_[0]), add("second_moment.", moments_[1]);
    }
    return all;
  }

 private:
  AdamWFormula adamw() const { return {settings_.beta1, settings_.beta2, settings_.epsilon, settings_.weight_decay}; }
  std::pair<double, double> corrections(int64_t step) const override { return adamw().corrections(step); }

  void update_parameters(const Control* control) override {
    for (size_t i = 0; i < first_.size(); ++i) {
      const FlatParameters::Segment& s = parameters_.segments()[i];
      Handling how = handling(*s.parameter);
      if (is_matrix(*s.parameter)) {
        for (const FlatParameters::Part& matrix : FlatParameters::parts_of(s))
          update_matrix(matrix, first_[i] + matrix.begin - s.begin, control, how);
        parameters_.round(s);
        continue;
      }
      how.rate_factor *= settings_.adamw_learning_rate;
      update_elements(parameters_, s.begin, s.end, moments_, first_[i], control, adamw(), how);
    }
  }
  void update_matrix(const FlatParameters::Part& matrix, int64_t first, const Control* control, const Handling& how) {
    const Tensor &p = parameters_.values(), &g = parameters_.gradients();
    const Shape flat{matrix.shape[0], matrix.shape.numel() / matrix.shape[0]};
    const Shape& sides = matrix.shape.rank() == 4 ? matrix.shape.without(0) : flat;
    const double scale = std::sqrt(std::max(1.0, static_cast<double>(sides[0]) / static_cast<double>(sides[1])));
    const Tensor value = p.part(matrix.begin, flat), speed = momentum_.part(first, flat), d = Tensor::empty_like(speed),
                 x = Tensor::empty_like(d), square = Tensor::empty_like(p, Shape{}, Dtype::f64);
    each_element("muon", Direction{control, settings_.momentum, settings_.nesterov}, to_elements(speed, d),
                 row_of(g.part(matrix.begin, flat)), row_of(speed));
    sum_of_squares(d, square);
    each_element("muon", Normalize{}, to_elements(x), row_of(d), whole<double>(square));
    const Tensor step = orthogonalize(x, settings_.iterations);
    each_element("muon", Move{control, how, settings_.weight_decay, scale}, to_elements(value), row_of(value),
                 row_of(step));
  }

  Settings settings_;
  std::vector<int64_t> first_;     // first element of each segment in momentum_ or moments_
  Tensor momentum_;                // of matrices
  std::array<Tensor, 2> moments_;  // of all other parameters
};
REGISTER_OPTIMIZER(Muon);

}  // namespace
}  // namespace orrery::nn
