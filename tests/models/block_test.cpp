// Residual block variants against the formulas of models/architectures/block.h.
#include "models/architectures/block.h"

#include <doctest/doctest.h>

#include <utility>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "models/architectures/gpt.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::largest_difference;
using orrery::testing::random_tensor;

namespace {

BlockOptions options() {
  BlockOptions o;
  o.width = 8, o.heads = 2, o.d_ff = 12, o.bias = true;
  return o;
}
// Makes a block in f64 with every parameter away from its initial value.
std::unique_ptr<Block> make(const BlockOptions& o) {
  auto block = std::make_unique<Block>(o);
  nn::name_paths(*block);
  nn::initialize(*block, 1);
  nn::convert(*block, Dtype::f64);
  int seed = 10;
  for (const nn::NamedParameter& p : nn::parameters_of(*block))
    p.parameter->value.copy_from(p.parameter->value.detach() + random_tensor(p.parameter->value.shape(), ++seed) * 0.3);
  return block;
}
Tensor parameter(nn::Module& module, const std::string& path) {
  for (const nn::NamedParameter& p : nn::parameters_of(module))
    if (p.path == path) return p.parameter->value;
  FAIL("no parameter " << path);
  return {};
}
// Applies a separate module that has the block's parameters.
template <class M>
Tensor apply(std::unique_ptr<M> part, Block& block, const std::string& path, const Tensor& x) {
  nn::convert(*part, Dtype::f64);
  for (const nn::NamedParameter& p : nn::parameters_of(*part))
    p.parameter->value.copy_from(parameter(block, path + "." + p.path));
  nn::ForwardPass pass;
  return (*part)(x, pass);
}
struct Parts {
  BlockOptions o;
  Block& block;
  Tensor attention(const Tensor& x) const {
    return apply(nn::make_attention(o.attention, {.width = 8, .heads = 2, .bias = true}), block, "attention", x);
  }
  Tensor feed_forward(const Tensor& x) const {
    return apply(nn::make_feed_forward(o.feed_forward, {.width = 8, .d_ff = 12, .bias = true}), block, "feed_forward",
                 x);
  }
  Tensor norm(const std::string& name, const Tensor& x) const {
    return apply(nn::make_normalization(o.normalization, {.width = 8}), block, name, x);
  }
};
Tensor run(Block& block, const Tensor& x) {
  nn::ForwardPass pass;
  return block(x, pass);
}
const Tensor x = random_tensor({2, 5, 8}, 1);

}  // namespace

TEST_CASE("block: pre-norm, post-norm and parallel follow the formulas of the header") {
  BlockOptions o = options();
  {
    const auto block = make(o);
    const Parts p{o, *block};
    const Tensor read = x + p.attention(p.norm("attention_norm", x));
    CHECK(largest_difference(run(*block, x), read + p.feed_forward(p.norm("feed_forward_norm", read))) <= 1e-13);
  }
  o.norm_place = "post";
  {
    const auto block = make(o);
    const Parts p{o, *block};
    const Tensor read = p.norm("attention_norm", x + p.attention(x));
    CHECK(largest_difference(run(*block, x), p.norm("feed_forward_norm", read + p.feed_forward(read))) <= 1e-13);
  }
  o.norm_place = "pre", o.parallel = true;
  {
    const auto block = make(o);
    const Parts p{o, *block};
    const Tensor input = p.norm("norm", x);
    CHECK(largest_difference(run(*block, x), x + p.attention(input) + p.feed_forward(input)) <= 1e-13);
  }
}

TEST_CASE("block: residual gain, feed-forward divisor and residual follow the header, fixed or learned") {
  BlockOptions o = options();
  for (const bool learned : {false, true}) {
    INFO("learned ", learned);
    o.residual_gain = {0.5, learned}, o.feed_forward_divisor = {4, learned}, o.feed_forward_residual = {0.75, learned};
    const auto block = make(o);
    const Parts p{o, *block};
    const auto number = [&](const char* path, double fixed) {
      return learned ? parameter(*block, path).item() : fixed;
    };
    const Tensor read = x + p.attention(p.norm("attention_norm", x)) * number("attention_gain", 0.5);
    const Tensor fed = p.feed_forward(p.norm("feed_forward_norm", read)) * number("feed_forward_gain", 0.5);
    const double divisor = number("feed_forward_divisor", 4), residual = number("feed_forward_residual", 0.75);
    const Tensor y = run(*block, x);
    CHECK(largest_difference(y, read * residual + fed / divisor) <= 1e-13);
    if (!learned) continue;
    const Tensor g = random_tensor(y.shape(), 7);
    backward(y, g);
    CHECK(parameter(*block, "feed_forward_divisor").grad().item() ==
          doctest::Approx(-sum(g * fed).item() / (divisor * divisor)));
    CHECK(parameter(*block, "feed_forward_residual").grad().item() == doctest::Approx(sum(g * read).item()));
  }
}

TEST_CASE("block: SkipInit starts as the identity, and only the gains have a non-zero gradient") {
  BlockOptions o = options();
  o.residual_gain = {0, true};
  Block block(o);
  nn::name_paths(block);
  nn::initialize(block, 1);
  const Tensor in = x.to(Dtype::f32);
  const Tensor y = run(block, in);
  CHECK(largest_difference(y, in) == 0);
  backward(y, random_tensor(y.shape(), 3, Dtype::f32));
  for (const nn::NamedParameter& p : nn::parameters_of(block)) {
    INFO(p.path);
    CHECK((sum(abs(p.parameter->value.grad())).item() > 0) == p.path.ends_with("_gain"));
    if (p.path.ends_with("_gain")) CHECK(!p.parameter->decay);
  }
}

TEST_CASE("block: with default settings the sublayer adds the residual itself") {
  const auto plain = make(options());
  CHECK(std::string(run(*plain, x).impl()->edge.node->name) == "dense_feed_forward");
  BlockOptions o = options();
  o.normalization = parse_spec("none");
  const auto bare = make(o);
  const Parts p{o, *bare};
  const Tensor read = x + p.attention(x);
  CHECK(largest_difference(run(*bare, x), read + p.feed_forward(read)) <= 1e-13);
  CHECK(std::string(run(*bare, x).impl()->edge.node->name) == "dense_feed_forward");
}

TEST_CASE("block: invalid pairs of settings have error messages") {
  BlockOptions o = options();
  const auto refused = [&] {
    const BlockOptions wrong = std::exchange(o, options());
    return expect_error([&] { Block{wrong}; });
  };
  o.norm_place = "middle";
  refused().names("norm_place").value("middle").offers("pre").offers("post");
  o.norm_place = "post", o.parallel = true;
  refused().names("parallel=yes").value("norm_place=post").offers("choose one");
  o.parallel = true, o.feed_forward_divisor = {2};
  refused().names("feed_forward_divisor").names("feed_forward_residual").value("parallel=yes");
  o.feed_forward = parse_spec("none"), o.feed_forward_residual = {1, true};
  refused().names("feed_forward_divisor").names("feed_forward_residual").value("feed_forward=none");
  o.feed_forward_divisor = {0, true};
  refused().names("feed_forward_divisor").value(0).offers(1);
  o.normalization = parse_spec("group(4, over=sequence)");
  refused().names("group(4, over=sequence)").value("causal").offers("over=token");
}

TEST_CASE("block: a block without a feed-forward has one sublayer and one normalization") {
  BlockOptions o = options();
  o.feed_forward = parse_spec("none"), o.norm_place = "post";
  const auto block = make(o);
  const Parts p{o, *block};
  CHECK(largest_difference(run(*block, x), p.norm("attention_norm", x + p.attention(x))) <= 1e-13);
}

TEST_CASE("gpt: the final normalization has its own setting, and the embedding may be scaled") {
  GptSettings s;
  s.layers = 1, s.heads = 2, s.width = 16, s.context = 4, s.vocabulary = 7;
  const auto paths = [&] {
    Gpt model(s);
    std::string all;
    for (const nn::NamedParameter& p : nn::parameters_of(model)) all += p.path + " ";
    return all;
  };
  s.normalization = parse_spec("none");
  CHECK(paths().find("norm") == std::string::npos);
  s.final_normalization = parse_spec("rms");
  CHECK(paths().find(" norm.weight ") != std::string::npos);
  CHECK(paths().find("attention_norm") == std::string::npos);
  s.normalization = parse_spec("dyt"), s.final_normalization = parse_spec("same");
  CHECK(paths().find(" norm.alpha ") != std::string::npos);
  CHECK(paths().find("embedding_scale") == std::string::npos);
  s.embedding_scale = parse_spec("learned");
  Gpt model(s);
  nn::initialize(model, 1);
  Tensor scale = parameter(model, "embedding_scale");
  CHECK(scale.item() == 4);  // sqrt(16)
  const Tensor tokens = Tensor::from({1, 4}, std::vector<int32_t>{1, 5, 0, 6});
  nn::ForwardPass pass;
  const Tensor four = model(tokens, pass);
  scale.copy_from(Tensor::full({1}, 1));
  CHECK(largest_difference(four, model(tokens, pass)) > 1e-3);
}

TEST_CASE("gpt: every normalization gives finite, non-zero gradients to every parameter") {
  GptSettings s;
  s.layers = 2, s.heads = 2, s.width = 16, s.context = 6, s.vocabulary = 7;
  const Tensor tokens = Tensor::from({2, 6}, std::vector<int32_t>{1, 5, 0, 6, 2, 2, 4, 1, 3, 0, 5, 6});
  for (const std::string& name : nn::normalizations().names())
    for (const char* norm_place : {"pre", "post"}) {
      INFO(name, " ", norm_place);
      s.normalization = parse_spec(name), s.norm_place = norm_place;
      Gpt model(s);
      nn::initialize(model, 1);
      nn::ForwardPass pass;
      pass.training = true;
      const Tensor logits = model(tokens, pass);
      backward(logits, random_tensor(logits.shape(), 3, Dtype::f32));
      for (const nn::NamedParameter& p : nn::parameters_of(model)) {
        INFO(p.path);
        const double size = sum(abs(p.parameter->value.grad())).item();
        CHECK(std::isfinite(size));
        CHECK(size > 0);
      }
    }
}
