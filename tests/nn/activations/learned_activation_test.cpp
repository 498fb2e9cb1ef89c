// Every registered activation with learned parameters. A new one is covered automatically.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "nn/formulas/activation.h"
#include "tests/nn/activations/curves.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using namespace orrery::testing::curves;
using orrery::testing::random_tensor;

TEST_CASE("every learned activation: derivatives by x and by each parameter") {
  for (const std::string& name : every_learned_activation()) {
    const Activation f(name);
    INFO(name);
    std::vector<double> p = f.initial_parameters();
    CHECK(static_cast<int>(p.size()) == f.parameter_count());
    for (const double moved : {0.0, 0.7, -1.3}) {
      for (double& v : p) v += moved;
      const Curve curve{[&](double x) { return f.value(x, p); }, [&](double x) { return f.derivative(x, p); },
                        f.info().kinks};
      Worst worst = derivative_error(curve);
      CAPTURE(worst);
      CHECK(worst.error <= difference_bound);
      CHECK(error_at_kinks(curve) <= kink_bound);
      Worst by_dual;
      for (const double x : grid({}, 0)) {
        by_dual.add(x, f.derivative(x, p), f.derivative_by_dual(x, p));
        const std::vector<double> along = f.parameter_derivatives(x, p);
        for (size_t k = 0; k < p.size(); ++k) {
          by_dual.add(x, along[k], f.derivative_by_dual(x, p, static_cast<int>(k)));
          std::vector<double> q = p;
          const auto value = [&](double at) {
            q[k] = at;
            return f.value(x, q);
          };
          worst.add(x, along[k], finite_difference(value, p[k]));
        }
      }
      CAPTURE(by_dual);
      CHECK(worst.error <= difference_bound);
      CHECK(by_dual.error <= 1e-14);
    }
    CHECK(std::isnan(f.value(NAN, f.initial_parameters())));
    CHECK(std::isfinite(f.value(-1e4, f.initial_parameters())));
    CHECK(std::isfinite(f.value(1e4, f.initial_parameters())));
  }
  const Activation xielu("xielu");
  CHECK(xielu.value(2, xielu.initial_parameters()) == doctest::Approx(0.8 * 4 + 0.5 * 2).epsilon(1e-14));
  CHECK(xielu.value(-2, xielu.initial_parameters()) ==
        doctest::Approx(0.8 * (std::exp(-2) - 1 + 2) - 0.5 * 2).epsilon(1e-14));
}

TEST_CASE("every learned activation: tensors, with parameters for all or for each channel, in every dtype") {
  for (const std::string& name : every_learned_activation())
    for (const bool per_channel : {false, true})
      for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
        INFO(name, per_channel ? " per channel, " : ", ", orrery::name(dtype));
        const Activation f(name);
        const int n = f.parameter_count(), channels = 6;
        const Tensor x = scale(random_tensor({3, 5, channels}, 9), 2).to(dtype),
                     dy = random_tensor({3, 5, channels}, 10).to(dtype);
        const Tensor p = random_tensor(per_channel ? Shape{n, channels} : Shape{n}, 11).to(dtype);
        const std::vector<double> at = x.to_vector(), g = dy.to_vector(), all = p.to_vector();
        std::vector<double> value, dx, dp(all.size(), 0.0);
        for (size_t i = 0; i < at.size(); ++i) {
          std::vector<double> own;
          const size_t columns = per_channel ? channels : 1, column = per_channel ? i % channels : 0;
          for (size_t k = 0; k < static_cast<size_t>(n); ++k) own.push_back(all[k * columns + column]);
          value.push_back(f.value(at[i], own));
          dx.push_back(f.derivative(at[i], own) * g[i]);
          const std::vector<double> along = f.parameter_derivatives(at[i], own);
          for (size_t k = 0; k < static_cast<size_t>(n); ++k) dp[k * columns + column] += along[k] * g[i];
        }
        x.set_requires_grad();
        p.set_requires_grad();
        const Tensor y = f(x, p);
        check_near(y, value);
        backward(y, dy);
        check_near(x.grad(), dx);
        check_near(p.grad(), dp);
      }
}
