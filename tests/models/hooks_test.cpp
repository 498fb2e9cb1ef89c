#include "engine/autograd/hooks.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "engine/ops/ops.h"
#include "models/gpt.h"
#include "models/model.h"
#include "models/training/settings.h"
#include "models/translation_model.h"
#include "tests/support/errors.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::error_of;
using orrery::testing::largest_difference;
using orrery::testing::random_tensor;

TEST_CASE("watching shows named values and changes none, to the bit") {
  GptSettings s;
  s.layers = 2, s.heads = 2, s.width = 16, s.context = 8, s.vocabulary = 9;
  Gpt model(s);
  nn::initialize(model, 3);
  std::vector<int32_t> numbers = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1};
  const Tensor tokens = Tensor::from({2, 8}, numbers);
  const auto run = [&] {
    nn::Pass pass;
    return model(tokens, pass);
  };
  const Tensor plain = run();
  std::map<std::string, Tensor> seen;
  const std::string attention = "blocks.1.attention";
  {
    Hooks hooks({attention + ".weights", attention + ".value", attention + ".read", "blocks.0.feed_forward.residual"},
                [&](const std::string& name, const Tensor& value) { seen[name] = value; });
    CHECK(largest_difference(run(), plain) == 0);
    hooks.check_seen();
  }
  CHECK(largest_difference(run(), plain) == 0);
  CHECK(seen.size() == 4);
  const Tensor weights = seen.at(attention + ".weights");
  CHECK(weights.shape() == Shape{2, 2, 8, 8});
  CHECK(largest_difference(sum(weights, {-1}), Tensor::full({2, 2, 8}, 1)) <= 1e-6);
  const Tensor read = permute(matmul(weights, permute(seen.at(attention + ".value"), {0, 2, 1, 3})), {0, 2, 1, 3});
  CHECK(largest_difference(read, seen.at(attention + ".read")) <= 1e-6);
  CHECK(seen.at("blocks.0.feed_forward.residual").shape() == Shape{2, 8, 16});
}

TEST_CASE("a name that never arises is an error that names the nearest") {
  GptSettings s;
  s.layers = 1, s.heads = 2, s.width = 16, s.context = 8, s.vocabulary = 9;
  Gpt model(s);
  nn::initialize(model, 3);
  Hooks hooks({"blocks.0.attention.weihgts"}, [](const std::string&, const Tensor&) {});
  nn::Pass pass;
  model(Tensor::from({1, 2}, std::vector<int32_t>{1, 2}), pass);
  std::string message;
  try {
    hooks.check_seen();
  } catch (const Error& error) {
    message = error.what();
  }
  CHECK(message.find("hooks: 'blocks.0.attention.weihgts' never arose; did you "
                     "mean 'blocks.0.attention.weights'?") == 0);
}

namespace {

using Assignments = std::vector<std::pair<std::string, std::string>>;

// A small model of each class with whatever it can be shown, and how it is run.
struct Case {
  Assignments settings;
  std::function<Tensor(nn::Module&)> run;
};
Tensor some_tokens(int64_t batch, int64_t time) {
  std::vector<int32_t> all;
  for (int64_t i = 0; i < batch * time; ++i) all.push_back(static_cast<int32_t>(i * i % 7));
  return Tensor::from(Shape{batch, time}, all);
}
Tensor of_text(nn::Module& model) {
  nn::Pass pass;
  return model(some_tokens(2, 8), pass);
}
Tensor of_image(nn::Module& model) {
  nn::Pass pass;
  return model(random_tensor({2, 8, 8, 1}, 1).to(Dtype::f32), pass);
}
Tensor of_pair(nn::Module& model) {
  nn::Pass pass;
  dynamic_cast<TranslationModel&>(model).encode(some_tokens(2, 5), {}, pass);
  return model(some_tokens(2, 6), pass);
}
std::vector<Case> cases() {
  const Assignments text = {{"model", "gpt"}, {"vocabulary", "9"}, {"context", "8"}};
  std::vector<Case> all = {
      {{{"model", "vit"}, {"image_size", "8"}, {"channels", "1"}, {"classes", "3"}}, of_image},
      {{{"model", "resnet"}, {"image_size", "8"}, {"channels", "1"}, {"classes", "3"}}, of_image},
      {{{"model", "stream"},
        {"vocabulary", "9"},
        {"context", "8"},
        {"memory", "8"},
        {"attention", "softmax(span=adaptive_span(8, R=4), persistent=3)"}},
       of_text},
      {{{"model", "encoder_decoder"}, {"vocabulary", "9"}, {"attention", "relu_former"}}, of_pair}};
  for (const char* attention :
       {"softmax", "softmax(persistent=slots(3, split=yes))", "softmax(soft_cap=2)", "pointwise(relu, alpha=1)",
        "relu_former", "rela", "linear(elu)", "sparsemax", "entmax15", "gau"})
    all.push_back({text, of_text}), all.back().settings.emplace_back("attention", attention);
  for (const char* feed_forward : {"dense(relu)", "dense(prelu)", "gated(silu)", "gated(prelu)", "memory(relu)",
                                   "memory(softmax, norm=layer)", "persistent(slots=5, heads=2, projections=yes)"})
    all.push_back({text, of_text}), all.back().settings.emplace_back("feed_forward", feed_forward);
  for (const char* place : {"post", "pre"})
    all.push_back({text, of_text}),
        all.back().settings.insert(all.back().settings.end(), {{"norm_place", place}, {"residual_gain", "0.5"}});
  for (Case& each : all)
    if (each.settings[0].second != "resnet")
      each.settings.insert(each.settings.end(), {{"layers", "2"}, {"heads", "2"}, {"width", "16"}});
  return all;
}
bool leaves_fused_path(const std::string& name) {
  for (const char* end : {".scores", ".slot_scores", ".weights", ".hidden", ".hidden_before", ".output"})
    if (name.ends_with(end)) return true;
  return false;
}

}  // namespace

TEST_CASE("every value of every model can be watched, and put in its own place") {
  for (const Case& each : cases()) {
    std::string settings;
    for (const auto& [key, value] : each.settings) settings += key + "=" + value + " ";
    CAPTURE(settings);
    const auto model = make_model(make_settings(each.settings));
    nn::initialize(*model, 3);
    const Tensor plain = each.run(*model);
    const double size = largest_difference(plain, Tensor::zeros_like(plain));
    std::set<std::string> names;
    {
      const Hooks hooks({"*"}, [&](const std::string& name, const Tensor&) { names.insert(name); });
      CHECK(largest_difference(each.run(*model), plain) == 0);
      CHECK(hooks.seen() == names);
    }
    for (const char* name : {"input", "output", "logits"}) CHECK(names.contains(name));
    for (const std::string& name : names) {
      CAPTURE(name);
      const Hooks hooks({name}, Hooks::Replace{[](const std::string&, const Tensor& value) { return value.clone(); }});
      const double change = largest_difference(each.run(*model), plain);
      CHECK(change <= (leaves_fused_path(name) ? 1e-6 * std::max(1.0, size) : 0));
      hooks.check_seen();
    }
  }
}

TEST_CASE("a head whose read is replaced by zero is one without its columns of W_o") {
  GptSettings s;
  s.layers = 2, s.heads = 4, s.width = 16, s.context = 8, s.vocabulary = 9;
  Gpt model(s);
  nn::initialize(model, 3);
  const Tensor keep = Tensor::from({4, 1}, {1, 1, 0, 1}, Dtype::f32);  // head 2 of layer 1
  Tensor ablated;
  {
    const Hooks hooks({"blocks.1.attention.read"},
                      Hooks::Replace{[&](const std::string&, const Tensor& read) { return read * keep; }});
    ablated = of_text(model);
  }
  for (const nn::NamedParameter& p : nn::parameters_of(model))
    if (p.path == "blocks.1.attention.output.weight")
      for (int64_t row = 0; row < 16; ++row)
        for (int64_t column = 8; column < 12; ++column) p.parameter->value.mutable_data<float>()[row * 16 + column] = 0;
  CHECK(largest_difference(of_text(model), ablated) == 0);
}

TEST_CASE("replacing: several act in their order, an undefined tensor leaves a value, another shape is refused") {
  GptSettings s;
  s.layers = 1, s.heads = 2, s.width = 16, s.context = 8, s.vocabulary = 9;
  Gpt model(s);
  nn::initialize(model, 3);
  const Tensor plain = of_text(model);
  const auto times = [](double factor) {
    return Hooks::Replace{[=](const std::string&, const Tensor& value) { return value * factor; }};
  };
  const Hooks doubled({"logits"}, times(2)), and_tripled({"logits"}, times(3));
  Tensor seen;
  const Hooks watching({"logits"}, [&](const std::string&, const Tensor& value) { seen = value; });
  CHECK(largest_difference(of_text(model), plain * 2 * 3) == 0);
  CHECK(largest_difference(seen, plain * 2 * 3) == 0);
  {
    const Hooks left({"*"}, Hooks::Replace{[](const std::string&, const Tensor&) { return Tensor(); }});
    CHECK(largest_difference(of_text(model), plain * 2 * 3) <= 1e-5);
  }
  const Hooks wrong({"blocks.0.attention.read"},
                    Hooks::Replace{[](const std::string&, const Tensor&) { return Tensor::zeros({2}); }});
  CHECK(error_of([&] { of_text(model); }) ==
        "blocks.0.attention: hooks: what replaces blocks.0.attention.read is f32 (2) on cpu; it was f32 (2, 8, 2, 8) "
        "on cpu");
  CHECK(error_of([] { Hooks({}, Hooks::Replace{}); }) ==
        "hooks: a replacement is of named values; give their names or a pattern");
}
