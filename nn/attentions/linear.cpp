// Linear attention: running sums over a feature map of queries and keys, not a function of <q, k>.
// Katharopoulos et al. 2020, Transformers are RNNs, arXiv:2006.16236.
//   a_ij = <F(q_i D^-1/4), F(k_j D^-1/4)>,   o_i = sum_j a_ij v_j,   divided by sum_j a_ij if normalize=yes
// With x = F(q D^-1/4), y = F(k D^-1/4) and the state S_i = sum over keys j visible to i of y_j v_j^T, (D, Dv):
//   o_i = S_i^T x_i,                       dx_i = S_i do_i
//   R_j = sum over queries i that attend to j of x_i do_i^T:    dy_j = R_j v_j,   dv_j = R_j^T y_j
// Under a causal mask S grows from the first key to the last, and R from the last query to the
// first. Without one both are complete before use. Time and memory are linear in T, except that all
// pairs are compared to find the ends of packed documents.
// normalize=yes: v gets a column of ones, whose output divides the others (0 if the weights add up
// to 0), so the derivative is that of a quotient. Conventions: the scale D^-1/2 of the scores is
// split evenly between q and k. Packed documents must be contiguous, because the state restarts at
// each. Full attention with attend_to_self=no adds two scans, from the front and from the back.
// linear(identity) = pointwise(identity, alpha=0). Saved for backward: x, y, v.
#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/attention_formula/formula.h"
#include "engine/autograd/autograd.h"
#include "engine/loops/loops.h"
#include "engine/ops/ops.h"
#include "engine/types/dispatch.h"
#include "nn/attentions/base/attention.h"
#include "nn/attentions/base/length_scale.h"
#include "nn/attentions/base/running_sums.h"

namespace orrery::nn {
namespace {

// The range [begin, end) of keys that each query i attends to; begin and end never decrease with i.
// With attend_to_self=no there are two ranges: the keys before i and, in full attention, those
// after it. The second is `reversed`: queries and keys are counted from the last to the first.
struct Ranges {
  MaskView mask;
  bool reversed;
  int32_t* ranges;  // (B, Tq, 2)

  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {  // r: sequence and query, in the order of `ranges`
    const MaskView my = mask;
    const int64_t sequence = r / my.queries;
    const int index = static_cast<int>(r % my.queries), i = reversed ? my.queries - 1 - index : index;
    Interval document = {0, my.keys};
    if (my.query_document_ids) {
      const int all = my.keys;
      const auto same = [=](int j) { return same_document(my, sequence, i, j); };
      document.begin = all - row.max([=](int j) { return same(j) ? all - j : 0; });  // all keys, if none is in it
      document.end = document.begin + row.sum([=](int j) { return same(j) ? 1 : 0; });
    }
    const Interval band = keys_of_queries(my, i, 1, length_of(my, sequence));
    int begin = document.begin, end = maximum(begin, minimum(document.end, band.end));
    const int self = i + my.masked;
    if (reversed)
      begin = minimum(maximum(begin, self + 1), end);
    else
      end = maximum(begin, minimum(end, self));
    int32_t* const out = ranges + 2 * r;
    const int first = reversed ? my.keys - end : begin, last = reversed ? my.keys - begin : end;
    row.once([=] { out[0] = first, out[1] = last; });
  }
};

// 1 for each key that at least one query attends to, else 0; row r is key r % keys of sequence r / keys.
template <class T>
struct UsedKeys {
  MaskView mask;
  Out<T> used;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const MaskView my = mask;
    const int64_t sequence = r / my.keys;
    const int j = static_cast<int>(r % my.keys), own = j - my.masked;
    const Interval band = queries_of_keys(my, j, 1);
    int n = maximum(0, band.end - band.begin) - (own >= band.begin && own < band.end ? 1 : 0);
    if (my.query_document_ids) n = row.sum([=](int i) { return is_visible(my, sequence, i, j) ? 1 : 0; });
    const bool some = n > 0 && j < length_of(my, sequence);
    const Out<T> out = used;
    row.once([=] { out[r] = Arithmetic<T>(some ? 1 : 0); });
  }
};
// Nonzero for each key in at least one visible pair: (B or 1, Tk, 1, 1).
Tensor used_keys(const AttentionInputs& in, const AttentionMask& m) {
  const int64_t batch = m.lengths || m.query_document_ids ? in.key.size(0) : 1, keys = in.key.size(1);
  const int64_t queries = in.query.size(1);
  const Tensor used = Tensor::empty_like(in.key, Shape{batch, keys, 1, 1});
  dispatch(in.key.dtype(), "linear_attention", [&]<class T>() {
    rows(in.key.device(), used.numel(), m.query_document_ids ? static_cast<int>(queries) : 1,
         UsedKeys<T>{view_of(m, queries, keys), {used.mutable_data<T>()}});
  });
  return used;
}

struct LinearAttentionOperation {
  static constexpr const char* name = "linear_attention";
  AttentionMask mask;

  struct Scan {
    Tensor ranges;  // (B, Tq, 2) i32
    bool reversed;
  };
  std::vector<Scan> scans(const Tensor& query, const Tensor& key) const {
    const int64_t batch = query.size(0), queries = query.size(1), keys = key.size(1);
    if (mask.query_document_ids && query.device() == Device::cpu) check_contiguous(batch, queries, keys);
    std::vector<Scan> all;
    for (const bool reversed : {false, true}) {
      if (reversed && (mask.attend_to_self || mask.causal)) continue;
      all.push_back({Tensor::empty_like(query, Shape{batch, queries, 2}, Dtype::i32), reversed});
      rows(query.device(), batch * queries, mask.query_document_ids ? static_cast<int>(keys) : 1,
           Ranges{view_of(mask, queries, keys), reversed, all.back().ranges.mutable_data<int32_t>()});
    }
    return all;
  }
  // Throws for documents that are not contiguous; a GPU does not check them and gives wrong sums.
  void check_contiguous(int64_t batch, int64_t queries, int64_t keys) const {
    for (int64_t sequence = 0; sequence < batch; ++sequence) {
      const int32_t *const query_ids = mask.query_document_ids.data<int32_t>() + sequence * queries,
                           *const key_ids = mask.key_document_ids.data<int32_t>() + sequence * keys;
      for (int64_t i = 0, last = 0; i < queries; ++i) {
        if (i > 0 && query_ids[i] == query_ids[i - 1]) continue;
        const int64_t first = std::find(key_ids + last, key_ids + keys, query_ids[i]) - key_ids;
        last = std::find_if(key_ids + first, key_ids + keys, [&](int32_t id) { return id != query_ids[i]; }) - key_ids;
        check(std::find(key_ids + last, key_ids + keys, query_ids[i]) == key_ids + keys &&
                  std::find(key_ids, key_ids + first, query_ids[i]) == key_ids + first,
              "linear: document ", query_ids[i], " of sequence ", sequence,
              " is not contiguous; running sums need documents packed one after another");
      }
    }
  }

  template <class F>
  static void with_type(Dtype dtype, const F& f) {  // bf16 was converted to f32 before
    dtype == Dtype::f64 ? f.template operator()<double>() : f.template operator()<float>();
  }
  template <class T>
  static Heads<const T> view(const Tensor& t, const Scan& scan) {
    return Heads<const T>::of(t.data<T>(), t, scan.reversed);
  }
  template <class T>
  static Heads<T> mutable_view(const Tensor& t, const Scan& scan) {
    return Heads<T>::of(t.mutable_data<T>(), t, scan.reversed);
  }
  template <class T>
  static LinearInputs<T> inputs(const Tensor& x, const Tensor& y, const Tensor& v, const Scan& scan) {
    return {view<T>(x, scan), view<T>(y, scan), view<T>(v, scan), scan.ranges.data<int32_t>(), x.size(0)};
  }

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& y, const Tensor& v) const {
    if (x.dtype() == Dtype::bf16) {
      Saved none;
      const Tensor o = forward(none, x.to(Dtype::f32), y.to(Dtype::f32), v.to(Dtype::f32)).to(Dtype::bf16);
      saved.save(x, y, v);
      return o;
    }
    const Tensor o = Tensor::zeros_like(x, x.shape().with(-1, v.size(-1)));
    for (const Scan& scan : scans(x, y))
      with_type(x.dtype(),
                [&]<class T>() { add_outputs<T>(x.device(), inputs<T>(x, y, v, scan), mutable_view<T>(o, scan)); });
    saved.save(x, y, v);
    return o;
  }

  Gradients<3> backward(const Saved& saved, const Tensor& dy) const {
    if (dy.dtype() != Dtype::bf16) return gradients(saved[0], saved[1], saved[2], dy);
    const auto to_f32 = [](const Tensor& t) { return t.to(Dtype::f32); };
    Gradients<3> d = gradients(to_f32(saved[0]), to_f32(saved[1]), to_f32(saved[2]), to_f32(dy));
    for (Tensor& g : d) g = g.to(Dtype::bf16);
    return d;
  }
  Gradients<3> gradients(const Tensor& x, const Tensor& y, const Tensor& v, const Tensor& dy) const {
    const Gradients<3> d = {Tensor::zeros_like(x), Tensor::zeros_like(y), Tensor::zeros_like(v)};
    for (const Scan& scan : scans(x, y))
      with_type(x.dtype(), [&]<class T>() {
        add_gradients<T>(x.device(), inputs<T>(x, y, v, scan), view<T>(dy, scan),
                         {mutable_view<T>(d[0], scan), mutable_view<T>(d[1], scan), mutable_view<T>(d[2], scan)});
      });
    return d;
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
      v("function", function, "feature map F: any activation");
      v("normalize", normalize, "divide by the sum of the weights");
      layer.visit(v);
    }
  };
  static inline const Info info{.name = "linear",
                                .formula = "o_i = sum_j <F(q_i D^-1/4), F(k_j D^-1/4)> v_j, by running sums",
                                .source = "Katharopoulos et al. 2020, arXiv:2006.16236",
                                .parameters = "as softmax; those of F, one set for the layer",
                                .saves = "q, k, F(q), F(k), v"};

  LinearAttention(const Spec& spec, const AttentionLayerOptions& options)
      : LinearAttention(settings_from<Settings>(spec), options) {}
  LinearAttention(const Settings& settings, const AttentionLayerOptions& options)
      : AttentionLayer(info.name, settings.layer, options,
                       {.dropout = false, .relative_position = false, .span = false, .slots = false, .mask = false}),
        normalize_(settings.normalize) {
    set_function(settings.function, {.parameters_per = "layer"});  // of queries and keys, whose heads may differ
  }

 private:
  Tensor attend(const AttentionInputs& in, const AttentionOptions& o, ForwardPass&) override {
    if (in_reference_mode()) return apply_weights(weights(in, o), in, o);
    const auto [x, y] = features(in, o);
    if (!normalize_) return record(LinearAttentionOperation{o.mask}, x, y, in.value);
    const Tensor ones = Tensor::full_like(in.value, in.value.shape().with(-1, 1), 1);
    const Tensor output = record(LinearAttentionOperation{o.mask}, x, y, concatenate({in.value, ones}, 3));
    return divided(slice(output, 3, 0, in.value.size(3)), slice(output, 3, in.value.size(3), in.value.size(3) + 1));
  }
  Tensor weights(const AttentionInputs& in, const AttentionOptions& o) override {
    AttentionInputs mapped = in;
    mapped.parameters = {};
    std::tie(mapped.query, mapped.key) = features(in, o);
    AttentionOptions plain = o;
    plain.scale = 1;
    const Tensor a = attention_weights(mapped, plain, Activation("identity"));
    if (!normalize_) return a;
    const Tensor total = sum(a, {-1}, true);
    show_step(o, "weight_total", [&] { return total; });
    return divided(a, total);
  }
  // Returns F of queries and keys; rows in no visible pair become 0 first, because F'(NaN) is NaN.
  std::pair<Tensor, Tensor> features(const AttentionInputs& in, const AttentionOptions& o) const {
    const Tensor used_queries = visible_keys(in, o.mask, in.query.dtype()), zero = Tensor::zeros_like(in.query, {1});
    const auto map = [&](const Tensor& x, const Tensor& mask) {
      return function()(where(mask, x, zero) * std::sqrt(o.scale));
    };
    return {map(in.query, used_queries.reshape(Shape{used_queries.size(0), used_queries.size(1), 1, 1})),
            map(in.key, used_keys(in, o.mask))};
  }
  static Tensor divided(const Tensor& x, const Tensor& by) {  // 0 where `by` is 0
    const Tensor one = Tensor::full_like(by, {1}, 1);
    return where(by, x / where(by, by, one), Tensor::zeros_like(x, {1}));
  }

  bool normalize_;
};
REGISTER_ATTENTION(LinearAttention);
const bool cases =
    add_attention_cases("linear", {"linear(silu)", "linear(softplus, normalize=yes, gate=silu, attend_to_self=no)",
                                   "linear(xielu)"});

}  // namespace
}  // namespace orrery::nn
