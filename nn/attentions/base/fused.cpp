// The recorded operation around the fused skeleton of engine/base/attention.h, which holds the formulas and their
// derivatives. Kept: the operands, and for softmax the output and L, one number for each query and head; with
// statistics in the loss also P and H.  No (Tq, Tk) array exists.
#include "nn/attentions/base/fused.h"

#include <algorithm>
#include <array>

#include "engine/attention/attention.h"
#include "engine/autograd/autograd.h"
#include "engine/base/check.h"
#include "engine/base/dispatch.h"
#include "nn/attentions/base/kernels.h"

namespace orrery::nn {
namespace {

constexpr int inputs = 8;  // of Reading, in its order
using Operands = std::array<Tensor, inputs>;
enum Input { query, key, value, slot_key, slot_value, relative_embedding, relative_bias, span };

struct AttendOperation {
  ReadingOptions options;
  std::optional<Activation> function;

  AttendSizes sizes(const Operands& x) const {
    return {.batch = x[query].size(0),
            .queries = x[query].size(1),
            .keys = x[key].size(1),
            .query_heads = x[query].size(2),
            .key_heads = x[key].size(2),
            .head_size = x[query].size(3),
            .value_size = x[value].size(3),
            .slots = x[slot_key] ? x[slot_key].size(0) : 0,
            .distances = x[relative_embedding] ? x[relative_embedding].size(0)
                         : x[relative_bias]    ? x[relative_bias].size(1)
                                               : 0};
  }
  AttendOptions settings(const Operands& x) const {
    const auto numbers = [](const Tensor& t) { return t ? t.data<int32_t>() : nullptr; };
    return {.scale = options.scale,
            .causal = options.causal,
            .attend_to_self = options.attend_to_self,
            .query_offset = options.query_offset,
            .window = options.window,
            .key_lengths = numbers(options.lengths),
            .query_document_ids = numbers(options.query_document_ids),
            .key_document_ids = numbers(options.key_document_ids),
            .soft_cap = options.soft_cap,
            .ramp = options.ramp,
            .span_per_query = x[span] && x[span].shape().rank() == 3,
            .dropout = options.dropout,
            .random_key = options.random_key};
  }
  template <class A>
  Weighting<A> weighting() const {
    if (!function) return {};
    using Tile = TileRole<A>;
    return {.values = [](const void* f, const A* s, A* w, int64_t n) { static_cast<const Tile*>(f)->values(s, w, n); },
            .backward = [](const void* f, const A* s, const A* g, A* w, A* ds,
                           int64_t n) { static_cast<const Tile*>(f)->backward(s, g, w, ds, n); },
            .context = &function->role<Tile>(),
            .zero_below_zero = function->info().zero_below_zero};
  }
  template <class T>
  const AttentionRole<T>& on_card() const {
    if (function) return function->role<AttentionRole<T>>();
#if defined(ORRERY_CUDA) || defined(EMULATE_CUDA)
    static const AttentionKernels<T, cuda::SoftmaxWeights> softmax{{}};
    return softmax;
#else
    fail("attend: built without CUDA (configure with -DORRERY_CUDA=ON)");
#endif
  }
  template <class T>
  static Tokens<const T> read(const Tensor& x) {  // (..., heads, size), or (rows, size)
    return x ? Tokens<const T>{x.data<T>(), x.size(-1) * (x.shape().rank() > 2 ? x.size(-2) : 1)} : Tokens<const T>{};
  }
  template <class T>
  static Tokens<T> write(const Tensor& x) {
    return x ? Tokens<T>{x.mutable_data<T>(), x.size(-1) * (x.shape().rank() > 2 ? x.size(-2) : 1)} : Tokens<T>{};
  }
  template <class A>
  static const A* numbers(const Tensor& x) {
    return x ? x.data<A>() : nullptr;
  }
  template <class A>
  static A* new_numbers(const Tensor& x) {
    return x ? x.mutable_data<A>() : nullptr;
  }
  template <class T>
  static AttendInputs<T> operands(const Operands& x) {
    using A = Arithmetic<T>;
    return {read<T>(x[query]),
            read<T>(x[key]),
            read<T>(x[value]),
            read<T>(x[slot_key]),
            read<T>(x[slot_value]),
            read<T>(x[relative_embedding]),
            numbers<A>(x[relative_bias]),
            numbers<A>(x[span])};
  }

  struct Results {
    Tensor output, log_sum;
  };
  Results run(const Operands& x) const {
    const Tensor& q = x[query];
    const Results y = {Tensor::empty(q.shape().with(-1, x[value].size(-1)), q.dtype(), q.device()),
                       function ? Tensor() : row_numbers(q)};
    dispatch(q.dtype(), name, [&]<class T>() {
      using A = Arithmetic<T>;
      if (q.device() == Device::cuda) {
        check_attend(sizes(x), settings(x), operands<T>(x));
        return on_card<T>().forward(sizes(x), settings(x), operands<T>(x), write<T>(y.output),
                                    new_numbers<A>(y.log_sum));
      }
      count_flops(2. * static_cast<double>(attend_forward<T>(sizes(x), settings(x), weighting<A>(), operands<T>(x),
                                                             write<T>(y.output), new_numbers<A>(y.log_sum))));
    });
    return y;
  }
  static Tensor row_numbers(const Tensor& q) {
    return Tensor::empty(Shape{q.size(0), q.size(2), q.size(1)}, q.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32,
                         q.device());
  }
  struct Statistics {
    Tensor sum, positive_sum, entropy, zero_share, maximum;
  };
  Statistics statistics(const Operands& x, const Tensor& log_sum) const {
    const Tensor& q = x[query];
    const Statistics s = {row_numbers(q), row_numbers(q), row_numbers(q), row_numbers(q), row_numbers(q)};
    dispatch(q.dtype(), name, [&]<class T>() {
      using A = Arithmetic<T>;
      const RowStatistics<A> results = {.sum = new_numbers<A>(s.sum),
                                        .positive_sum = new_numbers<A>(s.positive_sum),
                                        .entropy = new_numbers<A>(s.entropy),
                                        .zero_share = new_numbers<A>(s.zero_share),
                                        .maximum = new_numbers<A>(s.maximum)};
      if (q.device() == Device::cuda)
        return on_card<T>().statistics(sizes(x), settings(x), operands<T>(x), numbers<A>(log_sum), results);
      attend_statistics<T>(sizes(x), settings(x), weighting<A>(), operands<T>(x), numbers<A>(log_sum), results);
    });
    return s;
  }
  // dsum and dentropy may be undefined, and are without statistics.
  Gradients<inputs> differentiate(const Saved& saved, const Tensor& output, const Tensor& log_sum, const Tensor& dy,
                                  const Statistics& kept, const Tensor& dsum, const Tensor& dentropy) const {
    Operands x;
    Gradients<inputs> d;
    for (int i = 0; i < inputs; ++i) {
      const auto at = static_cast<size_t>(i);
      x[at] = saved[i];
      if (saved.needs(i)) d[at] = Tensor::empty_like(x[at]);
    }
    const Tensor g = dy ? dy : Tensor::zeros_like(output);
    dispatch(x[query].dtype(), name, [&]<class T>() {
      using A = Arithmetic<T>;
      const AttendGradients<T> gradients = {write<T>(d[query]),
                                            write<T>(d[key]),
                                            write<T>(d[value]),
                                            write<T>(d[slot_key]),
                                            write<T>(d[slot_value]),
                                            write<T>(d[relative_embedding]),
                                            new_numbers<A>(d[relative_bias]),
                                            new_numbers<A>(d[span])};
      const StatisticsGradients<A> of_statistics = {numbers<A>(kept.positive_sum), numbers<A>(kept.entropy),
                                                    numbers<A>(dsum), numbers<A>(dentropy)};
      if (g.device() == Device::cuda)
        return on_card<T>().backward(sizes(x), settings(x), operands<T>(x), read<T>(output), numbers<A>(log_sum),
                                     read<T>(g), gradients, of_statistics);
      count_flops(2. * static_cast<double>(attend_backward<T>(sizes(x), settings(x), weighting<A>(), operands<T>(x),
                                                              read<T>(output), numbers<A>(log_sum), read<T>(g),
                                                              gradients, of_statistics)));
    });
    return d;
  }
  static constexpr const char* name = "attend";
};

void keep_operands(Saved& saved, const Operands& x) {
  for (const Tensor& t : x) saved.save(t);
}

struct Attend : AttendOperation {
  template <class... X>
  Tensor forward(Saved& saved, const X&... x) const {
    const Operands all = {x...};
    const Results y = run(all);
    keep_operands(saved, all);
    if (!function) saved.save(y.output, y.log_sum);
    return y.output;
  }
  Gradients<inputs> backward(const Saved& saved, const Tensor& dy) const {
    if (function) return differentiate(saved, {}, {}, dy, {}, {}, {});
    return differentiate(saved, saved[inputs], saved[inputs + 1], dy, {}, {}, {});
  }
};

struct AttendWithStatistics : AttendOperation {
  static constexpr const char* name = "attend_with_statistics";
  template <class... X>
  std::array<Tensor, 5> forward(Saved& saved, const X&... x) const {
    const Operands all = {x...};
    const Results y = run(all);
    const Statistics s = statistics(all, y.log_sum);
    keep_operands(saved, all);
    saved.save(y.output, y.log_sum, s.positive_sum, s.entropy);
    return {y.output, s.sum, s.entropy, s.zero_share, s.maximum};
  }
  Gradients<inputs> backward(const Saved& saved, const std::array<Tensor, 5>& dy) const {
    return differentiate(saved, saved[inputs], saved[inputs + 1], dy[0],
                         {{}, saved[inputs + 2], saved[inputs + 3], {}, {}}, dy[1], dy[2]);
  }
};

void check_tensor(const char* what, const Tensor& x, const Shape& shape, Dtype dtype) {
  check(!x || (x.shape() == shape && x.dtype() == dtype), "attend: ", what, " of shape ", x ? x.shape() : Shape(),
        " and dtype ", orrery::name(x ? x.dtype() : dtype), "; ", shape, " and ", orrery::name(dtype), " are needed");
}

void check_reading(const Reading& r, const ReadingOptions& o) {
  const Tensor &q = r.query, &k = r.key, &v = r.value;
  check_same_kind("attend", q, k);
  check_same_kind("attend", q, v);
  check(q.shape().rank() == 4 && k.shape().rank() == 4 && v.shape().rank() == 4 && q.size(-1) == k.size(-1) &&
            k.shape().with(-1, 1) == v.shape().with(-1, 1) && q.size(0) == k.size(0) && q.size(2) % k.size(2) == 0,
        "attend: queries ", q.shape(), ", keys ", k.shape(), ", values ", v.shape(),
        " do not fit; they must be (batch, time, heads, size), query heads a multiple of key heads");
  check(bool(r.slot_key) == bool(r.slot_value), "attend: slots need keys and values, or neither");
  const Dtype rows = q.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  if (r.slot_key) {
    const int64_t n = r.slot_key.size(0);
    check_tensor("slot keys", r.slot_key, Shape{n, k.size(2), k.size(3)}, q.dtype());
    check_tensor("slot values", r.slot_value, Shape{n, v.size(2), v.size(3)}, q.dtype());
  }
  if (r.relative_embedding)
    check_tensor("distance keys", r.relative_embedding, Shape{r.relative_embedding.size(0), q.size(3)}, q.dtype());
  if (r.relative_bias)
    check_tensor("distance biases", r.relative_bias, Shape{q.size(2), r.relative_bias.size(-1)}, rows);
  check(!r.relative_embedding || !r.relative_bias || r.relative_embedding.size(0) == r.relative_bias.size(1),
        "attend: keys for ", r.relative_embedding ? r.relative_embedding.size(0) : 0, " distances with biases for ",
        r.relative_bias ? r.relative_bias.size(-1) : 0);
  if (r.span)
    check_tensor("spans", r.span,
                 r.span.shape().rank() == 1 ? Shape{q.size(2)} : Shape{q.size(0), q.size(2), q.size(1)}, rows);
  check_tensor("lengths", o.lengths, Shape{k.size(0)}, Dtype::i32);
  check_tensor("documents of queries", o.query_document_ids, Shape{q.size(0), q.size(1)}, Dtype::i32);
  check_tensor("documents of keys", o.key_document_ids, Shape{k.size(0), k.size(1)}, Dtype::i32);
}

template <class Operation>
auto record_reading(const Operation& operation, const Reading& r) {
  return record(operation, r.query, r.key, r.value, r.slot_key, r.slot_value, r.relative_embedding, r.relative_bias,
                r.span);
}

}  // namespace

Read attend(const Reading& reading, const ReadingOptions& options, const std::optional<Activation>& function,
            bool statistics) {
  check_reading(reading, options);
  if (by_simple_operations()) return attend_reference(reading, options, function, statistics);
  if (!statistics) return {.output = record_reading(Attend{{options, function}}, reading)};
  const auto [output, sum, entropy, zero_share, maximum] =
      record_reading(AttendWithStatistics{{options, function}}, reading);
  return {output, sum, entropy, zero_share.detach(), maximum.detach()};
}

}  // namespace orrery::nn
