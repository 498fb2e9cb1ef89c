#include "engine/autograd/hooks.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "engine/ops/ops.h"
#include "models/architectures/gpt.h"
#include "models/model.h"
#include "models/training/settings.h"
#include "tests/support/message.h"
#include "tests/support/model_cases.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::largest_difference;
using orrery::testing::model_cases;
using orrery::testing::ModelCase;
using orrery::testing::run_text;

TEST_CASE("hooks capture named values, and results stay bit-identical") {
  GptSettings s;
  s.layers = 2, s.heads = 2, s.width = 16, s.context = 8, s.vocabulary = 9;
  Gpt model(s);
  nn::initialize(model, 3);
  std::vector<int32_t> numbers = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1};
  const Tensor tokens = Tensor::from({2, 8}, numbers);
  const auto run = [&] {
    nn::ForwardPass pass;
    return model(tokens, pass);
  };
  const Tensor plain = run();
  std::map<std::string, Tensor> captured;
  const std::string attention = "blocks.1.attention";
  {
    Hooks hooks(
        {attention + ".weights", attention + ".value", attention + ".head_output", "blocks.0.feed_forward.residual"},
        [&](const std::string& name, const Tensor& value) { captured[name] = value; });
    CHECK(largest_difference(run(), plain) == 0);
    hooks.check_all_matched();
  }
  CHECK(largest_difference(run(), plain) == 0);
  CHECK(captured.size() == 4);
  const Tensor weights = captured.at(attention + ".weights");
  CHECK(weights.shape() == Shape{2, 2, 8, 8});
  CHECK(largest_difference(sum(weights, {-1}), Tensor::full({2, 2, 8}, 1)) <= 1e-6);
  const Tensor read = permute(matmul(weights, permute(captured.at(attention + ".value"), {0, 2, 1, 3})), {0, 2, 1, 3});
  CHECK(largest_difference(read, captured.at(attention + ".head_output")) <= 1e-6);
  CHECK(captured.at("blocks.0.feed_forward.residual").shape() == Shape{2, 8, 16});
}

TEST_CASE("a hook name that never matches is an error with the nearest name") {
  GptSettings s;
  s.layers = 1, s.heads = 2, s.width = 16, s.context = 8, s.vocabulary = 9;
  Gpt model(s);
  nn::initialize(model, 3);
  Hooks hooks({"blocks.0.attention.weihgts"}, [](const std::string&, const Tensor&) {});
  nn::ForwardPass pass;
  model(Tensor::from({1, 2}, std::vector<int32_t>{1, 2}), pass);
  const std::string right = "'blocks.0.attention.weights'";
  expect_error([&] { hooks.check_all_matched(); }).names("'blocks.0.attention.weihgts'").offers(right);
}

namespace {

bool leaves_fused_path(const std::string& name) {
  for (const char* end : {".scores", ".slot_scores", ".weights", ".hidden", ".pre_activation", ".output"})
    if (name.ends_with(end)) return true;
  return false;
}

}  // namespace

TEST_CASE("hooks: every value of every model can be captured, and replaced by itself") {
  for (const ModelCase& each : model_cases()) {
    CAPTURE(each.described());
    const auto model = make_model(make_settings(each.settings));
    nn::initialize(*model, 3);
    const Tensor plain = each.run(*model);
    const double size = largest_difference(plain, Tensor::zeros_like(plain));
    std::set<std::string> names;
    {
      const Hooks hooks({"*"}, [&](const std::string& name, const Tensor&) { names.insert(name); });
      CHECK(largest_difference(each.run(*model), plain) == 0);
      CHECK(hooks.names() == names);
    }
    for (const char* name : {"input", "output", "logits"}) CHECK(names.contains(name));
    for (const std::string& name : names) {
      CAPTURE(name);
      const Hooks hooks({name}, Hooks::Replace{[](const std::string&, const Tensor& value) { return value.clone(); }});
      const double change = largest_difference(each.run(*model), plain);
      CHECK(change <= (leaves_fused_path(name) ? 1e-6 * std::max(1.0, size) : 0));
      hooks.check_all_matched();
    }
  }
}

TEST_CASE("a head whose output is replaced by zero equals one without its columns of W_o") {
  GptSettings s;
  s.layers = 2, s.heads = 4, s.width = 16, s.context = 8, s.vocabulary = 9;
  Gpt model(s);
  nn::initialize(model, 3);
  const Tensor keep = Tensor::from({4, 1}, {1, 1, 0, 1}, Dtype::f32);  // drops head 2 of layer 1
  Tensor ablated;
  {
    const Hooks hooks({"blocks.1.attention.head_output"},
                      Hooks::Replace{[&](const std::string&, const Tensor& read) { return read * keep; }});
    ablated = run_text(model);
  }
  for (const nn::NamedParameter& p : nn::parameters_of(model))
    if (p.path == "blocks.1.attention.output.weight")
      for (int64_t row = 0; row < 16; ++row)
        for (int64_t column = 8; column < 12; ++column) p.parameter->value.mutable_data<float>()[row * 16 + column] = 0;
  CHECK(largest_difference(run_text(model), ablated) == 0);
}

TEST_CASE("hooks: replacements act in order; an undefined tensor keeps the value; another shape is an error") {
  GptSettings s;
  s.layers = 1, s.heads = 2, s.width = 16, s.context = 8, s.vocabulary = 9;
  Gpt model(s);
  nn::initialize(model, 3);
  const Tensor plain = run_text(model);
  const auto times = [](double factor) {
    return Hooks::Replace{[=](const std::string&, const Tensor& value) { return value * factor; }};
  };
  const Hooks doubled({"logits"}, times(2)), and_tripled({"logits"}, times(3));
  Tensor captured;
  const Hooks watching({"logits"}, [&](const std::string&, const Tensor& value) { captured = value; });
  CHECK(largest_difference(run_text(model), plain * 2 * 3) == 0);
  CHECK(largest_difference(captured, plain * 2 * 3) == 0);
  {
    const Hooks left({"*"}, Hooks::Replace{[](const std::string&, const Tensor&) { return Tensor(); }});
    CHECK(largest_difference(run_text(model), plain * 2 * 3) <= 1e-5);
  }
  const Hooks wrong({"blocks.0.attention.head_output"},
                    Hooks::Replace{[](const std::string&, const Tensor&) { return Tensor::zeros({2}); }});
  const auto run = [&] { orrery::testing::run_text(model); };
  expect_error(run).names("blocks.0.attention.head_output").value("f32 (2) on cpu").offers("f32 (2, 8, 2, 8) on cpu");
  expect_error([] { Hooks({}, Hooks::Replace{}); }).names("hooks").offers("names").offers("pattern");
}
