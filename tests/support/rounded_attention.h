// Checks bf16 attention, whose weights and score gradients are rounded too, against exact results.
#pragma once

#include <doctest/doctest.h>

#include "tests/support/attention_case.h"

namespace orrery::testing {

template <class Check>
void each_result_of(const Results& a, const Results& b, const Check& check) {
  check("output", a.output, b.output);
  check("query's gradient", a.gradients.query, b.gradients.query);
  check("key's gradient", a.gradients.key, b.gradients.key);
  check("value's gradient", a.gradients.value, b.gradients.value);
}

// A query with one key has weight 1 for any score, so softmax has no gradients: g and c cancel. But
// c uses the rounded output, so 2^-9 do o remains, times the queries or keys that multiply dt.
inline double cancellation_error(const Case& c, const Results& expected) {
  if (c.kind != Kind::softmax || c.sizes.keys > 1) return 0;
  double inner = 0, longest = 0;
  for (size_t i = 0; i < expected.output.size(); ++i) inner += std::pow(c.output_gradient[i] * expected.output[i], 2);
  const auto size = static_cast<size_t>(c.sizes.head_size);
  for (const Numbers* x : {&c.operands.query, &c.operands.key})
    for (size_t row = 0; row < x->size(); row += size) {
      double length = 0;
      for (size_t e = 0; e < size; ++e) length += (*x)[row + e] * (*x)[row + e];
      longest = std::max(longest, std::sqrt(length));
    }
  return 0x1p-9 * std::sqrt(inner) * c.options.scale * longest;
}

// Products of bf16 are exact in f32. Two roundings to bf16 differ, of a weight or dt and of the
// result, each by at most 2^-8 (RMS 1.6e-3). So the bounds are 5e-3 of the norm, and 1e-2 of the
// largest value for one element.
inline void check_rounded_twice(const Case& c, const Results& found, const Results& expected) {
  CAPTURE(static_cast<int>(c.kind));
  const double cancellation = cancellation_error(c, expected);
  each_result_of(found, expected, [&](const char* name, const Numbers& a, const Numbers& b) {
    CAPTURE(std::string(name));
    REQUIRE(a.size() == b.size());
    double error = 0, size = 0, worst = 0, largest = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      const double d = std::abs(a[i] - b[i]);
      error += d * d, size += b[i] * b[i];
      worst = d <= worst ? worst : std::isnan(d) ? INFINITY : d, largest = std::max(largest, std::abs(b[i]));
    }
    CHECK(std::sqrt(error) <= 5e-3 * std::sqrt(size) + cancellation + 1e-4);
    CHECK(worst <= 1e-2 * largest + cancellation + 1e-5);
  });
  // f32 sums of exact products: only the order of the sum and exp differ.
  if (c.kind == Kind::softmax) CHECK(difference(found.log_sum, expected.log_sum) <= 1e-5);
}

}  // namespace orrery::testing
