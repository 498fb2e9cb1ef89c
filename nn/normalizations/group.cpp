// Group normalization.  Wu and He 2018, arXiv:1803.08494.
//   xh = (x - mu) r,   r = 1 / sqrt(v + epsilon),   y = weight xh + bias
// mu and v are the mean and the variance (divided by N) of one group of C / G neighbouring channels:
//   over=token      of one token, N = C / G.  Tokens stay apart, so a causal model stays causal; the default.
//   over=sequence   of all tokens of a sequence or picture together, as in the paper, N = tokens C / G.  Each token
//                   then sees all others.  Padding (pass.lengths) counts in no sum; its y and dx are 0.
// With g = dy and h = g weight, the sums going over the N elements that share mu and v:
//   dx = r (h - mean h - xh mean(h xh)),   dweight = sum of g xh,   dbias = sum of g       over all tokens
// Each sum is one of a token's group first, then one over the tokens: the order depends on the sizes only.
// Kept: x, never y; mu and r of each group.
#include <algorithm>

#include "engine/autograd/autograd.h"
#include "engine/base/dispatch.h"
#include "engine/base/scalar.h"
#include "engine/loops/loops.h"
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/normalizations/base/normalization.h"
#include "nn/normalizations/base/padding.h"

namespace orrery::nn {
namespace {

// A part is one group of one token: row `part` of x as (tokens groups, C / G).  The parts of one group in the tokens of
// one set share their statistics.
struct Parts {
  int64_t tokens_of_set, groups;
  RealTokens real;
  HOST_DEVICE int64_t set(int64_t part) const { return part / groups / tokens_of_set * groups + part % groups; }
  HOST_DEVICE bool counts(int64_t part) const { return real(part / groups); }
  HOST_DEVICE int64_t tokens(int64_t set) const {  // that count, at least 1
    if (!real.lengths) return tokens_of_set;
    const int64_t length = real.lengths[set / groups];
    return length < 1 ? 1 : length > tokens_of_set ? tokens_of_set : length;
  }
};

template <class T>
struct PartSum {
  using A = Arithmetic<T>;
  In<T> x;
  A* sum;
  Parts parts;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t part) const {
    const In<T> in = x.at(part * row.n);
    const A total = row.sum([&](int i) { return in[i]; });
    row.once([&] { sum[part] = parts.counts(part) ? total : A(0); });
  }
};
template <class T>
struct PartSquares {
  using A = Arithmetic<T>;
  In<T> x;
  const A* mean;
  A* sum;
  Parts parts;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t part) const {
    const In<T> in = x.at(part * row.n);
    const A mu = mean[parts.set(part)];
    const A total = row.sum([&](int i) { return (in[i] - mu) * (in[i] - mu); });
    row.once([&] { sum[part] = parts.counts(part) ? total : A(0); });
  }
};
template <class A>
struct PartValue {
  const A* sum;
  HOST_DEVICE A operator()(int64_t i, int64_t) const { return sum[i]; }
};
template <class A>
struct Share {  // sums of sets -> means
  A* sum;
  Parts parts;
  int64_t size;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t set) const {
    const A mean = sum[set] / static_cast<A>(parts.tokens(set) * size);
    row.once([&] { sum[set] = mean; });
  }
};

template <class T>
struct Forward {
  using A = Arithmetic<T>;
  In<T> x, weight, bias;
  Out<T> y;
  const A *mean, *rstd;
  Parts parts;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t part) const {
    const int64_t first = part % parts.groups * row.n, set = parts.set(part);
    const In<T> in = x.at(part * row.n), w = weight.at(first), b = bias.at(first);
    const Out<T> out = y.at(part * row.n);
    const A mu = mean[set], s = rstd[set];
    if (!parts.counts(part))
      row.each([&](int i) { out[i] = A(0); });
    else
      row.each([&](int i) { out[i] = (in[i] - mu) * s * w[i] + b[i]; });
  }
};

template <class T>
struct BackwardSums {  // of h and of h xh, and g xh of each element
  using A = Arithmetic<T>;
  In<T> x, weight, dy;
  const A *mean, *rstd;
  A *h, *hx, *gx;
  Parts parts;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t part) const {
    const int64_t set = parts.set(part);
    const In<T> in = x.at(part * row.n), w = weight.at(part % parts.groups * row.n);
    const A mu = mean[set], s = rstd[set];
    A* const out = gx + part * row.n;
    if (!parts.counts(part)) {
      row.each([&](int i) { out[i] = A(0); });
      row.once([&] { h[part] = hx[part] = A(0); });
      return;
    }
    const auto g = row.hold(dy.at(part * row.n));
    row.each([&](auto i) { out[i] = g[i] * (in[i] - mu) * s; });
    const A sum_h = row.sum([&](auto i) { return g[i] * w[i]; });
    const A sum_hx = row.sum([&](int i) { return out[i] * w[i]; });
    row.once([&] { h[part] = sum_h, hx[part] = sum_hx; });
  }
};
template <class T>
struct InputGradient {
  using A = Arithmetic<T>;
  In<T> x, weight, dy;
  Out<T> dx;
  const A *mean, *rstd, *mean_h, *mean_hx;
  Parts parts;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t part) const {
    const int64_t set = parts.set(part);
    const In<T> in = x.at(part * row.n), g = dy.at(part * row.n), w = weight.at(part % parts.groups * row.n);
    const Out<T> out = dx.at(part * row.n);
    const A mu = mean[set], s = rstd[set], h = mean_h[set], hx = mean_hx[set];
    if (!parts.counts(part))
      row.each([&](int i) { out[i] = A(0); });
    else
      row.each([&](int i) { out[i] = s * (g[i] * w[i] - h - (in[i] - mu) * s * hx); });
  }
};
template <class T>
struct ParameterTerms {
  using A = Arithmetic<T>;
  const A* gx;
  In<T> dy;
  RealTokens real;
  HOST_DEVICE Values<A, 2> operator()(int64_t i, int64_t token) const { return {{gx[i], real(token) ? dy[i] : A(0)}}; }
};

struct GroupNorm {
  static constexpr const char* name = "group_norm";
  int64_t groups;
  bool over_sequence;
  Tensor lengths;  // of sequences; undefined where tokens stay apart
  double epsilon;

  Parts parts(const Tensor& x) const {
    return {over_sequence ? x.shape().rows() / x.size(0) : 1, groups, real_tokens(name, x, lengths)};
  }
  int64_t size(const Tensor& x) const { return x.size(-1) / groups; }
  Tensor for_parts(const Tensor& x) const {
    return Tensor::empty(Shape{x.shape().rows(), groups}, x.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32,
                         x.device());
  }
  // Numbers of parts, (tokens, G) -> their means over each set, (sets, G).
  template <class A>
  Tensor means(const Tensor& x, const Tensor& of_parts) const {
    const Parts p = parts(x);
    const int64_t sets = x.shape().rows() / p.tokens_of_set;
    const Tensor mean = Tensor::empty(Shape{sets, groups}, of_parts.dtype(), x.device());
    reduce(x.device(), sets, p.tokens_of_set, groups, PartValue<A>{of_parts.data<A>()}, mean.mutable_data<A>());
    rows(x.device(), sets * groups, 1, Share<A>{mean.mutable_data<A>(), p, size(x)});
    return mean;
  }

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    const Tensor y = Tensor::empty_like(x), of_parts = for_parts(x), b = bias ? bias : Tensor::zeros_like(weight);
    Tensor mean, rstd;
    dispatch(x.dtype(), name, [&]<class T>() {
      using A = Arithmetic<T>;
      const Parts p = parts(x);
      const int64_t count = of_parts.numel();
      const int n = static_cast<int>(size(x));
      rows(x.device(), count, n, PartSum<T>{{x.data<T>()}, of_parts.mutable_data<A>(), p});
      mean = means<A>(x, of_parts);
      rows(x.device(), count, n, PartSquares<T>{{x.data<T>()}, mean.data<A>(), of_parts.mutable_data<A>(), p});
      rstd = reciprocal(sqrt(means<A>(x, of_parts) + epsilon));
      rows(x.device(), count, n,
           Forward<T>{{x.data<T>()},
                      {weight.data<T>()},
                      {b.data<T>()},
                      {y.mutable_data<T>()},
                      mean.data<A>(),
                      rstd.data<A>(),
                      p});
    });
    saved.save(x, weight, mean, rstd);
    return y;
  }
  Gradients<3> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &rstd = saved[3];
    const Tensor dx = Tensor::empty_like(x), h = for_parts(x), hx = for_parts(x),
                 gx = Tensor::empty(x.shape(), h.dtype(), x.device()),
                 dweight = Tensor::empty(weight.shape(), h.dtype(), x.device()), dbias = Tensor::empty_like(dweight);
    dispatch(x.dtype(), name, [&]<class T>() {
      using A = Arithmetic<T>;
      const Parts p = parts(x);
      const int n = static_cast<int>(size(x));
      const In<T> in{x.data<T>()}, w{weight.data<T>()}, g{dy.data<T>()};
      const A *const m = mean.data<A>(), *const s = rstd.data<A>();
      rows(x.device(), h.numel(), n,
           BackwardSums<T>{in, w, g, m, s, h.mutable_data<A>(), hx.mutable_data<A>(), gx.mutable_data<A>(), p});
      const Tensor mean_h = means<A>(x, h), mean_hx = means<A>(x, hx);
      rows(x.device(), h.numel(), n,
           InputGradient<T>{in, w, g, {dx.mutable_data<T>()}, m, s, mean_h.data<A>(), mean_hx.data<A>(), p});
      reduce(x.device(), 1, x.shape().rows(), x.size(-1), ParameterTerms<T>{gx.data<A>(), g, p.real},
             Outputs<A, 2>{{dweight.mutable_data<A>(), dbias.mutable_data<A>()}});
    });
    return {dx, dweight.to(x.dtype()), dbias.to(x.dtype())};
  }
};

// x (B, T, C); mask (B, T, 1, 1) of the tokens that count
Tensor reference(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t groups, bool over_sequence,
                 const Tensor& mask) {
  const int64_t size = x.size(-1) / groups;
  const Tensor parts = x.reshape(Shape{x.size(0), x.size(1), groups, size});
  const auto average = [&](const Tensor& t) {
    if (!over_sequence) return mean(t, {-1}, true);
    return sum(t * mask, {1, 3}, true) / (sum(mask, {1, 3}, true) * static_cast<double>(size));
  };
  const Tensor centred = parts - average(parts);
  const Tensor y = centred / sqrt(average(centred * centred) + 1e-5) * weight.reshape(Shape{groups, size}) +
                   bias.reshape(Shape{groups, size});
  return (y * mask).reshape(x.shape());
}

class GroupNormalization final : public Module {
 public:
  struct Settings {
    int64_t groups = 8;
    std::string over = "token";
    double epsilon = 1e-5;
    template <class V>
    void visit(V& v) {
      v("groups", groups, "of neighbouring channels; they divide the width", at_least(1));
      v("over", over, "what shares a mean and a variance: a token, or all tokens of a sequence",
        one_of({"token", "sequence"}));
      v("epsilon", epsilon, "added to the variance", above(0));
    }
  };
  static inline const Info info{.name = "group",
                                .formula = "(x - mean_g) / sqrt(variance_g + epsilon) * weight + bias",
                                .source = "Wu and He 2018, arXiv:1803.08494",
                                .parameters = "weight 1, bias 0",
                                .keeps = "x, mean and 1/std of each group"};

  GroupNormalization(const Spec& spec, const NormalizationOptions& options)
      : weight_(Shape{options.width}, constant(1)) {
    read_settings(spec, settings_);
    check(options.width % settings_.groups == 0, "group: ", print(spec), ": groups (", settings_.groups,
          ") must divide the width (", options.width, ")");
    check(!options.causal || settings_.over == "token", "group: ", print(spec),
          ": over=sequence lets every token see later ones, which a causal model must not; use over=token");
    if (options.bias) bias_ = Parameter(Shape{options.width}, constant(0));
  }
  Tensor forward(const Tensor& x, Pass& pass) override {
    const bool sequence = settings_.over == "sequence";
    return group_norm(x, weight_.value, bias_.value, settings_.groups, sequence, sequence ? pass.lengths : Tensor(),
                      settings_.epsilon);
  }
  void visit(Visitor& v) override {
    v("weight", weight_);
    v("bias", bias_);
  }

 private:
  Settings settings_;
  Parameter weight_, bias_;
};
REGISTER_NORMALIZATION(GroupNormalization);

GradientCase case_of(const CaseTensors& random, bool over_sequence, const Tensor& lengths, const Tensor& mask) {
  return {{{"x", random({2, 3, 6})}, {"weight", random({6})}, {"bias", random({6})}},
          [=](const auto& in) {
            const Tensor there = lengths ? lengths.to(in[0].device()) : lengths;
            return group_norm(in[0], in[1], in[2], 2, over_sequence, there);
          },
          [=](const auto& in) { return reference(in[0], in[1], in[2], 2, over_sequence, mask); }};
}
GradientCase token_case(const CaseTensors& random) {
  return case_of(random, false, {}, Tensor::full({2, 3, 1, 1}, 1, Dtype::f64));
}
REGISTER_GRADIENT_CASE("normalization", "group", token_case);
GradientCase sequence_case(const CaseTensors& random) {
  return case_of(random, true, {}, Tensor::full({2, 3, 1, 1}, 1, Dtype::f64));
}
REGISTER_GRADIENT_CASE("normalization", "group", sequence_case);
GradientCase padded_case(const CaseTensors& random) {
  return case_of(random, true, Tensor::from(Shape{2}, std::vector<int32_t>{3, 2}),
                 Tensor::from({2, 3, 1, 1}, {1, 1, 1, 1, 1, 0}, Dtype::f64));
}
REGISTER_GRADIENT_CASE("normalization", "group", padded_case);

}  // namespace

Tensor group_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t groups, bool over_sequence,
                  const Tensor& lengths, double epsilon) {
  check(x.shape().rank() >= (over_sequence ? 2 : 1) && weight.shape() == Shape{x.size(-1)} &&
            (!bias || bias.shape() == weight.shape()),
        "group_norm: x ", x.shape(), " with weight ", weight.shape(),
        "; the weight and bias need the size of the last axis");
  check(groups >= 1 && x.size(-1) % groups == 0, "group_norm: groups (", groups, ") must divide the channels (",
        x.size(-1), ")");
  check(over_sequence || !lengths, "group_norm: lengths are for statistics over a sequence; leave them out");
  check_same_kind("group_norm", x, weight);
  real_tokens("group_norm", x, lengths);
  return record(GroupNorm{groups, over_sequence, lengths, epsilon}, x, weight, bias);
}

}  // namespace orrery::nn
