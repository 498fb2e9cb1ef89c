// Every registered gradient case in bf16, compared with f64 on the same rounded inputs.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "engine/types/check.h"
#include "nn/base/gradient_case.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::Message;
using orrery::testing::random_tensor;

namespace {

struct Result {
  std::vector<std::string> names;
  std::vector<Tensor> values;  // f64: the output and the gradients
  double output_terms = 0;     // sum of |dy y|
};
Result run(const RegisteredCase& registered, Dtype dtype) {
  const GradientCase test = make_case(registered);  // a new case: modules keep their inputs
  Result result;
  std::vector<Tensor> in;
  for (const GradientCase::Input& input : test.inputs) {
    const bool real = is_floating(input.value.dtype());
    in.push_back(real ? input.value.detach().to(Dtype::bf16).to(dtype).clone() : input.value);
    if (real) in.back().set_requires_grad();
  }
  const Tensor y = test.fast(in);
  const Tensor dy = random_tensor(y.shape(), 7).to(Dtype::bf16).to(y.dtype());
  backward(y, dy);
  result.output_terms = sum(abs(y.detach().to(Dtype::f64) * dy.to(Dtype::f64))).item();
  result.names.push_back("output"), result.values.push_back(y.detach().to(Dtype::f64));
  for (size_t i = 0; i < in.size(); ++i)
    if (is_floating(in[i].dtype()) && in[i].grad())
      result.names.push_back(test.inputs[i].name), result.values.push_back(in[i].grad().detach().to(Dtype::f64));
  return result;
}

// Returns |a - b| / max(|b|, 0.01 sqrt(n), floor) in the Euclidean norm, n being the number of elements.
double distance(const Tensor& a, const Tensor& b, double floor) {
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  double difference = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = x[i] == y[i] ? 0 : x[i] - y[i];
    difference += d * d, size += x[i] == y[i] && !std::isfinite(y[i]) ? 0 : y[i] * y[i];
  }
  const double d = std::sqrt(difference / std::max({size, 1e-4 * static_cast<double>(y.size()), floor * floor}));
  return std::isnan(d) ? INFINITY : d;
}

// An attention rounds several times. If its weighting has a kink, rounding moves scores across it.
double bound(const RegisteredCase& registered) {
  static const std::set<std::string> kinked = {"pointwise", "relu_former", "sparsemax", "relative"};
  if (registered.family != "attention" && registered.family != "position") return 0.01;
  return kinked.contains(registered.name) ? 0.5 : 0.1;
}

// Returns the floor of distance(). The gradient of one number that scales weights (a slope, log_gamma),
// or of one for each head, is a sum of terms like dy y, which may cancel: after an RMS normalization of
// one token it is 0. Each factor of a term is rounded to bf16, by at most 2^-9 of it, so that the sum
// may be off by 2^-8 |dy y|, and so may be the heads' sums together. There are fewer heads than channels.
double cancellation(const Result& exact, size_t i, double bound) {
  const Tensor& y = exact.values[0];
  const bool scales = exact.values[i].numel() == 1 || (y.shape().rank() > 0 && exact.values[i].numel() < y.size(-1));
  return scales ? exact.output_terms / 256 / bound : 0;
}

// Cases (empty title) that mix dtypes, which operations reject: they hold f64 tensors besides their
// inputs, or multiply an f32 position bias by a bf16 input.
const std::set<std::string> mixed = {"loss entropy_margin_loss", "normalization batch", "position alibi",
                                     "position rotary"};

}  // namespace

TEST_CASE("every gradient case runs in bf16, near the exact result") {
  int checked = 0;
  for (const RegisteredCase& registered : gradient_cases()) {
    const std::string name = registered.family + " " + registered.name;
    INFO(name, ": ", registered.title);
    if (registered.title.empty() && mixed.contains(name)) {
      try {
        run(registered, Dtype::bf16);
      } catch (const Error& error) {
        testing::check_golden(error.what());
        Message(error.what()).value(name == "position alibi" ? "f32 and bf16" : "f64");
        continue;
      }
    }
    const Result exact = run(registered, Dtype::f64), narrow = run(registered, Dtype::bf16);
    CHECK(exact.names == narrow.names);
    for (size_t i = 0; i < exact.values.size(); ++i) {
      INFO(exact.names[i]);
      const double limit = bound(registered);
      CHECK(distance(narrow.values[i], exact.values[i], cancellation(exact, i, limit)) < limit);
      ++checked;
    }
  }
  CHECK(checked > 1000);
}
