// An attention case on the CPU kernels. Gaps between tokens are NaN; kernels must not touch them.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "engine/attention_formula/problem.h"
#include "engine/types/check.h"
#include "tests/support/attention_case.h"
#include "tests/support/errors.h"

namespace orrery::testing {

// Returns the instruction sets of this processor with different kernels for T.
template <class T = float>
std::vector<const char*> instruction_sets() {
  std::vector<const char*> sets = {"avx2"};
  const auto add = [&](const char* set) {
    try {
      use_attention_instruction_set(set), sets.push_back(set);
    } catch (const Error&) {
    }
  };
  add("avx512");
  if (std::is_same_v<T, bf16>) add("avx512_bf16");
  return sets;
}
template <class T>
struct Gapped {
  static constexpr int64_t gap = sizeof(T) == 2 ? 8 : 5;  // rows of bf16 may be required at multiples of 16 bytes
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
    CHECK(nans == data.size() - x.size());  // the gaps are unchanged
    return x;
  }
  using A = Arithmetic<T>;  // tokens of bf16 are passed as pointers to float
  TensorView<A> out() { return tokens_at<A>(data.data()); }
  TensorView<const A> in() const { return tokens_at<const A>(data.data()); }
  int64_t width, stride;
  std::vector<T> data;

 private:
  template <class P, class E>
  TensorView<P> tokens_at(E* p) const {
    return data.size() > gap ? TensorView<P>{reinterpret_cast<P*>(p + gap), stride} : TensorView<P>{};
  }
};

// Converted vectors, and pointers to them: null if the vector is empty.
template <class A>
std::vector<A> converted(const Numbers& x) {
  return {x.begin(), x.end()};
}
template <class A>
A* data_of(std::vector<A>& x) {
  return x.empty() ? nullptr : x.data();
}

// The operands of a case in T, or buffers for their gradients.
template <class T>
struct StoredOperands {
  using A = Arithmetic<T>;
  StoredOperands(const Sizes& s, const Operands& x)
      : query(x.query, s.query_heads * s.head_size),
        key(x.key, s.kv_heads * s.head_size),
        value(x.value, s.kv_heads * s.value_size),
        slot_key(x.slot_key, s.kv_heads * s.head_size),
        slot_value(x.slot_value, s.kv_heads * s.value_size),
        relative_embedding(x.relative_embedding, s.head_size),
        relative_bias(converted<A>(x.relative_bias)),
        span(converted<A>(x.span)) {}
  void give_to(AttentionProblem<A>& p) {
    p.query = query.in(), p.key = key.in(), p.value = value.in();
    p.slot_key = slot_key.in(), p.slot_value = slot_value.in(), p.relative_embedding = relative_embedding.in();
    p.relative_bias = data_of(relative_bias), p.span = data_of(span);
  }
  AttentionGradients<A> gradients() {
    return {query.out(),
            key.out(),
            value.out(),
            slot_key.out(),
            slot_value.out(),
            relative_embedding.out(),
            data_of(relative_bias),
            data_of(span)};
  }
  Operands operands() const {
    return {query.numbers(),
            key.numbers(),
            value.numbers(),
            slot_key.numbers(),
            slot_value.numbers(),
            relative_embedding.numbers(),
            Numbers(relative_bias.begin(), relative_bias.end()),
            Numbers(span.begin(), span.end())};
  }
  Gapped<T> query, key, value, slot_key, slot_value, relative_embedding;
  std::vector<A> relative_bias, span;
};

template <class T>
Results attention_of(const Case& c) {
  using A = Arithmetic<T>;
  const Sizes& s = c.sizes;
  const int64_t width = s.query_heads * s.value_size;
  const auto rows = static_cast<size_t>(c.rows());
  Operands buffers = c.operands;
  for (Numbers* x : buffers.all()) std::fill(x->begin(), x->end(), not_a_number);
  StoredOperands<T> operands(s, c.operands), gradients(s, buffers);
  const Gapped<T> output_gradient(c.output_gradient, width);
  Gapped<T> output(c.output_gradient.size(), width);
  std::vector<A> log_sum(rows), sum(rows), positive_sum(rows), entropy(rows), zero_fraction(rows), maximum(rows);
  std::vector<A> sum_gradient = converted<A>(c.sum_gradient), entropy_gradient = converted<A>(c.entropy_gradient);
  AttentionProblem<A> p = c.problem<A>();
  operands.give_to(p);
  p.is_bf16 = std::is_same_v<T, bf16>, p.output = output.out(), p.log_sum = log_sum.data();
  const AttentionWeighting w = weighting(c.kind);
  int64_t work = attention_forward(p, w);
  p.statistics = {sum.data(), positive_sum.data(), entropy.data(), zero_fraction.data(), maximum.data()};
  attention_statistics(p, w);
  p.output_gradient = output_gradient.in(), p.gradients = gradients.gradients();
  p.statistics_gradients = {positive_sum.data(), entropy.data(), data_of(sum_gradient), data_of(entropy_gradient)};
  work += attention_backward(p, w);
  const auto numbers = [](const std::vector<A>& x) { return Numbers(x.begin(), x.end()); };
  return {output.numbers(), numbers(log_sum),       gradients.operands(), numbers(sum), numbers(positive_sum),
          numbers(entropy), numbers(zero_fraction), numbers(maximum),     work};
}

// Compares a with b. `moved` (optional) is b with operands moved by one rounding: it adds four
// times its distance from b to the tolerance, where the formula amplifies rounding errors.
inline void check_equal(const Case& c, const Results& a, const Results& b, double tolerance,
                        const Results* moved = nullptr) {
  CAPTURE(static_cast<int>(c.kind));
  CAPTURE(std::string(attention_instruction_set()));
  const auto check = [&](const char* name, const auto& numbers) {
    CAPTURE(std::string(name));
    const double allowed = tolerance + (moved ? 4 * difference(numbers(*moved), numbers(b)) : 0);
    CHECK(difference(numbers(a), numbers(b)) <= allowed);
  };
  check("output", [](const Results& r) -> const Numbers& { return r.output; });
  if (c.kind == Kind::softmax) check("log_sum", [](const Results& r) -> const Numbers& { return r.log_sum; });
  check("query's gradient", [](const Results& r) -> const Numbers& { return r.gradients.query; });
  check("key's gradient", [](const Results& r) -> const Numbers& { return r.gradients.key; });
  check("value's gradient", [](const Results& r) -> const Numbers& { return r.gradients.value; });
  check("slot_key's gradient", [](const Results& r) -> const Numbers& { return r.gradients.slot_key; });
  check("slot_value's gradient", [](const Results& r) -> const Numbers& { return r.gradients.slot_value; });
  check("relative_embedding's gradient",
        [](const Results& r) -> const Numbers& { return r.gradients.relative_embedding; });
  check("relative_bias's gradient", [](const Results& r) -> const Numbers& { return r.gradients.relative_bias; });
  check("span's gradient", [](const Results& r) -> const Numbers& { return r.gradients.span; });
  check("sum", [](const Results& r) -> const Numbers& { return r.sum; });
  check("positive_sum", [](const Results& r) -> const Numbers& { return r.positive_sum; });
  check("entropy", [](const Results& r) -> const Numbers& { return r.entropy; });
  check("zero_fraction", [](const Results& r) -> const Numbers& { return r.zero_fraction; });
  check("maximum", [](const Results& r) -> const Numbers& { return r.maximum; });
}

}  // namespace orrery::testing
