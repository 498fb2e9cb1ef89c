// Group normalization. Wu and He 2018, arXiv:1803.08494.
//   xh = (x - mu) r,   r = 1 / sqrt(v + epsilon),   y = weight xh + bias
// mu and v are the mean and the variance (divided by N) of one group of C / G adjacent channels:
//   over=token      in one token, N = C / G. Tokens do not mix, so a causal model stays causal; the default.
//   over=sequence   in all tokens of a sequence or image, as in the paper, N = tokens C / G. Each token then
//                   depends on all others. No sum includes padding (pass.lengths); its y and dx are 0.
// With g = dy and h = g weight, the sums going over the N elements that share mu and v:
//   dx = r (h - mean h - xh mean(h xh)),   dweight = sum of g xh,   dbias = sum of g       over all tokens
// Sums go over a token's group first, then over the tokens: the order depends only on the sizes.
// Saved for backward: x, mu and r of each group; never y.
#include <algorithm>

#include "engine/autograd/parameter_gradient.h"
#include "engine/loops/tensor_loops.h"
#include "engine/math/scalar.h"
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/normalizations/base/normalization.h"
#include "nn/normalizations/base/padding.h"

namespace orrery::nn {
namespace {

// A token group is one group of channels of one token: row `index` of x as (tokens groups, C / G).
// A set is one token, or all tokens of a sequence; groups of equal channels in it share statistics.
struct TokenGroups {
  int64_t tokens_per_set, groups;
  RealTokens real;
  HOST_DEVICE int64_t set_of(int64_t index) const { return index / groups / tokens_per_set * groups + index % groups; }
  HOST_DEVICE bool counts(int64_t index) const { return real(index / groups); }
  HOST_DEVICE int64_t tokens(int64_t set_row) const {  // real tokens, at least 1
    if (!real.lengths) return tokens_per_set;
    const int64_t length = real.lengths[set_row];
    return length < 1 ? 1 : length > tokens_per_set ? tokens_per_set : length;
  }
};

struct GroupSum {
  TokenGroups token_groups;
  template <class Row, class T, class A>
  HOST_DEVICE void operator()(Row row, In<T> x, int64_t index, A& sum) const {
    const A total = row.sum([](A x_i) { return x_i; }, x);
    row.once([&] { sum = token_groups.counts(index) ? total : A(0); });
  }
};
struct GroupSquares {
  TokenGroups token_groups;
  template <class Row, class T, class A>
  HOST_DEVICE void operator()(Row row, In<T> x, int64_t index, In<A> mean, A& sum) const {
    const A mu = mean[token_groups.set_of(index)];
    const A total = row.sum([=](A x_i) { return (x_i - mu) * (x_i - mu); }, x);
    row.once([&] { sum = token_groups.counts(index) ? total : A(0); });
  }
};
struct SumsToMeans {  // row r: sums over set r -> means
  TokenGroups token_groups;
  int64_t size;
  template <class Row, class T>
  HOST_DEVICE void operator()(Row row, Out<T> sum, int64_t r) const {
    const auto count = static_cast<Arithmetic<T>>(token_groups.tokens(r) * size);
    row.each([&](int i) { sum[i] = sum[i] / count; });
  }
};

struct Forward {
  TokenGroups token_groups;
  template <class Row, class T, class A>
  HOST_DEVICE void operator()(Row row, In<T> x, int64_t index, In<T> weight, In<T> bias, In<A> mean, In<A> rstd,
                              Out<T> y) const {
    const int64_t first = index % token_groups.groups * row.n, set = token_groups.set_of(index);
    const In<T> w = weight.at(first), b = bias.at(first);
    const A mu = mean[set], s = rstd[set];
    if (!token_groups.counts(index))
      row.each([&](int i) { y[i] = A(0); });
    else
      row.map(y, [&](A x_i, A w_i, A b_i) { return (x_i - mu) * s * w_i + b_i; }, x, w, b);
  }
};

struct BackwardSums {  // sums of h and of h xh, and g xh of each element
  TokenGroups token_groups;
  template <class Row, class T, class A>
  HOST_DEVICE void operator()(Row row, In<T> x, int64_t index, In<T> weight, In<T> dy, In<A> mean, In<A> rstd, A& h,
                              A& hx, Out<A> gx) const {
    const int64_t set = token_groups.set_of(index);
    const In<T> w = weight.at(index % token_groups.groups * row.n);
    const A mu = mean[set], s = rstd[set];
    if (!token_groups.counts(index)) {
      row.each([&](int i) { gx[i] = A(0); });
      row.once([&] { h = hx = A(0); });
      return;
    }
    const auto g = row.preload(dy), in = row.preload(x), scale = row.preload(w);
    row.map(gx, [&](A g_i, A x_i) { return g_i * (x_i - mu) * s; }, g, in);
    const A sum_h = row.sum([](A g_i, A w_i) { return g_i * w_i; }, g, scale);
    const A sum_hx = row.sum([=](A g_i, A x_i, A w_i) { return g_i * (x_i - mu) * s * w_i; }, g, in, scale);
    row.once([&] { h = sum_h, hx = sum_hx; });
  }
};
struct InputGradient {
  TokenGroups token_groups;
  template <class Row, class T, class A>
  HOST_DEVICE void operator()(Row row, In<T> x, int64_t index, In<T> weight, In<T> g, In<A> mean, In<A> rstd,
                              In<A> mean_h, In<A> mean_hx, Out<T> dx) const {
    const int64_t set = token_groups.set_of(index);
    const In<T> w = weight.at(index % token_groups.groups * row.n);
    const A mu = mean[set], s = rstd[set], h = mean_h[set], hx = mean_hx[set];
    if (!token_groups.counts(index))
      row.each([&](int i) { dx[i] = A(0); });
    else
      row.map(dx, [&](A x_i, A g_i, A w_i) { return s * (g_i * w_i - h - (x_i - mu) * s * hx); }, x, g, w);
  }
};
struct ParameterTerms {
  RealTokens real;
  template <class A>
  HOST_DEVICE Values<A, 2> operator()(A g, A gx, int64_t token) const {
    return {{gx, real(token) ? g : A(0)}};
  }
};

struct GroupNorm {
  static constexpr const char* name = "group_norm";
  int64_t groups;
  bool over_sequence;
  Tensor lengths;  // (B) i32; undefined: no padding, or over=token
  double epsilon;

  TokenGroups token_groups(const Tensor& x) const {
    return {over_sequence ? x.shape().rows() / x.size(0) : 1, groups, real_tokens(name, x, lengths)};
  }
  // by_group returns a view of x with a row per token group; per_group, a number per token group.
  Tensor by_group(const Tensor& x) const { return x.reshape(Shape{x.shape().rows() * groups, x.size(-1) / groups}); }
  Tensor per_group(const Tensor& x) const { return empty_computed(x, Shape{x.shape().rows(), groups}); }
  // Returns the means over each set, (sets, G), from sums of token groups, (tokens, G).
  Tensor means(const Tensor& x, const Tensor& group_sums) const {
    const TokenGroups p = token_groups(x);
    const Tensor mean =
        sum(group_sums.reshape(Shape{x.shape().rows() / p.tokens_per_set, p.tokens_per_set, groups}), {1});
    each_row(name, SumsToMeans{p, x.size(-1) / groups}, out_row(mean), row_index());
    return mean;
  }

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    const Tensor y = Tensor::empty_like(x), group_sums = per_group(x), b = bias ? bias : Tensor::zeros_like(weight),
                 x_groups = by_group(x);
    const TokenGroups p = token_groups(x);
    each_row(name, GroupSum{p}, row_of(x_groups), row_index(), out_per_row(group_sums));
    const Tensor mean = means(x, group_sums);
    each_row(name, GroupSquares{p}, row_of(x_groups), row_index(), broadcast<Computed>(mean), out_per_row(group_sums));
    const Tensor rstd = reciprocal(sqrt(means(x, group_sums) + epsilon));
    each_row(name, Forward{p}, row_of(x_groups), row_index(), broadcast(weight), broadcast(b),
             broadcast<Computed>(mean), broadcast<Computed>(rstd), out_row(y));
    saved.save(x, weight, mean, rstd);
    return y;
  }
  Gradients<3> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &rstd = saved[3], x_groups = by_group(x);
    const Tensor dx = Tensor::empty_like(x), h = per_group(x), hx = per_group(x), gx = empty_computed(x, x.shape());
    const TokenGroups p = token_groups(x);
    each_row(name, BackwardSums{p}, row_of(x_groups), row_index(), broadcast(weight), row_of(dy),
             broadcast<Computed>(mean), broadcast<Computed>(rstd), out_per_row(h), out_per_row(hx),
             out_row<Computed>(gx));
    const Tensor mean_h = means(x, h), mean_hx = means(x, hx);
    each_row(name, InputGradient{p}, row_of(x_groups), row_index(), broadcast(weight), row_of(dy),
             broadcast<Computed>(mean), broadcast<Computed>(rstd), broadcast<Computed>(mean_h),
             broadcast<Computed>(mean_hx), out_row(dx));
    const ParameterGradient dw(saved, 1, weight), db(saved, 2, weight);
    sum_rows(name, ParameterTerms{p.real}, out_sums(dw.sum, db.sum), row_of(dy), row_of<Computed>(gx), row_index());
    return {dx, dw.done(), db.done()};
  }
};

// x (B, T, C); mask (B, T, 1, 1): 1 for real tokens, else 0
Tensor reference(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t groups, bool over_sequence,
                 const Tensor& mask) {
  const int64_t size = x.size(-1) / groups;
  const Tensor token_groups = x.reshape(Shape{x.size(0), x.size(1), groups, size});
  const auto average = [&](const Tensor& t) {
    if (!over_sequence) return mean(t, {-1}, true);
    return sum(t * mask, {1, 3}, true) / (sum(mask, {1, 3}, true) * static_cast<double>(size));
  };
  const Tensor centred = token_groups - average(token_groups);
  const Tensor y = centred / sqrt(average(centred * centred) + 1e-5) * weight.reshape(Shape{groups, size}) +
                   bias.reshape(Shape{groups, size});
  return (y * mask).reshape(x.shape());
}

class GroupNormalization final : public AffineNormalization, public SubtractsMeans {
 public:
  struct Settings {
    int64_t groups = 8;
    std::string over = "token";
    double epsilon = 1e-5;
    template <class V>
    void visit(V& v) {
      v("groups", groups, "number of groups of adjacent channels; it must divide the width", between(1, 65536));
      v("over", over, "where mean and variance of a group are taken: token or sequence (all its tokens)",
        one_of({"token", "sequence"}));
      v("epsilon", epsilon, "added to the variance", above(0, 100));
    }
  };
  static inline const Info info{.name = "group",
                                .formula = "(x - mean_g) / sqrt(variance_g + epsilon) * weight + bias",
                                .source = "Wu and He 2018, arXiv:1803.08494",
                                .parameters = "weight 1, bias 0",
                                .saves = "x, mean and 1/std of each group"};

  GroupNormalization(const Spec& spec, const NormalizationOptions& options) : AffineNormalization(options) {
    read_settings(spec, settings_);
    check(options.width % settings_.groups == 0, "group: ", print(spec), ": groups (", settings_.groups,
          ") must divide the width (", options.width, ")");
    check(!options.causal || settings_.over == "token", "group: ", print(spec),
          ": over=sequence passes later tokens to earlier ones, which a causal model forbids; use over=token");
  }
  Tensor forward(const Tensor& x, ForwardPass& pass) override {
    const bool sequence = settings_.over == "sequence";
    return group_norm(x, weight_.value, bias_.value, settings_.groups, sequence, sequence ? pass.lengths : Tensor(),
                      settings_.epsilon);
  }
  Tensor without_means(const Tensor& x) const override {
    const Tensor parts = x.reshape(
        Shape{x.size(0), x.shape().rows() / x.size(0), settings_.groups, x.size(-1) / settings_.groups});
    const Tensor means = settings_.over == "sequence" ? mean(parts, {1, 3}, true) : mean(parts, {3}, true);
    return (parts - means).reshape(x.shape());
  }

 private:
  Settings settings_;
};
REGISTER_NORMALIZATION(GroupNormalization);

GradientCase case_of(const CaseTensors& random, bool over_sequence, const Tensor& lengths, const Tensor& mask) {
  return {{{"x", random({2, 3, 6})}, {"weight", random({6})}, {"bias", random({6})}},
          [=](const auto& in) {
            const Tensor on_device = lengths ? lengths.to(in[0].device()) : lengths;
            return group_norm(in[0], in[1], in[2], 2, over_sequence, on_device);
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
  check_affine(GroupNorm::name, x, weight, bias);
  check(!over_sequence || x.shape().rank() >= 2, "group_norm: x ", x.shape(), " must have an axis of sequences");
  check(groups >= 1 && x.size(-1) % groups == 0, "group_norm: groups (", groups, ") must divide the channels (",
        x.size(-1), ")");
  check(over_sequence || !lengths, "group_norm: lengths are for statistics over a sequence; leave them out");
  real_tokens("group_norm", x, lengths);
  return record(GroupNorm{groups, over_sequence, lengths, epsilon}, x, weight, bias);
}

}  // namespace orrery::nn
