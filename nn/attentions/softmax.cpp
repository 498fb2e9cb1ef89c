// Softmax attention.  Vaswani et al. 2017, arXiv:1706.03762.
//   s_ij = scale <q_i, k_j>,   w_ij = exp(s_ij) / sum_j exp(s_ij),   o_i =
//   sum_j w_ij v_j      over the keys j that i sees
// The row rule and the tiles, forward and backward, stand in engine/attend.h.
// With the outer chain of the layer:
//   (q, k, v) = x W^T + b,   y = o W_o^T + b_o + r
// Kept: q, k, v, o, and the log-sum-exp of each row, (B, H, T).  No T x T array
// exists.
#include <cmath>

#include "engine/attend.h"
#include "engine/autograd.h"
#include "engine/dispatch.h"
#include "engine/ops.h"
#include "engine/watch.h"
#include "nn/attention.h"
#include "nn/gradient_case.h"
#include "nn/linear.h"

namespace orrery::nn {
namespace {

struct Attend {
  static constexpr const char* name = "softmax_attention";
  SoftmaxAttention settings;
  Tensor lengths, documents;

  AttendSizes sizes(const Tensor& q, const Tensor& k, const Tensor& v) const {
    return {.batch = q.size(0),
            .queries = q.size(1),
            .keys = k.size(1),
            .query_heads = q.size(2),
            .key_heads = k.size(2),
            .head_size = q.size(3),
            .value_size = v.size(3)};
  }
  AttendOptions options() const {
    const int32_t* const ids = documents ? documents.data<int32_t>() : nullptr;
    return {.scale = settings.scale,
            .causal = settings.causal,
            .key_lengths = lengths ? lengths.data<int32_t>() : nullptr,
            .query_documents = ids,
            .key_documents = ids,
            .dropout = settings.dropout,
            .random_key = settings.key};
  }
  template <class T>
  static Tokens<const T> read(const Tensor& x) {
    return {x.data<T>(), x.size(2) * x.size(3)};
  }
  template <class T>
  static Tokens<T> write(const Tensor& x) {
    return x ? Tokens<T>{x.mutable_data<T>(), x.size(2) * x.size(3)} : Tokens<T>{};
  }

  Tensor forward(Saved& saved, const Tensor& q, const Tensor& k, const Tensor& v) const {
    check(q.device() == Device::cpu,
          "softmax_attention: runs on the CPU only in this version; move the "
          "operands with .to(Device::cpu)");
    const Tensor o = Tensor::empty(q.shape().with(-1, v.size(-1)), q.dtype());
    const Tensor log_sum =
        Tensor::empty(Shape{q.size(0), q.size(2), q.size(1)}, q.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32);
    dispatch(q.dtype(), name, [&]<class T>() {
      attend_forward<T>(sizes(q, k, v), options(), {}, {read<T>(q), read<T>(k), read<T>(v)}, write<T>(o),
                        log_sum.mutable_data<Arithmetic<T>>());
    });
    count_products(q, k, v, 2);
    saved.keep(q, k, v, o, log_sum);
    return o;
  }
  Gradients<3> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2], &o = saved[3], &log_sum = saved[4];
    Gradients<3> d;
    for (int i = 0; i < 3; ++i)
      if (saved.needs(i)) d[static_cast<size_t>(i)] = Tensor::empty_like(saved[i]);
    dispatch(q.dtype(), name, [&]<class T>() {
      attend_backward<T>(sizes(q, k, v), options(), {}, {read<T>(q), read<T>(k), read<T>(v)}, read<T>(o),
                         log_sum.data<Arithmetic<T>>(), read<T>(dy), {write<T>(d[0]), write<T>(d[1]), write<T>(d[2])});
    });
    count_products(q, k, v, 5);
    return d;
  }
  void count_products(const Tensor& q, const Tensor& k, const Tensor& v, int products) const {
    const double pairs =
        static_cast<double>(q.size(0) * q.size(1) * q.size(2) * k.size(1)) * (settings.causal ? 0.5 : 1.0);
    count_flops(pairs * static_cast<double>(q.size(3) + v.size(3)) * products);
  }
};

// (B, Tk, Hk, D) -> (B, H, Tk, D), each key head repeated for the query heads
// that share it
Tensor heads_first(const Tensor& x, int64_t heads) {
  const Tensor t = permute(x, {0, 2, 1, 3});
  if (t.size(1) == heads) return t;
  const Shape once{t.size(0), t.size(1), 1, t.size(2), t.size(3)};
  return broadcast_to(t.reshape(once), once.with(2, heads / t.size(1)))
      .reshape(Shape{t.size(0), heads, t.size(2), t.size(3)});
}

// 1 where query i sees key j: (B or 1, 1, Tq, Tk)
Tensor visibility(const Tensor& q, const Tensor& k, bool causal, const Tensor& lengths, const Tensor& documents) {
  const int64_t batch = lengths || documents ? q.size(0) : 1, queries = q.size(1), keys = k.size(1);
  std::vector<double> visible;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < queries; ++i)
      for (int64_t j = 0; j < keys; ++j) {
        const int32_t* const ids = documents ? documents.data<int32_t>() + b * queries : nullptr;
        visible.push_back((!causal || j <= i) && (!lengths || j < lengths.data<int32_t>()[b]) &&
                          (!ids || ids[i] == ids[j]));
      }
  return Tensor::from(Shape{batch, 1, queries, keys}, visible, q.dtype());
}

// (B, H, Tq, Tk): what the fused operation never stores, for the reference and
// for those who watch.
Tensor softmax_weights(const Tensor& q, const Tensor& k, const SoftmaxAttention& settings, const Tensor& lengths,
                       const Tensor& documents) {
  const Tensor seen = visibility(q, k, settings.causal, lengths, documents);
  const Tensor s = matmul(permute(q, {0, 2, 1, 3}), heads_first(k, q.size(2)), {.b = true}) * settings.scale;
  const Tensor masked = where(seen, s, Tensor::full({1}, -INFINITY, s.dtype()));
  const Tensor e = exp(masked - max(masked, -1, true).detach());
  return where(seen, e / sum(e, {-1}, true), Tensor::zeros({1}, s.dtype()));  // a query that sees nothing: zeros
}

Tensor reference(const Tensor& q, const Tensor& k, const Tensor& v, const SoftmaxAttention& settings) {
  return permute(matmul(softmax_weights(q, k, settings, {}, {}), heads_first(v, q.size(2))), {0, 2, 1, 3});
}

class SoftmaxLayer final : public Sublayer {
 public:
  struct Settings {
    double dropout = 0;
    template <class V>
    void visit(V& v) {
      v("dropout", dropout, "share of the weights set to zero while training", share());
    }
  };
  static inline const Info info{.name = "softmax",
                                .formula = "o_i = sum_j softmax_j(<q_i, k_j> / sqrt(D)) v_j",
                                .source = "Vaswani et al. 2017, arXiv:1706.03762",
                                .parameters = "weights N(0, 0.02^2), of the output N(0, 0.02^2 / (2 layers)), biases 0",
                                .keeps = "q, k, v, o, log-sum-exp of each row"};

  SoftmaxLayer(const Spec& spec, const AttentionOptions& o)
      : heads_(o.heads),
        key_heads_(o.key_heads ? o.key_heads : o.heads),
        head_size_(checked_head_size(o)),
        causal_(o.causal),
        projection_(o.width, (heads_ + 2 * key_heads_) * head_size_, {.bias = o.bias, .weight = normal(o.deviation)}),
        output_(heads_ * head_size_, o.width, {.bias = o.bias, .weight = scaled_normal(o.deviation, o.layers)}) {
    read_settings(spec, settings_);
  }
  Tensor forward_onto(const Tensor& x, const Tensor& residual, Pass& pass) override {
    const int64_t keys = key_heads_ * head_size_;
    const std::vector<Tensor> qkv =
        linear_split(x, projection_.weight.value, projection_.bias.value, {heads_ * head_size_, keys, keys});
    const auto by_head = [&](const Tensor& t, int64_t heads) {
      return t.reshape(Shape{x.size(0), x.size(1), heads, head_size_});
    };
    const SoftmaxAttention settings{.scale = 1 / std::sqrt(static_cast<double>(head_size_)),
                                    .causal = causal_,
                                    .dropout = pass.training ? settings_.dropout : 0,
                                    .key = pass.key.derive(path())};
    const Tensor q = watch(path(), "query", by_head(qkv[0], heads_)),
                 k = watch(path(), "key", by_head(qkv[1], key_heads_)),
                 v = watch(path(), "value", by_head(qkv[2], key_heads_));
    if (is_watched(path(), "weights")) {
      const NoGrad guard;
      watch(path(), "weights", softmax_weights(q, k, settings, pass.lengths, pass.documents));
    }
    const Tensor read = watch(path(), "read", softmax_attention(q, k, v, settings, pass.lengths, pass.documents));
    return linear(read.reshape(Shape{x.size(0), x.size(1), heads_ * head_size_}), output_.weight.value,
                  output_.bias.value, residual);
  }
  void visit(Visitor& v) override {
    v("query_key_value", projection_);
    v("output", output_);
  }

 private:
  static int64_t checked_head_size(const AttentionOptions& o) {
    check(o.heads >= 1 && o.width % o.heads == 0, "attention: heads (", o.heads, ") must divide width (", o.width, ")");
    check(o.key_heads == 0 || o.heads % o.key_heads == 0, "attention: key heads (", o.key_heads,
          ") must divide heads (", o.heads, ")");
    return o.width / o.heads;
  }
  Settings settings_;
  int64_t heads_, key_heads_, head_size_;
  bool causal_;
  Linear projection_, output_;
};
REGISTER_ATTENTION(SoftmaxLayer);

constexpr SoftmaxAttention causal_settings{.scale = 0.5}, full_settings{.scale = 0.4, .causal = false};
GradientCase causal_case(const CaseTensors& random) {
  return {{{"query", random({2, 6, 4, 3})}, {"key", random({2, 6, 2, 3})}, {"value", random({2, 6, 2, 5})}},
          [](const auto& in) { return softmax_attention(in[0], in[1], in[2], causal_settings); },
          [](const auto& in) { return reference(in[0], in[1], in[2], causal_settings); }};
}
REGISTER_GRADIENT_CASE("attention", "softmax", causal_case);
GradientCase full_case(const CaseTensors& random) {
  return {{{"query", random({2, 5, 2, 4})}, {"key", random({2, 7, 2, 4})}, {"value", random({2, 7, 2, 4})}},
          [](const auto& in) { return softmax_attention(in[0], in[1], in[2], full_settings); },
          [](const auto& in) { return reference(in[0], in[1], in[2], full_settings); }};
}
REGISTER_GRADIENT_CASE("attention", "softmax", full_case);

}  // namespace

Tensor softmax_attention(const Tensor& q, const Tensor& k, const Tensor& v, const SoftmaxAttention& settings,
                         const Tensor& lengths, const Tensor& documents) {
  check_same_kind("softmax_attention", q, k);
  check_same_kind("softmax_attention", q, v);
  check(q.shape().rank() == 4 && k.shape().rank() == 4 && v.shape().rank() == 4 && q.size(-1) == k.size(-1) &&
            k.shape().with(-1, 1) == v.shape().with(-1, 1) && q.size(0) == k.size(0) && q.size(2) % k.size(2) == 0,
        "softmax_attention: queries ", q.shape(), ", keys ", k.shape(), ", values ", v.shape(),
        " do not fit; they must be (batch, time, heads, size), query heads a "
        "multiple of key heads");
  check(!lengths || (lengths.dtype() == Dtype::i32 && lengths.shape() == Shape{k.size(0)}),
        "softmax_attention: lengths must be i32 of shape (", k.size(0), ")");
  check(!documents || (documents.dtype() == Dtype::i32 && documents.shape() == Shape{q.size(0), q.size(1)} &&
                       q.size(1) == k.size(1)),
        "softmax_attention: documents must be i32 of shape (", q.size(0), ", ", q.size(1), ")");
  return record(Attend{settings, lengths, documents}, q, k, v);
}

}  // namespace orrery::nn
