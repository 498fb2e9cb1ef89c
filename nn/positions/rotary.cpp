// Rotary positions: rotate queries and keys by their position. Su et al. 2021, arXiv:2104.09864.
//   (a, b) -> R(p theta_i) (a, b),   R(x) = (cos x  -sin x; sin x  cos x),   theta_i = base^(-2i/n),   0 <= i < n/2
// for n = partial_rotary_factor D of the D channels, in pairs; the others stay. A pair is
// (i, i + n/2) (half_split; GPT-NeoX, Llama) or (2i, 2i + 1) (interleaved; the paper), which differ
// only in channel order. <R(x) q, R(y) k> = <q, R(y - x) k>: scores depend only on the distance.
// Positions count within documents, which within one sequence changes no score. In cross attention
// a document starts at different positions in the two sequences; this makes packed documents equal
// separate ones. R is orthogonal: backward rotates by the negative angle.
//   dx = R(p theta_i)^T dy = R(-p theta_i) dy
// Saved for backward: cosines and sines, (context, n/2) shared by layers, or (B, T, n/2) with
// documents. They are computed in f64: an f32 angle of 1000 radians is wrong in the fifth digit.
#include <cmath>
#include <map>
#include <mutex>
#include <tuple>

#include "engine/autograd/autograd.h"
#include "engine/loops/tensor_loops.h"
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/positions/base/position.h"

namespace orrery::nn {
namespace {

struct RotateRow {              // one head of one token; a row of n pairs
  double direction;             // 1, or -1 in backward
  int64_t angles, heads, size;  // angles: rows of the tables
  bool interleaved;
  template <class Row, class T, class A>
  HOST_DEVICE void operator()(Row row, In<T> x, int64_t r, In<A> cosine, In<A> sine, Out<T> y) const {
    const int64_t n = row.n, angle = r / heads % angles * n, all = size;
    const In<A> c = cosine.at(angle), s = sine.at(angle);
    const A d = A(direction);
    if (interleaved)
      row.each([&](int i) {
        const A a = x[2 * i], b = x[2 * i + 1];
        y[2 * i] = a * c[i] - b * (d * s[i]), y[2 * i + 1] = a * (d * s[i]) + b * c[i];
      });
    else
      row.each([&](int i) {
        const A a = x[i], b = x[n + i];
        y[i] = a * c[i] - b * (d * s[i]), y[n + i] = a * (d * s[i]) + b * c[i];
      });
    if (2 * n < all)
      row.each([&](int i) {
        for (int64_t j = 2 * n + i; j < all; j += n) y[j] = x[j];
      });
  }
};

struct RotatePairs {
  static constexpr const char* name = "rotate_pairs";
  Rotation rotation;

  Tensor rotated(const Tensor& x, double direction) const {
    const Tensor y = Tensor::empty_like(x), &cosine = rotation.cosine, &sine = rotation.sine;
    const RotateRow rotate_row{direction, cosine.shape().rows(), x.size(2), x.size(3), rotation.interleaved};
    each_row(name, static_cast<int>(cosine.size(-1)), rotate_row, row_of(x), row_index(), broadcast<Computed>(cosine),
             broadcast<Computed>(sine), out_row(y));
    return y;
  }
  Tensor forward(Saved&, const Tensor& x) const { return rotated(x, 1); }
  Gradients<1> backward(const Saved&, const Tensor& dy) const { return {rotated(dy, -1)}; }
};

class RotaryPositions final : public Position {
 public:
  struct Settings {
    double base = 10000, partial_rotary_factor = 1;
    std::string pairs = "half_split";
    template <class V>
    void visit(V& v) {
      v("base", base, "base of the frequencies: the slowest pair rotates by about a radian in this many positions",
        above(0, 1e12, 1e-6));
      v("partial_rotary_factor|share", partial_rotary_factor, "fraction of the head size that is rotated",
        {.low = 0, .high = 1, .low_allowed = false});
      v("pairs", pairs, "channels that rotate together: half_split or interleaved",
        one_of({"half_split", "interleaved"}));
    }
  };
  static inline const Info info{.name = "rotary",
                                .formula = "q, k rotated in pairs by position base^(-2i / D)",
                                .source = "Su et al. 2021, arXiv:2104.09864",
                                .parameters = "none",
                                .saves = "nothing",
                                .alias = "rope"};

  RotaryPositions(const Spec& spec, const PositionOptions& options) : spec_(spec), context_(options.context) {
    read_settings(spec, settings_);
    check_head_size(options.head_size ? options.head_size : options.width / options.heads);
  }
  void check_head_size(int64_t size) const override { static_cast<void>(pairs_of(size)); }
  Tensor rotate(const Tensor& x, ForwardPass& pass) const override {
    check(x.shape().rank() == 4, "rotary positions: need (batch, time, heads, size), not ", x.shape());
    const Rotation table = table_of(pairs_of(x.size(3)), arithmetic_dtype(x.dtype()), x.device());
    const Tensor positions = positions_of(x, pass);
    const auto rows = [&](const Tensor& t) {
      const Tensor next = next_rows("rotary positions", t, x, pass);
      return positions ? index_select(t, positions) : next;
    };
    return rotate_pairs(x, {rows(table.cosine), rows(table.sine), table.interleaved});
  }

 private:
  int64_t pairs_of(int64_t head_size) const {
    const double rotated = settings_.partial_rotary_factor * static_cast<double>(head_size);
    const auto pairs = static_cast<int64_t>(std::lround(rotated / 2));
    check(pairs >= 1 && std::abs(rotated - 2 * static_cast<double>(pairs)) < 1e-6, spec_, ": partial_rotary_factor (",
          settings_.partial_rotary_factor, ") times the head size (", head_size, ") is ", rotated,
          "; it must be an even number, at least 2, because channels rotate in pairs");
    return pairs;
  }
  // Returns tables of all positions, made at first use: attentions may differ in head size.
  Rotation table_of(int64_t pairs, Dtype dtype, Device device) const {
    const std::lock_guard lock(mutex_);
    Rotation& table = tables_[{pairs, dtype, device}];
    if (table.cosine) return table;
    std::vector<double> frequency, cosine, sine;
    for (int64_t i = 0; i < pairs; ++i)
      frequency.push_back(std::pow(settings_.base, -static_cast<double>(i) / static_cast<double>(pairs)));
    for (int64_t p = 0; p < context_; ++p)
      for (const double f : frequency) {
        const double angle = static_cast<double>(p) * f;
        cosine.push_back(std::cos(angle)), sine.push_back(std::sin(angle));
      }
    const Shape shape{context_, pairs};
    return table = {Tensor::from(shape, cosine, dtype).to(device), Tensor::from(shape, sine, dtype).to(device),
                    settings_.pairs == "interleaved"};
  }

  Spec spec_;
  Settings settings_;
  int64_t context_;
  mutable std::mutex mutex_;
  // Not buffers, because they can be recomputed.
  mutable std::map<std::tuple<int64_t, Dtype, Device>, Rotation> tables_;
};
REGISTER_POSITION(RotaryPositions);

// Returns x rotated by matrices (T, D, D) of the same cosines and sines: y_t = R_t x_t.
Tensor rotated_by_matrix(const Tensor& x, const Rotation& r) {
  const int64_t tokens = x.size(1), size = x.size(3), pairs = r.cosine.size(1);
  const std::vector<double> c = r.cosine.to_vector(), s = r.sine.to_vector();
  std::vector<double> matrix(static_cast<size_t>(tokens * size * size));
  for (int64_t t = 0; t < tokens; ++t) {
    const auto at = [&](int64_t row, int64_t column) -> double& {
      return matrix[static_cast<size_t>((t * size + row) * size + column)];
    };
    for (int64_t i = 2 * pairs; i < size; ++i) at(i, i) = 1;
    for (int64_t i = 0; i < pairs; ++i) {
      const int64_t a = r.interleaved ? 2 * i : i, b = r.interleaved ? 2 * i + 1 : pairs + i;
      const auto angle = static_cast<size_t>(t * pairs + i);
      at(a, a) = at(b, b) = c[angle], at(b, a) = s[angle], at(a, b) = -s[angle];
    }
  }
  const Tensor rotation = Tensor::from(Shape{1, tokens, size, size}, matrix, Dtype::f64);
  return matmul(x, broadcast_to(rotation, Shape{x.size(0), tokens, size, size}), {.b = true});
}
GradientCase case_with(bool interleaved, const CaseTensors& random) {
  const Tensor angles = random({3, 2});
  const std::vector<double> x = angles.to_vector();
  std::vector<double> cosine, sine;
  for (const double a : x) cosine.push_back(std::cos(a)), sine.push_back(std::sin(a));
  const Rotation rotation{Tensor::from(angles.shape(), cosine, Dtype::f64),
                          Tensor::from(angles.shape(), sine, Dtype::f64), interleaved};
  return {{{"x", random({2, 3, 2, 7})}},
          [rotation](const auto& in) {
            const Device device = in[0].device();
            return rotate_pairs(in[0], {rotation.cosine.to(device), rotation.sine.to(device), rotation.interleaved});
          },
          [rotation](const auto& in) { return rotated_by_matrix(in[0], rotation); }};
}
GradientCase half_split_case(const CaseTensors& random) { return case_with(false, random); }
REGISTER_GRADIENT_CASE("position", "rotary", half_split_case);
GradientCase interleaved_case(const CaseTensors& random) { return case_with(true, random); }
REGISTER_GRADIENT_CASE("position", "rotary", interleaved_case);

}  // namespace

Tensor rotate_pairs(const Tensor& x, const Rotation& rotation) {
  const Tensor &c = rotation.cosine, &s = rotation.sine;
  check(x.shape().rank() == 4 && (c.shape().rank() == 2 || (c.shape().rank() == 3 && c.size(0) == x.size(0))) &&
            c.size(-2) == x.size(1) && 2 * c.size(-1) <= x.size(3) && s.shape() == c.shape(),
        "rotate_pairs: x ", x.shape(), " with cosines ", c.shape(), " and sines ", s.shape(),
        "; x must be (batch, time, heads, size), both tables (time, pairs) or (batch, time, pairs), with 2 pairs at "
        "most size");
  const Dtype arithmetic = arithmetic_dtype(x.dtype());
  check(c.dtype() == arithmetic && s.dtype() == arithmetic, "rotate_pairs: cosines have dtype ", name(c.dtype()),
        " and sines ", name(s.dtype()), "; x of dtype ", name(x.dtype()), " needs ", name(arithmetic));
  return record(RotatePairs{rotation}, x);
}

}  // namespace orrery::nn
