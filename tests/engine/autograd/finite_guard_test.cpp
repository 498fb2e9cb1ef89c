#include "engine/autograd/finite_guard.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <thread>

#include "engine/autograd/autograd.h"
#include "engine/autograd/recompute.h"
#include "engine/ops/ops.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using orrery::testing::largest_difference;
using orrery::testing::random_tensor;

namespace {

std::optional<OperationRecord> found_by(const FiniteGuard::Names& names, const std::function<void()>& work) {
  const FiniteGuard guard(names);
  try {
    work();
  } catch (const NonFiniteError& found) {
    return found.record();
  }
  return {};
}
Tensor leaf(std::initializer_list<double> values, Dtype dtype = Dtype::f32) {
  return Tensor::from({static_cast<int64_t>(values.size())}, values, dtype).set_requires_grad();
}

struct Roundabout {  // returns 0; an infinity arises only inside
  static constexpr const char* name = "roundabout";
  Tensor forward(Saved&, const Tensor& x) const { return reciprocal(exp(x + 1000.0)); }
  Gradients<1> backward(const Saved&, const Tensor& dy) const { return {reciprocal(exp(dy + 1000.0))}; }
};

}  // namespace

TEST_CASE("finite guard: the report of a forward has the operation, its inputs and its outputs") {
  const auto found = found_by({}, [] { log(leaf({1, -1, 0, -2})); });
  REQUIRE(found.has_value());
  CHECK(found->operation == "log");
  CHECK(found->direction == "forward");
  CHECK(found->module.empty());
  REQUIRE(found->inputs.size() == 1);
  CHECK(found->inputs[0].name == "input");
  CHECK(found->inputs[0].stats.smallest == -2);
  REQUIRE(found->outputs.size() == 1);
  CHECK(found->outputs[0].stats.nan == 2);
  CHECK(found->outputs[0].stats.minus_infinity == 1);
  CHECK(found->outputs[0].stats.first == 1);
  CHECK(std::string(NonFiniteError(*found).what()) ==
        "forward of log: output f32 (4) has 2 NaN, 0 inf and 1 -inf, the first at (1); finite values: 1, between 0 "
        "and 0");

  // 0/0 of two inputs, one of them named; an operation without history; overflow of f32.
  const Tensor zero = Tensor::zeros({2}), big = Tensor::full({2}, 3e38);
  const auto quotient = found_by({{zero.impl().get(), "nothing"}}, [&] { zero / Tensor::zeros({2}); });
  REQUIRE(quotient.has_value());
  CHECK(quotient->operation == "divide");
  CHECK(quotient->inputs[0].name == "nothing");
  CHECK(quotient->inputs[1].name == "input 1");
  CHECK(found_by({}, [&] { multiply(big, big); })->outputs[0].stats.plus_infinity == 2);
  CHECK(found_by({}, [&] {
          const NoGrad validating;
          multiply(big, big);
        })->operation == "multiply");
  CHECK(found_by({}, [&] { Tensor::full({1}, 1e300, Dtype::f64).to(Dtype::f32); })->outputs[0].stats.plus_infinity ==
        1);
  CHECK(!found_by({}, [&] { big * 0.5; }));
}

TEST_CASE("finite guard: after a finite forward, the report names the tensor whose gradient is not finite") {
  const Tensor x = leaf({4, 0, 1});
  const auto found = found_by({{x.impl().get(), "weight"}}, [&] { sum(sqrt(x)).backward(); });
  REQUIRE(found.has_value());
  CHECK(found->operation == "sqrt");
  CHECK(found->direction == "backward");
  CHECK(found->outputs[found->first_non_finite].name == "gradient of weight");
  CHECK(found->outputs[0].stats.plus_infinity == 1);
  CHECK(found->outputs[0].stats.first == 1);
  REQUIRE(found->inputs.size() == 1);
  CHECK(found->inputs[0].name == "gradient of output");
  CHECK(found->inputs[0].stats.largest == 1);
  CHECK(found_by({}, [&] { sum(sqrt(x * 1.0)).backward(); })->outputs[0].name == "gradient of input");
}

TEST_CASE("finite guard: finite gradients whose sum overflows are reported") {
  const Tensor x = leaf({1e-30}), big = Tensor::full({1}, 3e38);
  const auto meeting = [&](const Tensor& at) { backward(at * big + at * big, Tensor::full({1}, 1)); };
  const auto weight = found_by({{x.impl().get(), "weight"}}, [&] { meeting(x); });
  REQUIRE(weight.has_value());
  CHECK(weight->operation == "sum of gradients");
  CHECK(weight->outputs[0].name == "gradient of weight");
  const auto between = found_by({}, [&] { meeting(tanh(x)); });
  REQUIRE(between.has_value());
  CHECK(between->operation == "sum of gradients");
  CHECK(between->outputs[0].name == "gradient of output of tanh");
}

TEST_CASE("finite guard: calls inside an operation are not checked") {
  const Tensor x = leaf({0.5});
  CHECK(!found_by({}, [&] { backward(record(Roundabout{}, x), Tensor::full({1}, 1)); }));
  CHECK(!found_by({}, [&] {
    const NoGrad validating;
    record(Roundabout{}, x);
  }));
  CHECK(found_by({}, [&] { exp(x + 1000.0); })->operation == "exp");
}

TEST_CASE("finite guard: minus infinity is accepted as a mask, and nowhere else") {
  const Tensor scores = leaf({1, 2, 3}), mask = Tensor::from({3}, {1, 0, 1});
  const Tensor hidden = Tensor::full({1}, -INFINITY);
  CHECK(!found_by({}, [&] { sum(exp(where(mask, scores, hidden))).backward(); }));
  CHECK(!found_by({}, [&] { max(where(mask * 0.0, scores, hidden), -1); }));  // every score is masked
  CHECK(found_by({}, [&] { where(mask, scores, Tensor::full({1}, INFINITY)); }));
  CHECK(found_by({}, [&] { where(mask, leaf({1, 2, NAN}), hidden); })->outputs[0].stats.nan == 1);
  CHECK(found_by({}, [&] { log(leaf({0})); })->outputs[0].stats.minus_infinity == 1);  // the infinity arises here
}

TEST_CASE("finite guard: the report names the module, also in backward and in recomputation") {
  const std::string outer = "", inner = "blocks.0.attention";
  const Tensor x = leaf({4, 0});
  CHECK(found_by({}, [&] {
          const ModuleScope model(outer), attention(inner);
          log(x);
        })->module == inner);
  CHECK(found_by({}, [&] {
          const ModuleScope model(outer);
          { const ModuleScope attention(inner); }
          log(x);
        })->module == root_module);
  CHECK(found_by({}, [&] {
          Tensor y;
          {
            const ModuleScope attention(inner);
            y = sqrt(x);
          }
          sum(y).backward();
        })->module == inner);
  const auto again = found_by({}, [&] {
    const auto f = [&](const Tensor& z) {
      const ModuleScope attention(inner);
      return sqrt(z);
    };
    sum(recompute(f, x)).backward();
  });
  REQUIRE(again.has_value());
  CHECK(again->operation == "sqrt");
  CHECK(again->direction == "backward");
  CHECK(again->module == inner);
}

TEST_CASE("finite guard: it ends with its object, covers one thread, and passes every call to its observer") {
  CHECK(FiniteGuard::active() == nullptr);
  {
    const FiniteGuard outer;
    {
      const FiniteGuard other;
      CHECK(FiniteGuard::active() == &other);
    }
    CHECK(FiniteGuard::active() == &outer);
    bool computed = false;
    std::thread([&] {
      log(leaf({-1}));
      computed = true;
    }).join();
    CHECK(computed);
    CHECK_THROWS_AS(log(leaf({-1})), NonFiniteError);
  }
  CHECK(std::isnan(log(leaf({-1})).item()));

  std::vector<OperationRecord> calls;
  {
    const FiniteGuard guard({}, [&](const OperationRecord& call) { calls.push_back(call); });
    sum(leaf({1, 2}) * 3.0).backward();
  }
  REQUIRE(calls.size() == 4);
  CHECK(calls[0].operation == "scale");
  CHECK(calls[0].outputs[0].stats.largest == 6);
  CHECK(calls[1].operation == "sum");
  CHECK(calls[2].direction == "backward");
  CHECK(calls[3].outputs[0].stats.largest == 3);
}

TEST_CASE("finite guard: gradients are bit-identical with and without it") {
  const auto gradient = [](bool guarded) {
    std::optional<FiniteGuard> guard;
    if (guarded) guard.emplace();
    const Tensor x = random_tensor({17, 5}, 3, Dtype::f32).set_requires_grad();
    const Tensor y = tanh(matmul(x, x, {.b = true})), z = exp(y * 0.5) + y;
    backward(z * z, random_tensor({17, 17}, 4, Dtype::f32));
    return x.grad();
  };
  CHECK(largest_difference(gradient(false), gradient(true)) == 0);
}
