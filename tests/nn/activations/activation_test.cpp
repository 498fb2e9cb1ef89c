// Tests of every registered activation. A new activation is covered automatically.
#include "nn/formulas/activation.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/autograd/autograd.h"
#include "engine/checks/gradient_check.h"
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/formulas/property_check.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::expect_error;
using orrery::testing::random_tensor;

namespace {

// ---- the checks take plain functions, so that wrong functions can be tested too

struct Curve {
  std::function<double(double)> value, derivative;
  std::vector<double> kinks = {};
};
struct Worst {
  double error = 0, x = 0, actual = 0, reference = 0;
  void add(double at, double a, double b) {
    const double e = std::fabs(a - b) / std::max(1.0, std::fabs(b));
    if (!(e <= error)) *this = {std::isnan(e) ? INFINITY : e, at, a, b};
  }
};
std::ostream& operator<<(std::ostream& out, const Worst& w) {
  return out << "worst at x = " << w.x << ": " << w.actual << " instead of " << w.reference;
}

constexpr double difference_step = 1e-3, end_of_grid = 12;
std::vector<double> grid(const std::vector<double>& kinks, double distance) {
  std::vector<double> all;
  for (double x = -end_of_grid; x <= end_of_grid; x += 0.0371)
    if (std::all_of(kinks.begin(), kinks.end(), [&](double kink) { return std::fabs(x - kink) > distance; }))
      all.push_back(x);
  return all;
}
double finite_difference(const std::function<double(double)>& f, double x) {  // fourth order
  constexpr double h = difference_step;
  return (8 * (f(x + h) - f(x - h)) - (f(x + 2 * h) - f(x - 2 * h))) / (12 * h);
}

Worst derivative_error(const Curve& curve) {
  Worst worst;
  for (const double x : grid(curve.kinks, 3 * difference_step))
    worst.add(x, curve.derivative(x), finite_difference(curve.value, x));
  return worst;
}
constexpr double difference_bound = 1e-9;

// Returns the distance of the derivative from the one-sided finite differences, at the worst kink.
double error_at_kinks(const Curve& curve) {
  double worst = 0;
  for (const double kink : curve.kinks) {
    constexpr double h = 1e-6;
    const double left = (curve.value(kink) - curve.value(kink - h)) / h;
    const double right = (curve.value(kink + h) - curve.value(kink)) / h;
    const double derivative = curve.derivative(kink);
    worst = std::max({worst, std::min(left, right) - derivative, derivative - std::max(left, right)});
  }
  return worst;
}
constexpr double kink_bound = 1e-5;  // the second derivative times h

Curve curve_of(const Activation& f) {
  return {[f](double x) { return f.value(x); }, [f](double x) { return f.derivative(x); }, f.info().kinks};
}

// Returns every activation with its defaults, and with each of its constants changed.
std::vector<Activation> every_activation() {
  std::vector<Activation> all;
  for (const std::string& name : activation_names()) {
    all.emplace_back(name);
    for (const ActivationConstant& constant : all.back().info().constants)
      all.emplace_back(name + "(" + std::string(constant.name) + "=1.7)");
  }
  return all;
}

// ---- required f32 accuracy in units in the last place of max(|value|, floor), max(1, |derivative|)

struct Accuracy {
  double value = 4, derivative = 3;
  double floor = 0;
};
Accuracy accuracy_of(const Activation& f) {
  static const std::map<std::string_view, Accuracy> exceptions = {
      {"gelu", {.value = 7}},                                 // as the normal distribution
      {"gelu_tanh", {.value = 110}},                          // the argument of the exponential, up to 100, is rounded
      {"quick_gelu", {.value = 24}},                          // as above, up to 20
      {"silu", {.value = 24}},                                // as above, with a beta
      {"sine", {.value = 16, .derivative = 30, .floor = 1}},  // as above, with a frequency
      {"tanhshrink", {.floor = 1}},                           // cancels near zero (see its file)
  };
  const auto found = exceptions.find(f.info().name);
  return found == exceptions.end() ? Accuracy{} : found->second;
}
double unit(double x, int mantissa_bits) {  // one unit in the last place
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(1.0, std::max(exponent - mantissa_bits, -125 - mantissa_bits));
}

template <class T>
std::vector<T> stored(const std::vector<double>& x) {
  std::vector<T> all;
  for (const double v : x) all.push_back(static_cast<T>(static_cast<Arithmetic<T>>(v)));
  return all;
}
template <class T>
double number(T x) {
  return static_cast<double>(static_cast<Arithmetic<T>>(x));
}

template <class T>
double worst_value_error(const Activation& f, int mantissa_bits) {
  const std::vector<T> x = stored<T>(grid({}, 0));
  std::vector<T> y(x.size());
  f.role<TileRole<T>>().values(x.data(), y.data(), static_cast<int64_t>(x.size()));
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = f.value(number(x[i]));
    const double error =
        std::fabs(number(y[i]) - exact) / unit(std::max(std::fabs(exact), accuracy_of(f).floor), mantissa_bits);
    worst = std::max(worst, std::isnan(error) ? INFINITY : error);
  }
  return worst;
}
double worst_derivative_error(const Activation& f) {
  const std::vector<float> x = stored<float>(grid({}, 0)), ones(x.size(), 1.0f);
  std::vector<float> dx(x.size());
  f.role<TileRole<float>>().backward(x.data(), ones.data(), nullptr, dx.data(), static_cast<int64_t>(x.size()));
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = f.derivative(x[i]);
    worst = std::max(worst, std::fabs(dx[i] - exact) / unit(std::max(1.0, std::fabs(exact)), 24));
  }
  return worst;
}

// Returns every activation with learned parameters, by name and by preset.
std::vector<std::string> every_learned_activation() {
  std::vector<std::string> all = learned_activation_names();
  for (const std::string& name : learned_activation_names())
    for (const ActivationPreset& preset : Activation::any(name).info().presets) all.emplace_back(preset.name);
  return all;
}

double tolerance(Dtype dtype) { return dtype == Dtype::f64 ? 1e-13 : dtype == Dtype::f32 ? 2e-6 : 1.6e-2; }

void check_near(const Tensor& ours, const std::vector<double>& expected) {
  const std::vector<double> all = ours.to_vector();
  REQUIRE(all.size() == expected.size());
  Worst worst;
  for (size_t i = 0; i < all.size(); ++i) worst.add(static_cast<double>(i), all[i], expected[i]);
  CAPTURE(worst);
  CHECK(worst.error <= tolerance(ours.dtype()));
}

}  // namespace

TEST_CASE("every activation: the derivative agrees with finite differences of the value") {
  for (const Activation& f : every_activation()) {
    const Worst worst = derivative_error(curve_of(f));
    INFO(f.spec(), ", ", worst);
    CHECK(worst.error <= difference_bound);
    CHECK(error_at_kinks(curve_of(f)) <= kink_bound);
  }
}

TEST_CASE("every activation: the derivative agrees with dual numbers") {
  for (const Activation& f : every_activation()) {
    Worst worst;
    for (const double x : grid(f.info().kinks, 0)) worst.add(x, f.derivative(x), f.derivative_by_dual(x));
    for (const double x : {0.0, 1e-12, -1e-12, 50.0, -50.0})
      if (std::find(f.info().kinks.begin(), f.info().kinks.end(), x) == f.info().kinks.end())
        worst.add(x, f.derivative(x), f.derivative_by_dual(x));
    INFO(f.spec(), ", ", worst);
    CHECK(worst.error <= 1e-14);
  }
}

TEST_CASE("every activation: the derivative from the output equals that from the input") {
  int with = 0;
  for (const Activation& f : every_activation()) {
    if (!f.has_derivative_from_output()) continue;
    ++with;
    std::vector<double> points = grid({}, 0);
    points.insert(points.end(), f.info().kinks.begin(), f.info().kinks.end());
    Worst worst;
    for (const double x : points) worst.add(x, f.derivative_from_output(f.value(x)), f.derivative(x));
    INFO(f.spec(), ", ", worst);
    CHECK(worst.error <= 1e-13);
  }
  CHECK(with >= 10);
}

TEST_CASE("every activation: its info states true properties, with other constants too") {
  std::vector<Activation> all = every_activation();
  for (const std::string& name : every_learned_activation()) all.push_back(Activation::any(name));
  for (const Activation& f : all) {
    INFO(f.spec());
    CHECK(join(property_errors(f)) == "");
  }
}

TEST_CASE("every activation: far out it is finite or at its limit, and NaN stays NaN") {
  for (const Activation& f : every_activation()) {
    INFO(f.spec());
    const bool defaults = f.spec() == f.info().name;
    const std::array<double, 2> ends = {-1e4, 1e4};
    for (size_t side = 0; side < 2; ++side) {
      const double x = ends[side], y = f.value(x), limit = f.info().limits[side];
      CAPTURE(x);
      CAPTURE(y);
      CHECK((std::isfinite(y) || y == limit));
      CHECK((std::isfinite(f.derivative(x)) || !std::isfinite(y)));
      if (defaults && std::isfinite(limit)) CHECK(std::fabs(y - limit) < 1e-3);
      if (defaults && std::isinf(limit)) CHECK((std::fabs(y) > 90 && std::signbit(y) == std::signbit(limit)));
      float narrow = static_cast<float>(x);
      f.role<TileRole<float>>().values(&narrow, &narrow, 1);
      CHECK((std::isfinite(narrow) || narrow == static_cast<float>(limit)));
      bf16 brief(static_cast<float>(x));
      f.role<TileRole<bf16>>().values(&brief, &brief, 1);
      CHECK((std::isfinite(static_cast<float>(brief)) || static_cast<float>(brief) == static_cast<float>(limit)));
    }
    CHECK(std::isnan(f.value(NAN)));
    float narrow = NAN;
    f.role<TileRole<float>>().values(&narrow, &narrow, 1);
    CHECK(std::isnan(narrow));
    bf16 brief(NAN);
    f.role<TileRole<bf16>>().values(&brief, &brief, 1);
    CHECK(std::isnan(static_cast<float>(brief)));
  }
}

TEST_CASE("every activation: f32 and bf16 have the accuracy of the table") {
  for (const Activation& f : every_activation()) {
    INFO(f.spec());
    CHECK(worst_value_error<float>(f, 24) <= accuracy_of(f).value);
    CHECK(worst_value_error<bf16>(f, 8) <= 0.51);
    CHECK(worst_derivative_error(f) <= accuracy_of(f).derivative);
  }
}

TEST_CASE("every activation: tensors get the values and derivatives of numbers, in every dtype") {
  for (const Activation& f : every_activation())
    for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
      INFO(f.spec(), ", ", name(dtype));
      const Tensor x = scale(random_tensor({3, 5, 7}, 1), 2).to(dtype), dy = random_tensor({3, 5, 7}, 2).to(dtype);
      const std::vector<double> at = x.to_vector(), g = dy.to_vector();
      std::vector<double> value, derivative;
      for (size_t i = 0; i < at.size(); ++i)
        value.push_back(f.value(at[i])), derivative.push_back(f.derivative(at[i]) * g[i]);
      x.set_requires_grad();
      const Tensor y = f(x);
      CHECK(y.shape() == x.shape());
      CHECK(y.dtype() == dtype);
      check_near(y, value);
      backward(y, dy);
      check_near(x.grad(), derivative);
    }
}

TEST_CASE("every activation: a gate has both gradients, in every dtype") {
  for (const Activation& f : every_activation())
    for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
      INFO(f.spec(), ", ", name(dtype));
      const Tensor x = scale(random_tensor({4, 9}, 3), 2).to(dtype), up = random_tensor({4, 9}, 4).to(dtype);
      const Tensor dy = random_tensor({4, 9}, 5).to(dtype);
      const std::vector<double> at = x.to_vector(), u = up.to_vector(), g = dy.to_vector();
      std::vector<double> value, dx, dup;
      for (size_t i = 0; i < at.size(); ++i) {
        value.push_back(f.value(at[i]) * u[i]);
        dx.push_back(f.derivative(at[i]) * u[i] * g[i]);
        dup.push_back(f.value(at[i]) * g[i]);
      }
      x.set_requires_grad();
      up.set_requires_grad();
      const Tensor y = f.gate(x, up);
      check_near(y, value);
      backward(y, dy);
      check_near(x.grad(), dx);
      check_near(up.grad(), dup);
    }
}

TEST_CASE("every activation: the functions for tiles agree with the operation, in place too") {
  for (const std::string& name : activation_names()) {
    INFO(name);
    const Activation f(name);
    constexpr int64_t n = 37;
    const Tensor x = scale(random_tensor({n}, 6), 3).to(Dtype::f32), g = random_tensor({n}, 7).to(Dtype::f32);
    const Tensor y = Tensor::empty({n}, Dtype::f32, Device::cpu), dx = Tensor::empty({n}, Dtype::f32, Device::cpu),
                 only_dx = Tensor::empty({n}, Dtype::f32, Device::cpu);
    const TileRole<float>& tile = f.role<TileRole<float>>();
    const float *const from = x.data<float>(), *const output_gradient = g.data<float>();
    tile.values(from, y.mutable_data<float>(), n);
    CHECK(y.to_vector() == f(x).to_vector());
    tile.backward(from, output_gradient, y.mutable_data<float>(), dx.mutable_data<float>(), n);
    tile.backward(from, output_gradient, nullptr, only_dx.mutable_data<float>(), n);
    check_near(y, f(x).to_vector());
    check_near(only_dx, dx.to_vector());
    const Tensor in_place_dx = g.clone();
    tile.backward(from, in_place_dx.data<float>(), nullptr, in_place_dx.mutable_data<float>(), n);
    CHECK(in_place_dx.to_vector() == only_dx.to_vector());
    const Tensor own = x.clone();
    tile.values(own.data<float>(), own.mutable_data<float>(), n);
    CHECK(own.to_vector() == f(x).to_vector());
  }
}

TEST_CASE("activations save the output if it gives the derivative, else the input") {
  const auto change_input_before_backward = [](const char* spec) {
    const Tensor x = random_tensor({5});
    x.set_requires_grad();
    const Tensor z = scale(x, 1), y = sum(Activation(spec)(z));
    z.copy_from(Tensor::zeros({5}, Dtype::f64));
    y.backward();
    return x.grad();
  };
  CHECK(change_input_before_backward("tanh").defined());
  const auto changed = [&] { change_input_before_backward("silu"); };
  expect_error(changed).names("backward").names("activation").value("(5)").offers("clone()");
}

TEST_CASE("long tensors, which are split into chunks, have correct values and gradients") {
  const Activation f("silu");
  const Tensor x = random_tensor({3, 20001}, 8);
  x.set_requires_grad();
  const Tensor y = f(x);
  const std::vector<double> at = x.to_vector();
  std::vector<double> value, derivative;
  for (const double v : at) value.push_back(f.value(v)), derivative.push_back(f.derivative(v));
  check_near(y, value);
  sum(y).backward();
  check_near(x.grad(), derivative);
  CHECK(f(Tensor::empty({0, 4}, Dtype::f32, Device::cpu)).numel() == 0);
}

// ---- tests of the checks

TEST_CASE("the derivative check finds wrong derivatives") {
  const Activation gelu("gelu"), gelu_tanh("gelu_tanh"), silu("silu"), elu("elu(0.5)"), relu("relu");
  const auto value_of = [](const Activation& f) { return [f](double x) { return f.value(x); }; };
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const std::vector<Curve> wrong = {
      {value_of(gelu), [&](double x) { return gelu_tanh.derivative(x); }},  // derivative of the other GELU
      {value_of(gelu),
       [&](double x) {
         return 0.5 * (1 + std::erf(x * 0.707106)) + x * 0.398942 * std::exp(-x * x / 2);
       }},                                                                                    // six digits
      {value_of(silu), [&](double x) { return sigmoid(x) * (1 + x); }},                       // (1 - s) forgotten
      {value_of(elu), [](double x) { return x > 0 ? 1 : std::exp(x); }, {0}},                 // alpha forgotten
      {value_of(silu), [&](double x) { return -silu.derivative(x); }},                        // wrong sign
      {value_of(silu), [&](double x) { return x > 2 && x < 2.1 ? 0 : silu.derivative(x); }},  // wrong in one place only
      {value_of(silu), [&](double x) { return x > 11.9 ? NAN : silu.derivative(x); }},
  };
  for (size_t i = 0; i < wrong.size(); ++i) {
    CAPTURE(i);
    CHECK(derivative_error(wrong[i]).error > 100 * difference_bound);
  }
  CHECK(derivative_error(wrong[0]).error > 5e-4);
  const Curve above{value_of(relu), [](double x) { return x == 0 ? 1.1 : double(x > 0); }, {0}};
  CHECK(error_at_kinks(above) == doctest::Approx(0.1));
  CHECK(derivative_error(above).error <= difference_bound);  // only error_at_kinks detects this
}

TEST_CASE("every activation has a gradient case, and passes it") {
  std::vector<std::string> with_case;
  for (const RegisteredCase& registered : gradient_cases()) {
    if (registered.family != "activation") continue;
    with_case.push_back(registered.name);
    INFO(registered.name);
    const GradientReport report = check_gradients(make_case(registered));
    CHECK(report.passed);
    CHECK(report.comparisons > 36);
  }
  CHECK(with_case.size() == activation_names().size() + learned_activation_names().size());
}

// ---- names, constants, errors

TEST_CASE("the catalogue of activations is complete") {
  for (const char* name :
       {"identity",    "relu",      "relu_squared", "relu6",        "leaky_relu", "elu",      "selu",     "celu",
        "gelu",        "gelu_tanh", "quick_gelu",   "silu",         "mish",       "softplus", "softsign", "sigmoid",
        "log_sigmoid", "tanh",      "hardtanh",     "hard_sigmoid", "hard_swish", "erf",      "sine",     "exp",
        "square",      "cube",      "tanhshrink",   "arctan",       "squareplus"}) {
    INFO(std::string(name));
    CHECK(Activation(name).info().name == name);
    CHECK(!Activation(name).info().formula.empty());
    CHECK(!Activation(name).info().source.empty());
  }
  for (const char* name : {"prelu", "xielu"}) CHECK(is_learned_activation(name));
  CHECK(Activation("relu").derivative(0) == 0);
  CHECK(Activation("gelu").value(1) == doctest::Approx(0.84134474606854293).epsilon(1e-15));
  CHECK(Activation("gelu").value(-5) == doctest::Approx(-1.4332578595e-6).epsilon(1e-10));  // 1 + erf would cancel
}

TEST_CASE("an activation's spec reads back as the same activation") {
  for (const Activation& f : every_activation()) {
    const Activation again(f.spec());
    INFO(f.spec());
    CHECK(again.spec() == f.spec());
    CHECK(again.constants() == f.constants());
    CHECK(again.value(-0.3) == f.value(-0.3));
  }
  CHECK(Activation("swish").spec() == "silu");
  CHECK(Activation("swish(1.7)").spec() == "silu(beta=1.7)");
  CHECK(Activation("elu(0.5)").spec() == "elu(alpha=0.5)");
  CHECK(Activation("elu(alpha=0.5)").value(-1e9) == -0.5);
  CHECK(Activation("elu(alpha=1)").spec() == "elu");
  CHECK(Activation::any("prelu(0.1)").spec() == "prelu(initial=0.1)");
  CHECK(Activation::any("leaky_relu_learned").spec() == "prelu(initial=0.01)");
  CHECK(Activation::any("leaky_relu_learned(0.25)").spec() == "prelu");
  CHECK(Activation::any("leaky_relu_learned(initial=0.2)").initial_parameters() == std::vector<double>{0.2});
}

TEST_CASE("a mistake in an activation's spec has an error message") {
  const std::string names = join(activation_names()), all = join(nn::detail::activations().names());
  expect_error([] { Activation("swosh"); }).names("activation").value("'swosh'").offers("'swish' (silu)").offers(all);
  expect_error([] { Activation("relu(2)"); }).names("relu").value("'2'");
  expect_error([] { Activation("elu(alpah=2)"); }).names("elu").value("'alpah'").offers("'alpha'");
  expect_error([] { Activation("swish(beta=big)"); }).names("silu").names("beta").value("'big'").offers("number");
  expect_error([] { Activation("celu(0)"); }).names("celu").names("alpha").value(0).offers(0);
  expect_error([] { Activation("elu(1, 2)"); }).names("elu").offers(1).value("'2'").offers("alpha");
  expect_error([] { Activation("prelu"); }).names("activation").value("'prelu'").names("parameters").offers(names);
  expect_error([] { Activation::any("prelo"); }).names("activation").value("'prelo'").offers("'prelu'");
  const auto of_tile = [] { Activation::any("prelu").role<TileRole<float>>(); };
  expect_error(of_tile).names("tile").value("'prelu'").names("parameters");
  const auto negative = [] { Activation::any("xielu(negative=0.4)").initial_parameters(); };
  expect_error(negative).names("xielu").names("negative").value("0.4").names("beta").offers("0.5");
  CHECK(is_learned_activation("prelu"));
  CHECK(!is_learned_activation("relu"));
}

TEST_CASE("a mistake in an activation's operands has an error message") {
  const Activation silu("silu");
  const Tensor x = random_tensor({2, 3});
  expect_error([&] { silu.gate(x, random_tensor({3, 2})); }).names("gate").value("x (2, 3)").value("up (3, 2)");
  expect_error([&] { silu.gate(x, x.to(Dtype::f32)); }).names("gate").value("f64").value("f32");
  const auto of_integers = [&] { silu(Tensor::zeros({2}, Dtype::i32)); };
  expect_error(of_integers).names("activation").offers("f32, f64 or bf16").value("i32").offers(".to(Dtype::f32)");
  expect_error([&] { silu.derivative_from_output(1); }).names("silu").value("output").offers("derivative(x)");
  const Activation prelu = Activation::any("prelu");
  const auto of_two = [&] { prelu(x, random_tensor({2})); };
  expect_error(of_two).names("prelu").value("(2)").names("x (2, 3)").offers("(1)").offers("(1, 3)");
  const std::vector<double> two = {1, 2};
  expect_error([&] { prelu.value(1, two); }).names("prelu").value(2).offers(1);
  expect_error([&] { prelu(x); }).names("prelu").offers(1).value("none");
  expect_error([&] { silu(x, random_tensor({1})); }).names("silu").offers(0).value("some");
}

// ---- learned activations

TEST_CASE("every learned activation: derivatives by x and by each parameter") {
  for (const std::string& name : every_learned_activation()) {
    const Activation f = Activation::any(name);
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
  const Activation xielu = Activation::any("xielu");
  CHECK(xielu.value(2, xielu.initial_parameters()) == doctest::Approx(0.8 * 4 + 0.5 * 2).epsilon(1e-14));
  CHECK(xielu.value(-2, xielu.initial_parameters()) ==
        doctest::Approx(0.8 * (std::exp(-2) - 1 + 2) - 0.5 * 2).epsilon(1e-14));
}

TEST_CASE("every learned activation: tensors, with parameters for all or for each channel, in every dtype") {
  for (const std::string& name : every_learned_activation())
    for (const bool per_channel : {false, true})
      for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
        INFO(name, per_channel ? " per channel, " : ", ", orrery::name(dtype));
        const Activation f = Activation::any(name);
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
