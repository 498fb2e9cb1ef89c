// An attention problem with its data, and the results of attention.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "engine/attention/attention.h"
#include "engine/attention_formula/problem.h"

namespace orrery::testing {

inline constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
using Numbers = std::vector<double>;

inline double random_number(uint64_t seed, uint64_t i) { return 2 * uniform<double>(RandomKey{seed, 7}, i) - 1; }

// ---- weightings

enum class Kind { softmax, relu, gelu_tanh };
inline constexpr Kind kinds[] = {Kind::softmax, Kind::relu, Kind::gelu_tanh};

template <class A>
struct Slope {
  A value, derivative;
};
template <class A>
Slope<A> evaluate(Kind kind, A s) {
  if (kind == Kind::relu) return {s > 0 ? s : A(0), A(s > 0)};
  const A c = A(1.5957691216057308), g = 1 / (1 + std::exp(-c * s * (1 + A(0.044715) * s * s)));
  return {s * g, g + s * g * (1 - g) * c * (1 + A(0.134145) * s * s)};
}
inline std::atomic<int64_t> tiles_pulled_back = 0;
template <class A>
class WeightFunction final : public TileFunction<A> {
 public:
  explicit WeightFunction(Kind kind) : kind_(kind) {}
  void values(const A* s, A* w, int64_t n, const A*) const override {
    for (int64_t i = 0; i < n; ++i) w[i] = evaluate(kind_, s[i]).value;
  }
  void backward(const A* s, const A* g, A* w, A* ds, int64_t n, const A*) const override {
    ++tiles_pulled_back;
    for (int64_t i = 0; i < n; ++i) {
      const Slope<A> f = evaluate(kind_, s[i]);
      ds[i] = f.derivative * g[i];
      w[i] = f.value;
    }
  }

 private:
  Kind kind_;
};
inline AttentionWeighting weighting(Kind kind) {
  static const WeightFunction<float> f32[] = {WeightFunction<float>(Kind::relu),
                                              WeightFunction<float>(Kind::gelu_tanh)};
  static const WeightFunction<double> f64[] = {WeightFunction<double>(Kind::relu),
                                               WeightFunction<double>(Kind::gelu_tanh)};
  if (kind == Kind::softmax) return {};
  const int which = kind == Kind::relu ? 0 : 1;
  return {.f32 = {.function = &f32[which]}, .f64 = {.function = &f64[which]}, .zero_below_zero = kind == Kind::relu};
}

// ---- data: (batch, tokens, heads, size) without gaps

// The tensors that get gradients. An empty tensor is not passed.
struct Operands {
  Numbers query, key, value, slot_key, slot_value, relative_embedding, relative_bias, span;

  auto all() {
    return std::vector{&query, &key, &value, &slot_key, &slot_value, &relative_embedding, &relative_bias, &span};
  }
  auto all() const {
    return std::vector{&query, &key, &value, &slot_key, &slot_value, &relative_embedding, &relative_bias, &span};
  }
};
struct Results {
  Numbers output, log_sum;
  Operands gradients;
  Numbers sum, positive_sum, entropy, zero_fraction, maximum;
  int64_t work = 0;  // multiply-adds of forward and backward, counted on the CPU only
};

struct Sizes {
  int64_t batch, queries, keys, query_heads, kv_heads, head_size, value_size, slots = 0, distances = 0;
};
struct CaseOptions {
  double scale = 1;
  bool causal = false, attend_to_self = true;
  int64_t query_offset = 0, window = 0;
  double soft_cap = 0, ramp = 0;
  bool span_per_query = false;
  double dropout = 0;
  DeviceRandomKey rng_key = {};
};

// A mask's table (MaskView), made of a rule pair by pair; the vectors are of numbers that a device takes.
struct TestTable {
  std::vector<int32_t> bits = {}, coverage = {};  // coverage: bytes 0 (none), 1 (some) or 2 (all)
  int64_t words = 0;

  TestTable() = default;
  TestTable(int64_t queries, int64_t keys, const std::function<bool(int64_t, int64_t)>& rule)
      : words((keys + 63) / 64 * 2) {
    const int64_t rows = (queries + 63) / 64, columns = words / 2;
    bits.resize(static_cast<size_t>(64 * rows * words)), coverage.resize(static_cast<size_t>(rows * columns + 3) / 4);
    for (int64_t a = 0; a < rows; ++a)
      for (int64_t b = 0; b < columns; ++b) {
        int64_t visible = 0, pairs = 0;
        for (int64_t i = 64 * a; i < std::min(queries, 64 * a + 64); ++i)
          for (int64_t j = 64 * b; j < std::min(keys, 64 * b + 64); ++j) {
            const bool is_visible = rule(i, j);
            if (is_visible) bits[word(i, j)] |= static_cast<int32_t>(1u << j % 32);
            visible += is_visible, ++pairs;
          }
        reinterpret_cast<uint8_t*>(coverage.data())[a * columns + b] = visible == 0 ? 0 : visible == pairs ? 2 : 1;
      }
  }
  size_t word(int64_t i, int64_t j) const { return static_cast<size_t>(i * words + j / 32); }
  bool visible(int64_t i, int64_t j) const {
    return bits.empty() || (static_cast<uint32_t>(bits[word(i, j)]) >> j % 32 & 1u);
  }
  void give_to(MaskView& mask, const int32_t* given_bits, const int32_t* given_coverage) const {
    if (bits.empty()) return;
    mask.bits = reinterpret_cast<const uint32_t*>(given_bits), mask.words = static_cast<int>(words);
    mask.coverage = reinterpret_cast<const uint8_t*>(given_coverage);
  }
};
// A table with tiles of every coverage: blocks of 64 that are hidden or visible, and blocks of single random pairs.
inline TestTable mixed_table(int64_t queries, int64_t keys) {
  return {queries, keys, [](int64_t i, int64_t j) {
            const int64_t block = (i / 64 + 2 * (j / 64)) % 3;
            return block == 1 || (block == 0 && (j + 7 * i) % 5 != 0 && i % 11 != 3);
          }};
}

struct Case {
  Sizes sizes;
  CaseOptions options = {};
  Kind kind = Kind::softmax;
  bool biased = false, positioned = false, spanned = false, regularized = false;  // b, p, z, dS and dH are passed
  std::vector<int32_t> lengths = {}, query_document_ids = {}, key_document_ids = {};
  TestTable table = {};
  Operands operands = {};
  Numbers output_gradient = {}, sum_gradient = {}, entropy_gradient = {};

  int64_t rows() const { return sizes.batch * sizes.query_heads * sizes.queries; }
  void fill(bool round_to_bf16 = false) {
    const Sizes& s = sizes;
    const auto make = [&](uint64_t seed, int64_t n) {
      Numbers x(static_cast<size_t>(n));
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(1.7 * random_number(seed, i));
      for (double& e : x) e = round_to_bf16 ? static_cast<float>(bf16(static_cast<float>(e))) : e;
      return x;
    };
    if (biased || positioned) sizes.distances = std::max(s.distances, largest_distance() + 1);
    operands = {.query = make(1, s.batch * s.queries * s.query_heads * s.head_size),
                .key = make(2, s.batch * s.keys * s.kv_heads * s.head_size),
                .value = make(3, s.batch * s.keys * s.kv_heads * s.value_size),
                .slot_key = make(5, s.slots * s.kv_heads * s.head_size),
                .slot_value = make(6, s.slots * s.kv_heads * s.value_size),
                .relative_embedding = make(7, positioned ? s.distances * s.head_size : 0),
                .relative_bias = make(8, biased ? s.query_heads * s.distances : 0),
                .span = make(9, !spanned                 ? 0
                                : options.span_per_query ? rows()
                                                         : s.query_heads)};
    for (double& z : operands.span) z = static_cast<float>(7 + 4 * z);  // from 0.2 to 13.8 tokens
    output_gradient = make(4, s.batch * s.queries * s.query_heads * s.value_size);
    sum_gradient = make(10, regularized ? rows() : 0), entropy_gradient = make(11, regularized ? rows() : 0);
  }
  int64_t largest_distance() const {
    const int64_t o = options.query_offset;
    return std::max<int64_t>({0, sizes.queries - 1 + o, sizes.keys - 1 - o});
  }
  // Returns the problem without operands. Its lengths and document ids point into this case.
  template <class A>
  AttentionProblem<A> problem() const {
    const auto number = [](int64_t n) { return static_cast<int>(n); };
    const auto data = [](const std::vector<int32_t>& x) { return x.empty() ? nullptr : x.data(); };
    AttentionProblem<A> p;
    p.batch = number(sizes.batch), p.queries = number(sizes.queries), p.keys = number(sizes.keys);
    p.query_heads = number(sizes.query_heads), p.kv_heads = number(sizes.kv_heads);
    p.head_size = number(sizes.head_size), p.value_size = number(sizes.value_size);
    p.slots = number(sizes.slots), p.distances = number(sizes.distances);
    const CaseOptions& o = options;
    set_options(p, {.mask = {.causal = o.causal,
                             .attend_to_self = o.attend_to_self,
                             .query_offset = o.query_offset,
                             .window = o.window},
                    .scale = o.scale,
                    .soft_cap = o.soft_cap,
                    .ramp = o.ramp,
                    .dropout = o.dropout,
                    .rng_key = o.rng_key});
    p.span_per_query = o.span_per_query, p.key_lengths = data(lengths);
    p.query_document_ids = data(query_document_ids), p.key_document_ids = data(key_document_ids);
    table.give_to(p, table.bits.data(), table.coverage.data());
    return p;
  }
};

// Returns the largest difference in units of max(1, size); infinity if only one side is NaN.
inline double difference(const Numbers& a, const Numbers& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = a[i] == b[i] ? 0 : std::abs(a[i] - b[i]) / std::max(1., std::abs(b[i]));
    worst = d <= worst ? worst : std::isnan(d) ? INFINITY : d;
  }
  return worst;
}

}  // namespace orrery::testing
