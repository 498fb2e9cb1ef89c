// Linear attention: a feature map on queries and keys instead of a function of their product, so that sums can run.
// Katharopoulos et al. 2020, Transformers are RNNs, arXiv:2006.16236.
//   a_ij = <F(q_i D^-1/4), F(k_j D^-1/4)>,   o_i = sum_j a_ij v_j,   divided by sum_j a_ij if normalize=yes
// With x = F(q D^-1/4), y = F(k D^-1/4) and the state S_i = sum over the keys j that i sees of y_j v_j^T, (D, Dv):
//   o_i = S_i^T x_i,                       dx_i = S_i do_i
//   R_j = sum over the queries i that see j of x_i do_i^T:    dy_j = R_j v_j,   dv_j = R_j^T y_j
// S grows from the first key to the last under a causal mask, R from the last query to the first; without one both are
// complete before they are read. Time and memory are linear in T: no state but the running one exists.
// normalize=yes: v gets a column of ones, whose sum divides the others (a row whose weights add up to 0 gives 0), so
// the derivative is that of a quotient. Conventions: the scale D^-1/2 of the scores is split evenly between q and k;
// packed documents must be contiguous, for the state starts anew at each; full attention without the own token (own=no)
// adds two scans, from the front and from the back; linear(identity) = pointwise(identity, alpha=0). Kept: x, y, v.
#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/autograd.h"
#include "engine/dispatch.h"
#include "engine/ops.h"
#include "engine/parallel.h"
#include "nn/attention.h"

namespace orrery::nn {
namespace {

// One head of one sequence: rows of x, y, v, ... at their strides, and which keys each query sees.
template <class A>
struct Rows {
  const A* data;
  int64_t stride;
  const A* operator[](int64_t i) const { return data + i * stride; }
};
template <class A>
struct MutableRows {
  A* data;
  int64_t stride;
  A* operator[](int64_t i) const { return data + i * stride; }
};

template <class A>
void add_outer(A* state, const A* x, const A* v, int64_t rows, int64_t columns) {  // state += x v^T
  for (int64_t d = 0; d < rows; ++d)
    for (int64_t e = 0; e < columns; ++e) state[d * columns + e] += x[d] * v[e];
}
template <class A>
void add_left(A* out, const A* state, const A* x, int64_t rows, int64_t columns) {  // out += state^T x
  for (int64_t d = 0; d < rows; ++d)
    for (int64_t e = 0; e < columns; ++e) out[e] += state[d * columns + e] * x[d];
}
template <class A>
void add_right(A* out, const A* state, const A* v, int64_t rows, int64_t columns) {  // out += state v
  constexpr int lanes = 16;                                                          // a plain sum would not vectorize
  for (int64_t d = 0; d < rows; ++d) {
    A lane[lanes] = {};
    const A* const row = state + d * columns;
    int64_t e = 0;
    for (; e + lanes <= columns; e += lanes)
      for (int l = 0; l < lanes; ++l) lane[l] += row[e + l] * v[e + l];
    for (int l = 0; e < columns; ++e, ++l) lane[l] += row[e] * v[e];
    A sum = 0;
    for (int l = 0; l < lanes; ++l) sum += lane[l];
    out[d] += sum;
  }
}

struct Visible {  // query i sees keys [begin[i], end[i]), both of which never fall as i grows
  std::vector<int64_t> begin = {}, end = {};
  bool reversed = false;  // queries and keys are counted from the last to the first
};

struct LinearRead {
  static constexpr const char* name = "linear_attention";
  ReadingOptions options;

  // The keys that are seen, as ranges that sums can run over: one for each query, but two without a causal mask and
  // without the own key, those before it and, backwards, those after it.
  std::vector<Visible> visible(int64_t sequence, int64_t queries, int64_t keys) const {
    Visible all = ranges(sequence, queries, keys);
    if (options.own) return {all};
    Visible after{.reversed = true};
    for (int64_t i = queries; i-- > 0;) {
      const auto at = static_cast<size_t>(i);
      const int64_t own = i + options.query_offset;
      after.begin.push_back(keys - all.end[at]);
      after.end.push_back(std::max(keys - all.end[at], keys - std::max(all.begin[at], own + 1)));
      all.end[at] = std::max(all.begin[at], std::min(all.end[at], own));
    }
    if (options.causal) return {all};
    return {all, after};
  }
  Visible ranges(int64_t sequence, int64_t queries, int64_t keys) const {
    const int64_t length = options.lengths ? options.lengths.data<int32_t>()[sequence] : keys;
    const auto ids = [&](const Tensor& t, int64_t n) { return t ? t.data<int32_t>() + sequence * n : nullptr; };
    const int32_t *const of_query = ids(options.query_documents, queries), *const of_key =
                                                                               ids(options.key_documents, keys);
    Visible see;
    for (int64_t i = 0, first = 0, last = 0; i < queries; ++i) {
      if (of_query && (i == 0 || of_query[i] != of_query[i - 1])) {  // the document of this query
        first = std::find(of_key + last, of_key + keys, of_query[i]) - of_key;
        last = std::find_if(of_key + first, of_key + keys, [&](int32_t id) { return id != of_query[i]; }) - of_key;
        check(std::find(of_key + last, of_key + keys, of_query[i]) == of_key + keys &&
                  std::find(of_key, of_key + first, of_query[i]) == of_key + first,
              "linear: document ", of_query[i], " of sequence ", sequence,
              " is not contiguous; running sums need packed documents one after the other");
      }
      int64_t end = std::min(of_query ? last : keys, length);
      if (options.causal) end = std::min(end, i + options.query_offset + 1);
      see.begin.push_back(first);
      see.end.push_back(std::max(first, end));
    }
    return see;
  }

  template <class A>
  struct Head {
    Rows<A> x, y, v;
    int64_t queries, features, values;
  };
  // 1 for the queries and for the keys that have part in any pair, 0 for the others: (B, Tq, 1, 1) and (B, Tk, 1, 1),
  // or undefined if all have.
  struct Parts {
    Tensor queries, keys;
  };
  Parts parts(int64_t batch, int64_t queries, int64_t keys, Dtype dtype) const {
    std::vector<double> of_queries(static_cast<size_t>(batch * queries)), of_keys(static_cast<size_t>(batch * keys));
    for (int64_t b = 0; b < batch; ++b)
      for (const Visible& see : visible(b, queries, keys))
        for (int64_t i = 0, done = 0; i < queries; ++i) {
          const int64_t begin = see.begin[static_cast<size_t>(i)], end = see.end[static_cast<size_t>(i)];
          if (begin < end) of_queries[static_cast<size_t>(b * queries + (see.reversed ? queries - 1 - i : i))] = 1;
          for (int64_t j = std::max(begin, done); j < end; ++j)
            of_keys[static_cast<size_t>(b * keys + (see.reversed ? keys - 1 - j : j))] = 1;
          done = std::max(done, end);
        }
    const auto some = [&](const std::vector<double>& x, int64_t count) {
      return std::find(x.begin(), x.end(), 0.0) == x.end() ? Tensor()
                                                           : Tensor::from(Shape{batch, count, 1, 1}, x, dtype);
    };
    return {some(of_queries, queries), some(of_keys, keys)};
  }

  template <class A>
  static Head<A> head(const Tensor& x, const Tensor& y, const Tensor& v, int64_t sequence, int64_t h, bool reversed) {
    const int64_t key_head = h / (x.size(2) / y.size(2));
    const auto rows = [&](const Tensor& t, int64_t at) { return rows_of(t.data<A>(), t, sequence, at, reversed); };
    return {rows(x, h), rows(y, key_head), rows(v, key_head), x.size(1), x.size(3), v.size(3)};
  }
  // The rows of one head of t, whose numbers are `data`.
  template <class P>
  static auto rows_of(P* data, const Tensor& t, int64_t sequence, int64_t h, bool reversed) {
    const int64_t stride = t.size(2) * t.size(3), first = reversed ? t.size(1) - 1 : 0;
    P* const row = data + (sequence * t.size(1) + first) * stride + h * t.size(3);
    using A = std::remove_const_t<P>;
    return std::conditional_t<std::is_const_v<P>, Rows<A>, MutableRows<A>>{row, reversed ? -stride : stride};
  }
  template <class A>
  static MutableRows<A> mutable_rows(const Tensor& t, int64_t sequence, int64_t h, bool reversed) {
    return rows_of(t.mutable_data<A>(), t, sequence, h, reversed);
  }

  // Calls read(i, state) for every query, in order, with the state S_i.
  template <class A, class Read>
  static void scan_queries(const Head<A>& h, const Visible& see, const Read& read) {
    std::vector<A> state(static_cast<size_t>(h.features * h.values));
    int64_t first = 0, next = 0;
    for (int64_t i = 0; i < h.queries; ++i) {
      const auto at = static_cast<size_t>(i);
      if (see.begin[at] != first) std::fill(state.begin(), state.end(), A(0)), first = next = see.begin[at];
      for (; next < see.end[at]; ++next) add_outer(state.data(), h.y[next], h.v[next], h.features, h.values);
      read(i, state.data());
    }
  }
  // Calls read(j, state) for every key that is seen, from the last to the first, with the state R_j.
  template <class A, class Read>
  static void scan_keys(const Head<A>& h, Rows<A> dy, const Visible& see, const Read& read) {
    std::vector<A> state(static_cast<size_t>(h.features * h.values));
    int64_t first = -1, next = 0;  // keys at `next` and beyond are done
    for (int64_t i = h.queries - 1; i >= 0; --i) {
      const auto at = static_cast<size_t>(i);
      if (see.begin[at] != first) {
        if (first >= 0)
          while (next > first) read(--next, state.data());
        std::fill(state.begin(), state.end(), A(0)), first = see.begin[at], next = see.end[at];
      }
      while (next > see.end[at]) read(--next, state.data());
      add_outer(state.data(), h.x[i], dy[i], h.features, h.values);
    }
    if (first >= 0)
      while (next > first) read(--next, state.data());
  }

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& y, const Tensor& v) const {
    check(x.device() == Device::cpu,
          "linear: runs on the CPU only in this version; move the operands with .to(Device::cpu)");
    if (x.dtype() == Dtype::bf16) {
      Saved none;
      const Tensor o = forward(none, x.to(Dtype::f32), y.to(Dtype::f32), v.to(Dtype::f32)).to(Dtype::bf16);
      saved.keep(x, y, v);
      return o;
    }
    const Tensor o = Tensor::zeros(x.shape().with(-1, v.size(-1)), x.dtype());
    const int64_t heads = x.size(2);
    dispatch(x.dtype(), name, [&]<class T>() {
      using A = Arithmetic<T>;
      if constexpr (std::is_same_v<A, T>)
        parallel_for(x.size(0) * heads, 1, [&](int64_t begin, int64_t end) {
          for (int64_t u = begin; u < end; ++u) {
            for (const Visible& see : visible(u / heads, x.size(1), y.size(1))) {
              const Head<A> h = head<A>(x, y, v, u / heads, u % heads, see.reversed);
              const MutableRows<A> out = mutable_rows<A>(o, u / heads, u % heads, see.reversed);
              scan_queries(h, see,
                           [&](int64_t i, const A* state) { add_left(out[i], state, h.x[i], h.features, h.values); });
            }
          }
        });
    });
    saved.keep(x, y, v);
    return o;
  }

  Gradients<3> backward(const Saved& saved, const Tensor& dy) const {
    if (dy.dtype() != Dtype::bf16) return gradients(saved[0], saved[1], saved[2], dy);
    const auto in_f32 = [](const Tensor& t) { return t.to(Dtype::f32); };
    Gradients<3> d = gradients(in_f32(saved[0]), in_f32(saved[1]), in_f32(saved[2]), in_f32(dy));
    for (Tensor& g : d) g = g.to(Dtype::bf16);
    return d;
  }
  Gradients<3> gradients(const Tensor& x, const Tensor& y, const Tensor& v, const Tensor& dy) const {
    Gradients<3> d = {Tensor::zeros_like(x), Tensor::zeros_like(y), Tensor::zeros_like(v)};
    const int64_t key_heads = y.size(2);
    dispatch(x.dtype(), name, [&]<class T>() {
      using A = Arithmetic<T>;
      if constexpr (std::is_same_v<A, T>)
        parallel_for(x.size(0) * key_heads, 1, [&](int64_t begin, int64_t end) {
          for (int64_t u = begin; u < end; ++u) {
            const int64_t sequence = u / key_heads, key_head = u % key_heads;
            for (const Visible& see : visible(sequence, x.size(1), y.size(1)))
              add_gradients<A>(x, y, v, dy, d, sequence, key_head, see);
          }
        });
    });
    return d;
  }
  // of one key head and the query heads that read it
  template <class A>
  static void add_gradients(const Tensor& x, const Tensor& y, const Tensor& v, const Tensor& dy, const Gradients<3>& d,
                            int64_t sequence, int64_t key_head, const Visible& see) {
    const int64_t group = x.size(2) / y.size(2);
    const MutableRows<A> dk = mutable_rows<A>(d[1], sequence, key_head, see.reversed);
    const MutableRows<A> dv = mutable_rows<A>(d[2], sequence, key_head, see.reversed);
    for (int64_t q = key_head * group; q < (key_head + 1) * group; ++q) {
      const Head<A> h = head<A>(x, y, v, sequence, q, see.reversed);
      const Rows<A> g = rows_of(dy.data<A>(), dy, sequence, q, see.reversed);
      const MutableRows<A> dx = mutable_rows<A>(d[0], sequence, q, see.reversed);
      scan_queries(h, see, [&](int64_t i, const A* s) { add_right(dx[i], s, g[i], h.features, h.values); });
      scan_keys(h, g, see, [&](int64_t j, const A* r) {
        add_right(dk[j], r, h.v[j], h.features, h.values);
        add_left(dv[j], r, h.y[j], h.features, h.values);
      });
    }
  }
};

class LinearAttention final : public AttentionLayer {
 public:
  struct Settings {
    Spec function = parse_spec("softplus");
    bool normalize = false;
    AttentionSettings layer;
    template <class V>
    void visit(V& v) {
      v("function", function, "F, the feature map: any activation");
      v("normalize", normalize, "divide by the sum of the weights");
      layer.visit(v);
    }
  };
  static inline const Info info{.name = "linear",
                                .formula = "o_i = sum_j <F(q_i D^-1/4), F(k_j D^-1/4)> v_j, by running sums",
                                .source = "Katharopoulos et al. 2020, arXiv:2006.16236",
                                .parameters = "as softmax",
                                .keeps = "q, k, F(q), F(k), v"};

  LinearAttention(const Spec& spec, const AttentionOptions& options)
      : LinearAttention(settings_from<Settings>(spec), options) {}
  LinearAttention(const Settings& settings, const AttentionOptions& options)
      : AttentionLayer(info.name, settings.layer, options,
                       {.dropout = false, .distance_terms = false, .span = false, .slots = false}),
        function_(settings.function),
        normalize_(settings.normalize) {}

 private:
  Tensor read(const Reading& r, const ReadingOptions& o, Pass&) override {
    if (by_simple_operations()) return read_values(weights(r, o), r, o);
    const auto [x, y] = features(r, o);
    if (!normalize_) return record(LinearRead{o}, x, y, r.value);
    const Tensor ones = Tensor::full(r.value.shape().with(-1, 1), 1, r.value.dtype());
    const Tensor read = record(LinearRead{o}, x, y, concatenate({r.value, ones}, 3));
    return divided(slice(read, 3, 0, r.value.size(3)), slice(read, 3, r.value.size(3), r.value.size(3) + 1));
  }
  Tensor weights(const Reading& r, const ReadingOptions& o) override {
    Reading mapped = r;
    std::tie(mapped.query, mapped.key) = features(r, o);
    ReadingOptions plain = o;
    plain.scale = 1;
    const Tensor a = weights_of(mapped, plain, Activation("identity"));
    return normalize_ ? divided(a, sum(a, {-1}, true)) : a;
  }
  // Of queries and keys.  Those that have part in no pair are set to zero before F, whose slope at NaN is NaN.
  std::pair<Tensor, Tensor> features(const Reading& r, const ReadingOptions& o) const {
    const LinearRead::Parts parts =
        LinearRead{o}.parts(r.query.size(0), r.query.size(1), r.key.size(1), r.query.dtype());
    const auto map = [&](const Tensor& x, const Tensor& part) {
      return function_((part ? where(part, x, Tensor::zeros({1}, x.dtype())) : x) * std::sqrt(o.scale));
    };
    return {map(r.query, parts.queries), map(r.key, parts.keys)};
  }
  static Tensor divided(const Tensor& x, const Tensor& by) {  // 0 where `by` is 0
    const Tensor one = Tensor::full({1}, 1, by.dtype());
    return where(by, x / where(by, by, one), Tensor::zeros({1}, x.dtype()));
  }

  Activation function_;
  bool normalize_;
};
REGISTER_ATTENTION(LinearAttention);
const bool cases =
    add_attention_cases("linear", {"linear(silu)", "linear(softplus, normalize=yes, gate=silu, own=no)"});

}  // namespace
}  // namespace orrery::nn
