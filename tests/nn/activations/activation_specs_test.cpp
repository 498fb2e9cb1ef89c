// Names and constants of activations, and errors of their specs and operands.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "engine/ops/ops.h"
#include "nn/formulas/pointwise_function.h"
#include "tests/nn/activations/curves.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using namespace orrery::testing::curves;
using orrery::testing::expect_error;
using orrery::testing::random_tensor;

TEST_CASE("the catalogue contains every activation") {
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
  for (const char* name : {"prelu", "xielu"}) CHECK(Activation(name).parameter_count() > 0);
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
  CHECK(Activation("prelu(0.1)").spec() == "prelu(initial=0.1)");
  CHECK(Activation("leaky_relu_learned").spec() == "prelu(initial=0.01)");
  CHECK(Activation("leaky_relu_learned(0.25)").spec() == "prelu");
  CHECK(Activation("leaky_relu_learned(initial=0.2)").initial_parameters() == std::vector<double>{0.2});
}

TEST_CASE("a mistake in an activation's spec has an error message") {
  const std::string all = join(nn::detail::activations().names());
  expect_error([] { Activation("swosh"); }).names("activation").value("'swosh'").offers("'swish' (silu)").offers(all);
  expect_error([] { Activation("relu(2)"); }).names("relu").value("'2'");
  expect_error([] { Activation("elu(alpah=2)"); }).names("elu").value("'alpah'").offers("'alpha'");
  expect_error([] { Activation("swish(beta=big)"); }).names("silu").names("beta").value("'big'").offers("number");
  expect_error([] { Activation("celu(0)"); }).names("celu").names("alpha").value(0).offers(0);
  expect_error([] { Activation("elu(1, 2)"); }).names("elu").offers(1).value("'2'").offers("alpha");
  expect_error([] { Activation("prelo"); }).names("activation").value("'prelo'").offers("'prelu'");
  const auto gate = [](const Tensor& x) { Activation("prelu").role<ElementwiseRole>().gate(x, x, x); };
  const auto of_two_numbers = [&] { gate(Tensor::zeros({2})); };
  expect_error(of_two_numbers).names("activation").value("'prelu'").names("parameters").offers("another");
  const auto negative = [] { Activation("xielu(negative=0.4)").initial_parameters(); };
  expect_error(negative).names("xielu").names("negative").value("0.4").names("beta").offers("0.5");
}

TEST_CASE("a mistake in an activation's operands has an error message") {
  const Activation silu("silu");
  const Tensor x = random_tensor({2, 3});
  expect_error([&] { silu.gate(x, random_tensor({3, 2})); }).names("gate").value("x (2, 3)").value("up (3, 2)");
  expect_error([&] { silu.gate(x, x.to(Dtype::f32)); }).names("gate").value("f64").value("f32");
  const auto of_integers = [&] { silu(Tensor::zeros({2}, Dtype::i32)); };
  expect_error(of_integers).names("activation").offers("f32, f64 or bf16").value("i32").offers(".to(Dtype::f32)");
  expect_error([&] { silu.derivative_from_output(1); }).names("silu").value("output").offers("derivative(x)");
  const Activation prelu("prelu");
  const auto of_two = [&] { prelu(x, random_tensor({2})); };
  expect_error(of_two).names("prelu").value("(2)").names("x (2, 3)").offers("(1)").offers("(1, 3)");
  const std::vector<double> two = {1, 2};
  expect_error([&] { prelu.value(1, two); }).names("prelu").value(2).offers(1);
  expect_error([&] { prelu(x); }).names("prelu").offers(1).value("none");
  expect_error([&] { silu(x, random_tensor({1})); }).names("silu").offers(0).value("some");
  Parameter shared;
  const PointwiseFunction xielu(Activation("xielu"), &shared);
  expect_error([&] { PointwiseFunction(prelu, &shared); }).names("prelu").value(1).value(2).offers("one activation");
  const auto none = [&] { prelu.check_parameters("attention", {}, 4); };
  expect_error(none).names("attention").names("prelu").offers(1).value("(0)");
}
