// Effects of the decoder's settings: heads, biases, separate normalizations, initial values.
#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "models/architectures/gpt.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::largest_difference;
using orrery::testing::Message;

namespace {

using ByPath = std::map<std::string, Tensor>;

GptSettings small() {
  GptSettings s;
  s.layers = 2, s.heads = 4, s.width = 16, s.context = 8, s.vocabulary = 11, s.position = parse_spec("rotary");
  return s;
}
GptSettings small(const std::vector<std::pair<std::string, std::string>>& changes) {
  GptSettings s = small();
  for (const auto& [key, value] : changes) set_setting(s, "test", key, value);
  return s;
}
std::unique_ptr<Gpt> made(const GptSettings& settings) {
  auto model = std::make_unique<Gpt>(settings);
  nn::initialize(*model, 5);
  nn::convert(*model, Dtype::f64);
  return model;
}
ByPath values_of(Gpt& model) {
  ByPath all;
  for (const nn::NamedParameter& p : nn::parameters_of(model)) all.emplace(p.path, p.parameter->value);
  return all;
}
const Tensor tokens = Tensor::from(Shape{2, 6}, std::vector<int32_t>{1, 4, 2, 8, 5, 7, 10, 0, 3, 3, 9, 6});
Tensor logits(Gpt& model) {
  nn::ForwardPass pass;
  return model(tokens, pass);
}
Message refusal(const std::vector<std::pair<std::string, std::string>>& changes) {
  return expect_error([&] { Gpt model(small(changes)); });
}
double std_of(const Tensor& x) {
  const Tensor wide = x.detach().to(Dtype::f64);
  return std::sqrt(mean(wide * wide).item());
}
bool near(double found, double expected) { return std::abs(found - expected) <= 0.15 * expected; }

}  // namespace

TEST_CASE("decoder: grouped query attention equals full heads with repeated keys and values") {
  const auto grouped = made(small({{"kv_heads", "2"}})), full = made(small());
  for (auto& [path, value] : values_of(*full)) {
    const Tensor source = values_of(*grouped).at(path).detach();
    if (!path.ends_with("query_key_value.weight")) {
      value.copy_from(source);
      continue;
    }
    CHECK(source.shape() == Shape{32, 16});
    std::vector<Tensor> rows = {source.slice(0, 16)};
    for (const int64_t begin : {16, 24})  // keys, then values: 2 heads of size 4, each for 2 query heads
      for (const int64_t head : {0, 0, 1, 1}) rows.push_back(source.slice(begin + 4 * head, begin + 4 * head + 4));
    value.copy_from(concatenate(rows, 0));
  }
  CHECK(largest_difference(logits(*grouped), logits(*full)) <= 1e-12);
  refusal({{"kv_heads", "3"}}).names("attention").value(3).names("heads").value(4);
}

TEST_CASE("decoder: heads of any size, cached or not") {
  for (const char* attention : {"softmax", "rela", "relu_former", "pointwise(relu, gate=silu)", "softmax(persistent=3)",
                                "linear", "softmax(span=adaptive_span(4), qk_norm=rms)"}) {
    CAPTURE(attention);
    const auto model = made(small({{"head_size", "6"}, {"heads", "3"}, {"attention", attention}}));
    CHECK(values_of(*model).at("blocks.0.attention.output.weight").shape() == Shape{16, 18});
    const Tensor whole = logits(*model).detach();
    sum(logits(*model)).backward();
    const NoGrad guard;
    nn::Cache cache = model->make_cache();
    for (int64_t i = 0; i < 6; ++i) {
      nn::ForwardPass pass;
      pass.cache = &cache;
      const Tensor one = (*model)(slice(tokens, 1, i, i + 1), pass);
      CHECK(largest_difference(one, slice(whole, 1, i, i + 1)) <= 1e-12);
    }
  }
  refusal({{"heads", "3"}, {"position", "none"}}).names("heads").value(3).names("width").value(16).offers("head_size");
  refusal({{"head_size", "4"}, {"attention", "gau"}}).names("gau").names("head_size").offers(0);
}

TEST_CASE("decoder: every position accepts a separate head size") {
  for (const char* position : {"relative", "relative(8, bias)", "rotary", "alibi"}) {
    CAPTURE(position);
    const auto model = made(small({{"head_size", "6"}, {"heads", "3"}, {"kv_heads", "1"}, {"position", position}}));
    CHECK(logits(*model).shape() == Shape{2, 6, 11});
  }
}

TEST_CASE("decoder: an untied output head, and its bias") {
  const auto tied = made(small()), own = made(small({{"tied_head", "no"}, {"head_bias", "yes"}}));
  ByPath to = values_of(*own);
  for (const auto& [path, value] : values_of(*tied)) to.at(path).copy_from(value);
  CHECK(std_of(to.at("head.weight")) > 0.01);
  to.at("head.weight").copy_from(to.at("token_embedding.weight").detach());
  CHECK(largest_difference(logits(*own), logits(*tied)) == 0);
  const Tensor bias = orrery::testing::random_tensor({11}, 3);
  to.at("head.bias").copy_from(bias);
  CHECK(largest_difference(logits(*own), logits(*tied) + bias) <= 1e-14);
}

TEST_CASE("decoder: biases of attention, feed-forward and head are separate; `bias` sets the first two") {
  const auto biases = [](const std::vector<std::pair<std::string, std::string>>& changes) {
    std::string found;
    Gpt model(small(changes));
    for (const nn::NamedParameter& p : nn::parameters_of(model))
      if (p.path.ends_with(".bias") && p.path.find("norm") == std::string::npos &&
          p.path.find(".1.") == std::string::npos)
        found += p.path + " ";
    return found;
  };
  const std::string attention = "blocks.0.attention.query_key_value.bias blocks.0.attention.output.bias ",
                    feed_forward = "blocks.0.feed_forward.input.bias blocks.0.feed_forward.output.bias ";
  CHECK(biases({}).empty());
  CHECK(biases({{"bias", "yes"}}) == attention + feed_forward);
  CHECK(biases({{"attention_bias", "yes"}}) == attention);
  CHECK(biases({{"bias", "yes"}, {"attention_bias", "no"}}) == feed_forward);
  CHECK(biases({{"feed_forward_bias", "yes"}, {"head_bias", "yes"}}) == feed_forward + "head.bias ");
}

TEST_CASE("decoder: queries and keys may have biases without the others, which are added to the projections") {
  // Grouped-query attention: 4 query heads, 2 kv_heads, 4 channels each.
  const auto apart = made(small({{"attention_bias", "query_key"}, {"kv_heads", "2"}})),
             whole = made(small({{"attention_bias", "yes"}, {"kv_heads", "2"}}));
  ByPath few = values_of(*apart), all = values_of(*whole);
  CHECK(!few.contains("blocks.0.attention.output.bias"));
  CHECK(largest_difference(logits(*apart), logits(*whole)) == 0);  // biases start at 0
  for (const char* const block : {"blocks.0.attention.", "blocks.1.attention."}) {
    const Tensor query = few.at(std::string(block) + "query_bias"), key = few.at(std::string(block) + "key_bias");
    CHECK(query.shape() == Shape{16});
    CHECK(key.shape() == Shape{8});
    query.copy_from(orrery::testing::random_tensor({16}, 1)), key.copy_from(orrery::testing::random_tensor({8}, 2));
    all.at(std::string(block) + "query_key_value.bias")
        .copy_from(concatenate({query.detach(), key.detach(), Tensor::zeros({8}, Dtype::f64)}, 0));
  }
  CHECK(largest_difference(logits(*apart), logits(*whole)) <= 1e-12);
}

TEST_CASE("decoder: three normalizations, each with its own alpha") {
  auto model = made(small({{"normalization", "dyt(alpha=1)"},
                           {"attention_normalization", "dyt(alpha=3)"},
                           {"final_normalization", "dyt(alpha=0.25)"}}));
  ByPath all = values_of(*model);
  CHECK(all.at("blocks.1.attention_norm.alpha").item() == 3);
  CHECK(all.at("blocks.1.feed_forward_norm.alpha").item() == 1);
  CHECK(all.at("norm.alpha").item() == 0.25);
  model = made(small({{"feed_forward_normalization", "none"}}));
  CHECK(values_of(*model).contains("blocks.0.attention_norm.weight"));
  CHECK(!values_of(*model).contains("blocks.0.feed_forward_norm.weight"));
  Message message = refusal({{"parallel", "yes"}, {"feed_forward_normalization", "rms"}});
  message.names("parallel=yes").names("feed_forward_normalization").offers("same").value("rms");
}

TEST_CASE("decoder: the embedding scale is a number, sqrt(width) or learned; former values are still accepted") {
  const auto scaled = [](const char* text) { return made(small({{"embedding_scale", text}, {"dropout", "0"}})); };
  CHECK(values_of(*scaled("learned")).at("embedding_scale").item() == 4);
  CHECK(values_of(*scaled("learned(2.5)")).at("embedding_scale").item() == 2.5);
  CHECK(!values_of(*scaled("2.5")).contains("embedding_scale"));
  CHECK(largest_difference(logits(*scaled("2.5")), logits(*scaled("learned(2.5)"))) == 0);
  CHECK(largest_difference(logits(*scaled("sqrt_width")), logits(*scaled("learned"))) == 0);
  CHECK(largest_difference(logits(*scaled("1")), logits(*scaled("none"))) == 0);
  refusal({{"embedding_scale", "0"}}).names("embedding_scale").value(0).offers("1e-6").offers("1e6");
  refusal({{"embedding_scale", "none(1)"}}).names("embedding_scale").value("none(1)").offers("none").offers("number");
}

TEST_CASE("decoder: initial weights have the standard deviation of the setting") {
  const auto check_starts = [](const char* text, double inner, double residual_output, double table) {
    CAPTURE(text);
    GptSettings s = small({{"initialization", text}, {"position", "learned"}, {"tied_head", "no"}});
    s.width = 64, s.vocabulary = 200, s.context = 50;
    const auto model = made(s);
    ByPath all = values_of(*model);
    CHECK(near(std_of(all.at("blocks.0.attention.query_key_value.weight")), inner));
    CHECK(near(std_of(all.at("blocks.1.attention.output.weight")), residual_output));
    CHECK(near(std_of(all.at("token_embedding.weight")), table));
    CHECK(near(std_of(all.at("position_embedding.weight")), table));
    CHECK((std_of(all.at("head.weight")) > 0) == (residual_output > 0));
  };
  check_starts("0.02", 0.02, 0.01, 0.02);  // 0.02 / sqrt(2 * 2 layers)
  check_starts("0.3", 0.3, 0.15, 0.3);
  check_starts("inverse_sqrt_width", 0.125, 0.0625, 0.125);
  check_starts("normal(inverse_sqrt_width)", 0.125, 0.125, 0.125);
  check_starts("fixup(0.3)", 0.15, 0, 0.3);  // 0.3 / sqrt(2 * 2 layers)
  check_starts("relu_revival", 0.02, 0.02, 0.02);
  check_starts("adaptive_span", 0.125 / std::sqrt(3.0), 0.125 / std::sqrt(3.0), 1);
  check_starts("fan_in", 0.125 / std::sqrt(3.0), 0.125 / std::sqrt(3.0), 1);
  check_starts("relu_former", 0.125, 0.125, 0.125);  // 2 / (64 + 64)
  GptSettings of_vision = small({{"initialization", "relu_vision"}, {"position", "learned"}, {"tied_head", "no"}});
  of_vision.width = 64, of_vision.context = 50;
  ByPath all = values_of(*made(of_vision));
  CHECK(near(std_of(all.at("blocks.1.attention.output.weight")), 0.125));
  CHECK(near(std_of(all.at("position_embedding.weight")), 0.125));
  CHECK(std_of(all.at("head.weight")) == 0);
  refusal({{"initialization", "0"}}).names("initialization").value(0).offers("1e-6").offers(1000);
  refusal({{"initialization", "relu_revial"}}).names("initialization").value("relu_revial").offers("'relu_revival'");
  refusal({{"initialization", "normal"}}).names("initialization").value("'normal'").offers("normal(0.02)");
  refusal({{"initialization", "relu_revival(1)"}}).value("relu_revival(1)").offers("normal(...)").offers("fixup(...)");
}

TEST_CASE("decoder: the gradient of a parameter that all layers share is the sum over the layers") {
  for (const char* kind : {"dense(leaky_relu_learned)", "gated(leaky_relu_learned)", "memory(leaky_relu_learned)"}) {
    CAPTURE(kind);
    const auto apart = made(small({{"feed_forward", kind}})),
               shared = made(small({{"feed_forward", kind}, {"shared_activation", "yes"}}));
    ByPath to = values_of(*shared), from = values_of(*apart);
    CHECK(from.size() == to.size() + 1);
    for (const auto& [path, value] : to)
      if (path != "activation") value.copy_from(from.at(path).detach());
    CHECK(to.at("activation").item() == doctest::Approx(0.01));
    const Tensor one = logits(*apart), other = logits(*shared);
    CHECK(largest_difference(one, other) == 0);
    sum(one * one).backward(), sum(other * other).backward();
    const double sum_of_both = from.at("blocks.0.feed_forward.activation").grad().item() +
                               from.at("blocks.1.feed_forward.activation").grad().item();
    CHECK(to.at("activation").grad().item() == doctest::Approx(sum_of_both));
  }
  Message message = refusal({{"shared_activation", "yes"}});
  message.names("shared_activation").names("feed_forward").offers("dense(leaky_relu_learned)");
}
