// Batch normalization. Ioffe and Szegedy 2015, arXiv:1502.03167.
//   xh = (x - mu) r,   r = 1 / sqrt(v + epsilon),   y = weight xh + bias
// In training mu and v are the channels' mean and variance (divided by N) over the N tokens of the
// micro-batch (all axes except the last). With g = dy, and dmu/dx and dv/dx inserted:
//   dweight = sum of g xh,   dbias = sum of g,   dx = weight r (g - dbias / N - xh dweight / N)
// In evaluation mu and v are the running statistics, which are constants:  dx = weight r g.
// No sum includes padding (pass.lengths); its y and dx are 0, regardless of its values.
//
// The running statistics are buffers. `forward` only records the statistics of its micro-batch, by
// pass.rng; a recomputation has the same key and replaces them. `after_step` combines the records
// of the step into statistics of all its tokens (`observed`) and updates the running statistics:
//   running <- (1 - momentum) running + momentum observed     the observed variance is divided by N - 1, as in PyTorch
// In a causal model, training statistics include later tokens; evaluation statistics do not.
// Saved for backward: x, mu and r of each channel; never y.
#include <algorithm>

#include "engine/autograd/parameter_gradient.h"
#include "engine/loops/tensor_loops.h"
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/base/step_records.h"
#include "nn/normalizations/base/normalization.h"
#include "nn/normalizations/base/padding.h"

namespace orrery::nn {
namespace {

struct MaskedValue {
  RealTokens real;
  template <class A>
  HOST_DEVICE A operator()(A x, int64_t token) const {
    return real(token) ? x : A(0);
  }
};
struct MaskedSquare {
  RealTokens real;
  template <class A>
  HOST_DEVICE A operator()(A x, A mean, int64_t token) const {
    return real(token) ? (x - mean) * (x - mean) : A(0);
  }
};

struct Forward {
  RealTokens real;
  template <class Row, class T, class A>
  HOST_DEVICE void operator()(Row row, In<T> x, int64_t token, In<T> w, In<T> b, In<A> m, In<A> s, Out<T> y) const {
    if (!real(token))
      row.each([&](int i) { y[i] = A(0); });
    else if (b)
      row.each([&](int i) { y[i] = (x[i] - m[i]) * s[i] * w[i] + b[i]; });
    else
      row.each([&](int i) { y[i] = (x[i] - m[i]) * s[i] * w[i]; });
  }
};

struct ParameterTerms {  // g xh and g of one element
  RealTokens real;
  template <class A>
  HOST_DEVICE Values<A, 2> operator()(A x, A g, A mean, A rstd, int64_t token) const {
    return real(token) ? Values<A, 2>{{g * ((x - mean) * rstd), g}} : Values<A, 2>{};
  }
};

struct InputGradient {
  RealTokens real;
  template <class Row, class T, class A>
  HOST_DEVICE void operator()(Row row, In<T> x, int64_t token, In<T> w, In<T> g, In<A> m, In<A> s, In<A> dw, In<A> db,
                              In<A> tokens, Out<T> dx) const {
    const A inverse_count = tokens ? 1 / tokens[0] : A(0);  // N undefined: constant statistics; N = 0: no row uses it
    if (!real(token))
      row.each([&](int i) { dx[i] = A(0); });
    else
      row.each([&](int i) { dx[i] = w[i] * s[i] * (g[i] - inverse_count * (db[i] + (x[i] - m[i]) * s[i] * dw[i])); });
  }
};

struct BatchNorm {
  static constexpr const char* name = "batch_norm";
  ChannelStatistics statistics;
  bool from_x;
  Tensor lengths;
  double epsilon;

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    const Tensor y = Tensor::empty_like(x), mean = statistics.mean,
                 rstd = reciprocal(sqrt(statistics.variance + epsilon));
    each_row(name, Forward{real_tokens(name, x, lengths)}, row_of(x), row_index(), broadcast(weight), broadcast(bias),
             broadcast<Computed>(mean), broadcast<Computed>(rstd), out_row(y));
    saved.save(x, weight, mean, rstd);
    return y;
  }
  Gradients<3> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &rstd = saved[3];
    const RealTokens real = real_tokens(name, x, lengths);
    const ParameterGradient dw(saved, 1, weight), db(saved, 2, weight);
    sum_rows(name, ParameterTerms{real}, out_sums(dw.sum, db.sum), row_of(x), row_of(dy), broadcast<Computed>(mean),
             broadcast<Computed>(rstd), row_index());
    Tensor dx;
    if (saved.needs(0)) {
      dx = Tensor::empty_like(x);
      each_row(name, InputGradient{real}, row_of(x), row_index(), broadcast(weight), row_of(dy),
               broadcast<Computed>(mean), broadcast<Computed>(rstd), broadcast<Computed>(dw.sum),
               broadcast<Computed>(db.sum), broadcast<Computed>(from_x ? statistics.tokens : Tensor()), out_row(dx));
    }
    return {dx, dw.done(), db.done()};
  }
};

// Returns the number N of real tokens, (1).
Tensor count_tokens(const Tensor& x, const Tensor& lengths) {
  const Dtype dtype = arithmetic_dtype(x.dtype());
  if (!lengths) return Tensor::full({1}, static_cast<double>(x.shape().rows()), dtype, x.device());
  const auto limit = [&](double n) { return Tensor::full({1}, n, dtype, x.device()); };
  return sum(-maximum(-maximum(cast(lengths, dtype), limit(0)), limit(-static_cast<double>(x.size(1)))), {0}, true);
}

// Returns 1 for each real token, else 0.
Tensor real_mask(const Tensor& x, const Tensor& lengths) {
  std::vector<double> mask;
  const RealTokens real = real_tokens("batch_norm", x, lengths);
  for (int64_t r = 0; r < x.shape().rows(); ++r) mask.push_back(real(r));
  return Tensor::from(x.shape().with(-1, 1), mask, x.dtype());
}
Tensor reference(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& lengths, double epsilon) {
  const Shape flat{x.shape().rows(), x.size(-1)};
  const Tensor mask = real_mask(x, lengths).reshape(flat.with(-1, 1)), rows = x.reshape(flat);
  const double tokens = sum(mask).item();
  const Tensor centred = rows - sum(rows * mask, {0}) / tokens;
  const Tensor variance = sum(centred * centred * mask, {0}) / tokens;
  return ((centred / sqrt(variance + epsilon) * weight + bias) * mask).reshape(x.shape());
}

class BatchNormalization final : public AffineNormalization, public KeepsStepRecords {
 public:
  struct Settings {
    double momentum = 0.1, epsilon = 1e-5;
    template <class V>
    void visit(V& v) {
      v("momentum", momentum, "fraction by which the running statistics move per step", between(0, 1));
      v("epsilon", epsilon, "added to the variance", above(0, 100));
    }
  };
  static inline const Info info{.name = "batch",
                                .formula = "(x - mean_c) / sqrt(variance_c + epsilon) * weight + bias",
                                .source = "Ioffe and Szegedy 2015, arXiv:1502.03167",
                                .parameters = "weight 1, bias 0; buffers: running mean 0, running variance 1",
                                .saves = "x, mean and 1/std of each channel"};

  BatchNormalization(const Spec& spec, const NormalizationOptions& options)
      : AffineNormalization(options),
        running_mean_(Tensor::zeros(Shape{options.width})),
        running_variance_(Tensor::full(Shape{options.width}, 1)) {
    read_settings(spec, settings_);
  }
  Tensor forward(const Tensor& x, ForwardPass& pass) override {
    if (!pass.training) {
      const Dtype arithmetic = arithmetic_dtype(x.dtype());
      return batch_norm(x, weight_.value, bias_.value,
                        {running_mean_.to(arithmetic), running_variance_.to(arithmetic), {}}, false, pass.lengths,
                        settings_.epsilon);
    }
    const ChannelStatistics current = channel_statistics(x, pass.lengths);
    const auto existing =
        std::find_if(records_.begin(), records_.end(), [&](const StepRecord& s) { return s.rng == pass.rng; });
    const std::vector<Tensor> statistics = {current.mean, current.variance, current.tokens};
    if (existing != records_.end())
      existing->tensors = statistics;
    else
      records_.push_back({pass.rng, statistics});
    return batch_norm(x, weight_.value, bias_.value, current, true, pass.lengths, settings_.epsilon);
  }
  void after_step() override {
    const NoGrad guard;
    if (!records_.empty()) {
      Tensor mean = Tensor::zeros_like(records_[0].tensors[0]), variance = mean;
      Tensor all = Tensor::zeros_like(records_[0].tensors[2]);
      for (const StepRecord& s : records_) all = all + s.tensors[2];
      const Tensor one = Tensor::full_like(all, {1}, 1), some = maximum(all, one);
      const auto weight = [&](const StepRecord& s) { return s.tensors[2] / some; };
      for (const StepRecord& s : records_) mean = mean + s.tensors[0] * weight(s);
      for (const StepRecord& s : records_) {
        const Tensor offset = s.tensors[0] - mean;
        variance = variance + (s.tensors[1] + offset * offset) * weight(s);
      }
      update_running(running_mean_, mean, all);
      update_running(running_variance_, variance * (all / maximum(all - 1.0, one)), all);
    }
    records_.clear();
  }
  std::vector<StepRecord>& step_records() override { return records_; }
  void visit(Visitor& v) override {
    AffineNormalization::visit(v);
    v("running_mean", running_mean_);
    v("running_variance", running_variance_);
  }

 private:
  // Leaves `running` unchanged if `tokens` is 0.
  void update_running(const Tensor& running, const Tensor& observed, const Tensor& tokens) const {
    const Tensor current = running.to(observed.dtype());
    running.copy_from(where(tokens, current * (1 - settings_.momentum) + observed * settings_.momentum, current));
  }
  Settings settings_;
  Tensor running_mean_, running_variance_;
  std::vector<StepRecord> records_;  // mean, variance and tokens of the micro-batches since the last step
};
REGISTER_NORMALIZATION(BatchNormalization);

Tensor with_own_statistics(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& lengths) {
  return batch_norm(x, weight, bias, channel_statistics(x, lengths), true, lengths, 1e-5);
}
GradientCase training_case(const CaseTensors& random) {
  return {{{"x", random({2, 4, 7})}, {"weight", random({7})}, {"bias", random({7})}},
          [](const auto& in) { return with_own_statistics(in[0], in[1], in[2], {}); },
          [](const auto& in) { return reference(in[0], in[1], in[2], {}, 1e-5); }};
}
REGISTER_GRADIENT_CASE("normalization", "batch", training_case);
GradientCase padded_case(const CaseTensors& random) {
  const Tensor lengths = Tensor::from(Shape{3}, std::vector<int32_t>{4, 1, 3});
  return {{{"x", random({3, 4, 5})}, {"weight", random({5})}, {"bias", random({5})}},
          [lengths](const auto& in) { return with_own_statistics(in[0], in[1], in[2], lengths.to(in[0].device())); },
          [lengths](const auto& in) { return reference(in[0], in[1], in[2], lengths, 1e-5); }};
}
REGISTER_GRADIENT_CASE("normalization", "batch", padded_case);
GradientCase evaluation_case(const CaseTensors& random) {
  const Tensor mean = random({5}), spread = random({5}), variance = spread * spread;
  return {{{"x", random({6, 5})}, {"weight", random({5})}, {"bias", random({5})}},
          [=](const auto& in) {
            const Device device = in[0].device();
            return batch_norm(in[0], in[1], in[2], {mean.to(device), variance.to(device), {}}, false, {}, 0.1);
          },
          [=](const auto& in) { return (in[0] - mean) / sqrt(variance + 0.1) * in[1] + in[2]; }};
}
REGISTER_GRADIENT_CASE("normalization", "batch", evaluation_case);

}  // namespace

ChannelStatistics channel_statistics(const Tensor& x, const Tensor& lengths) {
  const NoGrad guard;
  const RealTokens real = real_tokens("batch_norm", x, lengths);
  ChannelStatistics s;
  s.mean = empty_computed(x, Shape{x.size(-1)}), s.variance = Tensor::empty_like(s.mean);
  s.tokens = count_tokens(x, lengths);
  const Tensor some = maximum(s.tokens, Tensor::full({1}, 1, s.tokens.dtype(), x.device()));
  sum_rows("batch_norm", MaskedValue{real}, out_sums(s.mean), row_of(x), row_index());
  s.mean = s.mean / some;
  sum_rows("batch_norm", MaskedSquare{real}, out_sums(s.variance), row_of(x), broadcast<Computed>(s.mean), row_index());
  s.variance = s.variance / some;
  return s;
}

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const ChannelStatistics& statistics,
                  bool from_x, const Tensor& lengths, double epsilon) {
  check_affine(BatchNorm::name, x, weight, bias);
  real_tokens("batch_norm", x, lengths);
  return record(BatchNorm{statistics, from_x, lengths, epsilon}, x, weight, bias);
}

}  // namespace orrery::nn
