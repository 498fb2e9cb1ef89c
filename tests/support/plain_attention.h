// Attention as a plain loop over queries and keys in f64, and the same case through attend.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "engine/attend.h"

namespace orrery::testing {

inline constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
using Numbers = std::vector<double>;

inline double random_number(uint64_t seed, uint64_t i) { return 2 * uniform<double>(RandomKey{seed, 7}, i) - 1; }

// ---- weightings

enum class Kind { softmax, relu, gelu_tanh };

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
Weighting<A> weighting(Kind kind) {
  static constexpr Kind kinds[] = {Kind::softmax, Kind::relu, Kind::gelu_tanh};
  if (kind == Kind::softmax) return {};
  return {[](const void* context, const A* s, A* w, int64_t n) {
            for (int64_t i = 0; i < n; ++i) w[i] = evaluate(*static_cast<const Kind*>(context), s[i]).value;
          },
          [](const void* context, const A* s, const A* g, A* w, A* ds, int64_t n) {
            ++tiles_pulled_back;
            for (int64_t i = 0; i < n; ++i) {
              const Slope<A> f = evaluate(*static_cast<const Kind*>(context), s[i]);
              ds[i] = f.derivative * g[i], w[i] = f.value;
            }
          },
          &kinds[static_cast<int>(kind)], kind == Kind::relu};
}

// ---- a problem with its data, (batch, tokens, heads, size) without gaps, and what comes out of it

struct Results {
  Numbers output, log_sum, query, key, value;  // the last three: gradients
  Numbers sum, entropy, zero_share, maximum;
};
struct Case {
  AttendSizes sizes;
  AttendOptions options = {};
  Kind kind = Kind::softmax;
  std::vector<int32_t> lengths = {}, query_documents = {}, key_documents = {};
  Numbers query = {}, key = {}, value = {}, output_gradient = {};

  void fill(bool round_to_bf16 = false) {
    const AttendSizes& s = sizes;
    const auto make = [&](uint64_t seed, int64_t tokens, int64_t heads, int64_t size) {
      Numbers x(static_cast<size_t>(s.batch * tokens * heads * size));
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(1.7 * random_number(seed, i));
      for (double& e : x) e = round_to_bf16 ? static_cast<float>(bf16(static_cast<float>(e))) : e;
      return x;
    };
    query = make(1, s.queries, s.query_heads, s.head_size), key = make(2, s.keys, s.key_heads, s.head_size);
    value = make(3, s.keys, s.key_heads, s.value_size),
    output_gradient = make(4, s.queries, s.query_heads, s.value_size);
  }
  AttendOptions all_options() const {
    AttendOptions o = options;
    if (!lengths.empty()) o.key_lengths = lengths.data();
    if (!query_documents.empty()) o.query_documents = query_documents.data(), o.key_documents = key_documents.data();
    return o;
  }
  bool sees(int64_t b, int64_t i, int64_t j) const {
    const int64_t at = i + options.query_offset;
    if (options.causal && j > at) return false;
    if (options.window > 0 && std::abs(at - j) >= options.window) return false;
    if (!lengths.empty() && j >= lengths[static_cast<size_t>(b)]) return false;
    return query_documents.empty() || query_documents[static_cast<size_t>(b * sizes.queries + i)] ==
                                          key_documents[static_cast<size_t>(b * sizes.keys + j)];
  }
  double kept(int64_t row, int64_t j) const {  // the factor of dropout, by the rule in the header
    if (options.dropout == 0) return 1;
    const auto bits = options.random_key.bits(static_cast<uint64_t>(row * ((sizes.keys + 3) / 4) + j / 4));
    return bits[static_cast<int>(j % 4)] >= options.dropout * 0x1p32 ? 1 / (1 - options.dropout) : 0;
  }
};

// One row of the plain loop: weights, their gradients, and the statistics of the row `row`.
struct PlainRow {
  std::vector<int64_t> keys;
  Numbers weight, gradient;  // ds
};
inline void plain_statistics(const Case& c, const PlainRow& r, size_t row, Results& out) {
  double positive = 0, zeros = 0;
  for (const double& w : r.weight) {
    out.sum[row] += w, positive += std::max(w, 0.), zeros += (c.kind != Kind::softmax && w == 0);
    out.maximum[row] = &w == r.weight.data() ? w : std::max(out.maximum[row], w);
  }
  for (const double w : r.weight) out.entropy[row] -= w > 0 ? w / positive * std::log(w / positive) : 0;
  out.zero_share[row] = r.keys.empty() ? 0 : zeros / static_cast<double>(r.keys.size());
}

inline Results plain(const Case& c) {
  const AttendSizes& s = c.sizes;
  const size_t rows = static_cast<size_t>(s.batch * s.query_heads * s.queries);
  Results out{Numbers(c.output_gradient.size()),
              Numbers(rows),
              Numbers(c.query.size()),
              Numbers(c.key.size()),
              Numbers(c.value.size()),
              Numbers(rows),
              Numbers(rows),
              Numbers(rows),
              Numbers(rows)};
  for (size_t row = 0; row < rows; ++row) {
    const int64_t r = static_cast<int64_t>(row), i = r % s.queries, h = r / s.queries % s.query_heads,
                  b = r / s.queries / s.query_heads;
    const size_t q = static_cast<size_t>(((b * s.queries + i) * s.query_heads + h) * s.head_size);
    const size_t o = static_cast<size_t>(((b * s.queries + i) * s.query_heads + h) * s.value_size);
    const int64_t head = h / (s.query_heads / s.key_heads);
    const auto place = [&](int64_t j) { return static_cast<size_t>((b * s.keys + j) * s.key_heads + head); };
    const size_t D = static_cast<size_t>(s.head_size), Dv = static_cast<size_t>(s.value_size);
    PlainRow p;
    double largest = -INFINITY, total = 0, inner = 0;
    for (int64_t j = 0; j < s.keys; ++j)
      if (c.sees(b, i, j)) {
        double score = 0, g = 0;
        for (size_t d = 0; d < D; ++d) score += c.options.scale * c.query[q + d] * c.key[place(j) * D + d];
        for (size_t d = 0; d < Dv; ++d) g += c.kept(r, j) * c.output_gradient[o + d] * c.value[place(j) * Dv + d];
        p.keys.push_back(j), p.weight.push_back(score), p.gradient.push_back(g), largest = std::max(largest, score);
      }
    for (const double score : p.weight) total += std::exp(score - largest);
    out.log_sum[row] = largest + std::log(total);
    for (size_t n = 0; n < p.keys.size(); ++n) {
      const Slope<double> f = evaluate(c.kind, p.weight[n]);
      p.weight[n] = c.kind == Kind::softmax ? std::exp(p.weight[n] - out.log_sum[row]) : f.value;
      inner += p.weight[n] * p.gradient[n];
      if (c.kind != Kind::softmax) p.gradient[n] *= f.derivative;
    }
    for (size_t n = 0; n < p.keys.size(); ++n) {
      const double w = p.weight[n] * c.kept(r, p.keys[n]);
      const double ds =
          c.options.scale * (c.kind == Kind::softmax ? p.weight[n] * (p.gradient[n] - inner) : p.gradient[n]);
      const size_t at = place(p.keys[n]);
      for (size_t d = 0; d < Dv; ++d) out.output[o + d] += w * c.value[at * Dv + d];
      for (size_t d = 0; d < Dv; ++d) out.value[at * Dv + d] += w * c.output_gradient[o + d];
      for (size_t d = 0; d < D; ++d)
        out.query[q + d] += ds * c.key[at * D + d], out.key[at * D + d] += ds * c.query[q + d];
    }
    plain_statistics(c, p, row, out);
  }
  return out;
}

// ---- the same through attend, with gaps between tokens that must neither be read (NaN) nor written

template <class T>
struct Gapped {
  static constexpr int64_t gap = 5;
  Gapped(const Numbers& x, int64_t width) : width(width), stride(width + gap) { set(x); }
  Gapped(size_t n, int64_t width) : Gapped(Numbers(n, not_a_number), width) {}
  void set(const Numbers& x) {
    data.assign(x.size() / static_cast<size_t>(width) * static_cast<size_t>(stride) + gap, T(float(not_a_number)));
    for (size_t i = 0; i < x.size(); ++i) data[at(i)] = static_cast<T>(static_cast<Arithmetic<T>>(x[i]));
  }
  size_t at(size_t i) const {
    return gap + i / static_cast<size_t>(width) * static_cast<size_t>(stride) + i % static_cast<size_t>(width);
  }
  Numbers numbers() const {
    Numbers x((data.size() - gap) / static_cast<size_t>(stride) * static_cast<size_t>(width));
    size_t nans = 0;
    for (const T& e : data) nans += std::isnan(static_cast<Arithmetic<T>>(e));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<Arithmetic<T>>(data[at(i)]), nans -= std::isnan(x[i]);
    CHECK(nans == data.size() - x.size());  // the gaps are as they were
    return x;
  }
  Tokens<T> out() { return {data.data() + gap, stride}; }
  Tokens<const T> in() const { return {data.data() + gap, stride}; }
  int64_t width, stride;
  std::vector<T> data;
};

template <class T>
Results attend(const Case& c) {
  using A = Arithmetic<T>;
  const AttendSizes& s = c.sizes;
  const int64_t q = s.query_heads * s.head_size, k = s.key_heads * s.head_size, v = s.key_heads * s.value_size,
                o = s.query_heads * s.value_size;
  const Gapped<T> query(c.query, q), key(c.key, k), value(c.value, v), output_gradient(c.output_gradient, o);
  Gapped<T> output(c.output_gradient.size(), o), dq(c.query.size(), q), dk(c.key.size(), k), dv(c.value.size(), v);
  const size_t rows = static_cast<size_t>(s.batch * s.query_heads * s.queries);
  std::vector<A> log_sum(rows), sum(rows), entropy(rows), zero_share(rows), maximum(rows);
  const AttendInputs<T> inputs{query.in(), key.in(), value.in()};
  const AttendOptions options = c.all_options();
  const Weighting<A> w = weighting<A>(c.kind);
  attend_forward<T>(s, options, w, inputs, output.out(), log_sum.data());
  attend_backward<T>(s, options, w, inputs, output.in(), log_sum.data(), output_gradient.in(),
                     {dq.out(), dk.out(), dv.out()});
  attend_statistics<T>(s, options, w, inputs, log_sum.data(),
                       {sum.data(), entropy.data(), zero_share.data(), maximum.data()});
  const auto numbers = [](const std::vector<A>& x) { return Numbers(x.begin(), x.end()); };
  return {output.numbers(), numbers(log_sum), dq.numbers(),        dk.numbers(),    dv.numbers(),
          numbers(sum),     numbers(entropy), numbers(zero_share), numbers(maximum)};
}

// Largest difference in units of max(1, size); equal infinities differ by 0, a lone NaN by infinity.
inline double difference(const Numbers& a, const Numbers& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = a[i] == b[i] ? 0 : std::abs(a[i] - b[i]) / std::max(1., std::abs(b[i]));
    worst = d <= worst ? worst : std::isnan(d) ? INFINITY : d;
  }
  return worst;
}
inline void check_equal(const Case& c, const Results& a, const Results& b, double tolerance) {
  CAPTURE(static_cast<int>(c.kind));
  CAPTURE(std::string(attend_instruction_set()));
  CHECK(difference(a.output, b.output) <= tolerance);
  CHECK(difference(a.query, b.query) <= tolerance);
  CHECK(difference(a.key, b.key) <= tolerance);
  CHECK(difference(a.value, b.value) <= tolerance);
  if (c.kind == Kind::softmax) CHECK(difference(a.log_sum, b.log_sum) <= tolerance);
  CHECK(difference(a.sum, b.sum) <= tolerance);
  CHECK(difference(a.entropy, b.entropy) <= tolerance);
  CHECK(difference(a.zero_share, b.zero_share) <= tolerance);
  CHECK(difference(a.maximum, b.maximum) <= tolerance);
}
}  // namespace orrery::testing
