// The running sums of linear attention, by columns (devices) and by states (CPU), compared with
// sums over every pair.
#include <doctest/doctest.h>

#include <functional>
#include <vector>

#include "engine/loops/loops.h"
#include "nn/attentions/base/running_sums.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::largest_difference;
using orrery::testing::random_tensor;

namespace {

constexpr int64_t batch = 2, queries = 7, keys = 9, heads = 4, kv_heads = 2, size = 3, value_size = 5;
using Ranges = std::vector<int32_t>;  // (B, Tq, 2)

Ranges ranges_of(const std::function<std::pair<int, int>(int64_t sequence, int64_t i)>& of) {
  Ranges ranges;
  for (int64_t sequence = 0; sequence < batch; ++sequence)
    for (int64_t i = 0; i < queries; ++i) {
      const auto [begin, end] = of(sequence, i);
      ranges.insert(ranges.end(), {begin, end});
    }
  return ranges;
}

struct Operands {
  Tensor x, y, v, out;
  static Operands random(int seed) {
    return {random_tensor({batch, queries, heads, size}, seed), random_tensor({batch, keys, kv_heads, size}, seed + 1),
            random_tensor({batch, keys, kv_heads, value_size}, seed + 2),
            random_tensor({batch, queries, heads, value_size}, seed + 3)};
  }
  Operands clone() const { return {x.clone(), y.clone(), v.clone(), out.clone()}; }
};
double difference(const Operands& a, const Operands& b) {
  return std::max({largest_difference(a.x, b.x), largest_difference(a.y, b.y), largest_difference(a.v, b.v),
                   largest_difference(a.out, b.out)});
}

Heads<const double> read(const Tensor& t, bool reversed) {
  return Heads<const double>::of(t.data<double>(), t, reversed);
}
Heads<double> write(const Tensor& t, bool reversed) { return Heads<double>::of(t.mutable_data<double>(), t, reversed); }

// Adds the output to `sums.out` and the gradients to its other tensors. in.out is the gradient
// of the output.
void add_by_pairs(const Operands& in, const Ranges& ranges, bool reversed, const Operands& sums) {
  const auto x = read(in.x, reversed), y = read(in.y, reversed), v = read(in.v, reversed), dy = read(in.out, reversed);
  const auto dx = write(sums.x, reversed), dk = write(sums.y, reversed), dv = write(sums.v, reversed),
             out = write(sums.out, reversed);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < queries; ++i)
        for (int64_t j = ranges[2 * (b * queries + i)]; j < ranges[2 * (b * queries + i) + 1]; ++j) {
          const int64_t g = h / (heads / kv_heads);
          double weight = 0, derivative = 0;
          for (int64_t d = 0; d < size; ++d) weight += x.at(b, h, i)[d] * y.at(b, g, j)[d];
          for (int64_t e = 0; e < value_size; ++e) derivative += dy.at(b, h, i)[e] * v.at(b, g, j)[e];
          for (int64_t e = 0; e < value_size; ++e) {
            out.at(b, h, i)[e] += weight * v.at(b, g, j)[e];
            dv.at(b, g, j)[e] += weight * dy.at(b, h, i)[e];
          }
          for (int64_t d = 0; d < size; ++d) {
            dx.at(b, h, i)[d] += derivative * y.at(b, g, j)[d];
            dk.at(b, g, j)[d] += derivative * x.at(b, h, i)[d];
          }
        }
}

}  // namespace

TEST_CASE("running sums, by columns and by states, equal sums over all visible pairs") {
  const std::vector<std::pair<const char*, Ranges>> cases = {
      {"all", ranges_of([](int64_t, int64_t) { return std::pair(0, int{keys}); })},
      {"causal", ranges_of([](int64_t, int64_t i) { return std::pair(0, static_cast<int>(i) + 1); })},
      {"from a third key on, none at first",
       ranges_of([](int64_t, int64_t i) { return std::pair(0, static_cast<int>(std::max<int64_t>(0, i - 2))); })},
      {"lengths", ranges_of([](int64_t sequence, int64_t) { return std::pair(0, sequence == 0 ? 5 : 0); })},
      {"two documents, the second of which is causal",
       ranges_of([](int64_t, int64_t i) { return i < 3 ? std::pair(0, 4) : std::pair(4, static_cast<int>(i) + 2); })}};
  for (const auto& each : cases)
    for (const bool reversed : {false, true}) {
      const auto& ranges = each.second;
      CAPTURE(each.first);
      CAPTURE(reversed);
      const Operands in = Operands::random(1), before = Operands::random(5), expected = before.clone();
      add_by_pairs(in, ranges, reversed, expected);
      const LinearInputs<double> inputs{read(in.x, reversed), read(in.y, reversed), read(in.v, reversed), ranges.data(),
                                        batch};
      const auto sums = [&](const auto& outputs, const auto& gradients) {
        const Operands found = before.clone();
        outputs(write(found.out, reversed));
        gradients(read(in.out, reversed), LinearGradients<double>{write(found.x, reversed), write(found.y, reversed),
                                                                  write(found.v, reversed)});
        return found;
      };
      CHECK(difference(sums([&](auto... to) { add_outputs_by_columns(Device::cpu, inputs, to...); },
                            [&](auto... to) { add_gradients_by_columns(Device::cpu, inputs, to...); }),
                       expected) < 1e-13);
      CHECK(difference(sums([&](auto... to) { add_outputs_by_states(inputs, to...); },
                            [&](auto... to) { add_gradients_by_states(inputs, to...); }),
                       expected) < 1e-13);
    }
}
