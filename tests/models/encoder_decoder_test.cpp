// The encoder-decoder: gradients of the whole model, padding, the cache, and errors.
#include "models/architectures/encoder_decoder.h"

#include <doctest/doctest.h>

#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "tests/support/errors.h"
#include "tests/support/golden.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"
#include "tests/support/small_translator.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

// Compares backward with a finite difference along one direction of each parameter.
void check_derivatives(const EncoderDecoderSettings& settings, const std::set<std::string, std::less<>>& losses = {}) {
  const auto model = make_translator(settings);
  const PairBatch batch = testing::batch_of(small_pairs());
  const auto loss = [&] {
    nn::ForwardPass pass;
    pass.training = true, pass.requested_losses = losses, pass.rng = RandomKey{1, 2};
    return loss_of(*model, batch, pass);
  };
  loss().backward();
  const NoGrad guard;
  for (const nn::NamedParameter& p : nn::parameters_of(*model)) {
    INFO(p.path);
    const Tensor& value = p.parameter->value;
    REQUIRE(value.grad());
    const Tensor direction = random_tensor(value.shape(), 5), before = value.detach() * 1.0;
    const double derivative = sum(value.grad() * direction).item();
    constexpr double h = 1e-6;
    value.detach().copy_from(before + direction * h);
    const double above = loss().item();
    value.detach().copy_from(before - direction * h);
    const double below = loss().item();
    value.detach().copy_from(before);
    CHECK((above - below) / (2 * h) == doctest::Approx(derivative).epsilon(2e-6).scale(0.1));
  }
}

}  // namespace

TEST_CASE("encoder-decoder: backward agrees with finite differences of the loss, for each parameter") {
  EncoderDecoderSettings s = small_translator();
  check_derivatives(s);
  s.norm_place = "post", s.shared_embedding = false, s.tied_head = false, s.embedding_scale = parse_spec("learned");
  s.position = parse_spec("learned"), s.dropout = 0.2;
  check_derivatives(s);
  check_derivatives(small_translator("relu_former(gamma=1.3)"), {"normalization_loss", "entropy_margin_loss"});
  s = small_translator("pointwise(gelu)", "rotary");
  s.cross_attention = parse_spec("relu_former"), s.decoder_attention = parse_spec("softmax(qk_norm=rms)");
  s.feed_forward = parse_spec("gated(silu)"), s.normalization = parse_spec("dyt");
  check_derivatives(s, {"normalization_loss"});
}

TEST_CASE("encoder-decoder: logits, loss and gradients equal those of torch.nn.Transformer") {
  const Golden golden("encoder_decoder.safetensors");
  for (const std::string norm_place : {"pre", "post"}) {
    EncoderDecoderSettings s = small_translator();
    s.layers = 1, s.d_ff = 16, s.norm_place = norm_place, s.final_normalization = parse_spec("layer");
    const auto model = make_translator(s);
    const std::vector<nn::NamedParameter> parameters = nn::parameters_of(*model);
    for (const nn::NamedParameter& p : parameters)
      p.parameter->value.detach().copy_from(golden(norm_place + "." + p.path));
    const PairBatch batch = testing::batch_of(small_pairs());
    nn::ForwardPass pass, again;
    const Tensor logits = logits_of(*model, batch, pass), expected = golden(norm_place + ".logits");
    for (int64_t row = 0; row < 3; ++row) {  // skips outputs at padding
      const int64_t length = batch.target_lengths.data<int32_t>()[row];
      CHECK(largest_difference(slice(logits[row], 0, 0, length), slice(expected[row], 0, 0, length)) <= 1e-12);
    }
    const Tensor loss = loss_of(*model, batch, again);
    CHECK(loss.item() == doctest::Approx(golden(norm_place + ".loss").item()).epsilon(1e-12));
    loss.backward();
    for (const nn::NamedParameter& p : parameters) {
      INFO(norm_place, " ", p.path);
      CHECK(largest_difference(p.parameter->value.grad(), golden(norm_place + ".gradient." + p.path)) <= 1e-12);
    }
    CHECK(golden.all().size() == 2 * (2 * parameters.size() + 2));
  }
}

TEST_CASE("encoder-decoder: the logits of a pair depend neither on the batch nor on padding") {
  for (const std::string& attention : nn::attentions().names()) {
    INFO(attention);
    const NoGrad guard;
    const auto model = make_translator(small_translator(attention));
    const std::vector<Pair> pairs = small_pairs();
    nn::ForwardPass together;
    const Tensor all = logits_of(*model, testing::batch_of(pairs), together);
    for (size_t i = 0; i < pairs.size(); ++i) {
      nn::ForwardPass alone;
      const Tensor one = logits_of(*model, testing::batch_of({pairs[i]}), alone);
      const auto row = static_cast<int64_t>(i);
      CHECK(largest_difference(slice(slice(all, 0, row, row + 1), 1, 0, one.size(1)), one) <= 1e-12);
    }
  }
}

TEST_CASE("encoder-decoder: padding does not count in ReLUFormer's row losses") {
  const auto model = make_translator(small_translator("relu_former"));
  const std::vector<Pair> pairs = {small_pairs()[0], small_pairs()[0]};
  const auto extra = [&](const PairBatch& batch) {
    nn::ForwardPass pass;
    pass.requested_losses = {"normalization_loss", "entropy_margin_loss"};
    static_cast<void>(logits_of(*model, batch, pass));
    std::vector<double> values;
    for (const nn::ForwardPass::Loss& one : pass.losses) values.push_back(one.value.item());
    return values;
  };
  const std::vector<double> whole = extra(testing::batch_of({pairs[0]}));
  CHECK(whole.size() == 2 * 2 * 3);  // two losses, two layers, three attentions
  PairBatch padded_batch = testing::batch_of(pairs);
  const auto with_padding = [](const Tensor& x) {
    return concatenate({x.to(Dtype::f64), Tensor::full(Shape{x.size(0), 3}, 1, Dtype::f64)}, 1).to(Dtype::i32);
  };
  padded_batch.sources = with_padding(padded_batch.sources), padded_batch.inputs = with_padding(padded_batch.inputs);
  const std::vector<double> found = extra(padded_batch);
  REQUIRE(found.size() == whole.size());
  for (size_t i = 0; i < whole.size(); ++i) CHECK(found[i] == doctest::Approx(whole[i]).epsilon(1e-12));
}

TEST_CASE("encoder-decoder: steps through a cache equal the full pass, for every attention and position") {
  int made = 0;
  for (const std::string& attention : nn::attentions().names())
    for (const char* position : {"sinusoidal(scale=1)", "learned", "rotary", "relative", "alibi", "none"}) {
      INFO(attention, " with ", position);
      std::unique_ptr<EncoderDecoder> model;
      try {
        model = make_translator(small_translator(attention, position));
      } catch (const Error&) {
        Message(error_of([&] { make_translator(small_translator(attention, position)); })).names(attention + ":");
        continue;
      }
      ++made;
      const NoGrad guard;
      const PairBatch batch = testing::batch_of(small_pairs());
      nn::ForwardPass whole;
      model->encode(batch.sources, batch.source_lengths, whole);
      const Tensor logits = (*model)(batch.inputs, whole);
      nn::Cache cache;
      nn::ForwardPass steps;
      steps.cache = &cache;
      model->encode(batch.sources, batch.source_lengths, steps);
      std::vector<Tensor> parts;
      for (int64_t t = 0; t < batch.inputs.size(1); ++t)
        parts.push_back((*model)(slice(batch.inputs, 1, t, t + 1), steps));
      CHECK(cache.length == batch.inputs.size(1));
      CHECK(largest_difference(concatenate(parts, 1), logits) <= 1e-12);
    }
  CHECK(made >= 40);
}

TEST_CASE("encoder-decoder: keys and values of the source are computed once") {
  const NoGrad guard;
  const auto model = make_translator(small_translator());
  const PairBatch batch = testing::batch_of(small_pairs());
  nn::Cache cache;
  nn::ForwardPass pass;
  pass.cache = &cache;
  model->encode(batch.sources, batch.source_lengths, pass);
  const Tensor first = (*model)(slice(batch.inputs, 1, 0, 1), pass);
  pass.encoder_output = Tensor::zeros_like(pass.encoder_output);  // not read again: the cache holds its keys and values
  const Tensor second = (*model)(slice(batch.inputs, 1, 1, 2), pass);
  nn::ForwardPass whole;
  model->encode(batch.sources, batch.source_lengths, whole);
  CHECK(largest_difference(second, slice((*model)(batch.inputs, whole), 1, 1, 2)) <= 1e-12);
}

TEST_CASE("encoder-decoder: settings that do not fit together are errors") {
  const auto refusal = [](const auto& change) {
    EncoderDecoderSettings s = small_translator();
    change(s);
    return expect_error([&] { EncoderDecoder model(s); });
  };
  using Sizes = EncoderDecoderSettings;
  for (const auto size : {&Sizes::layers, &Sizes::heads, &Sizes::width, &Sizes::context})
    refusal([&](auto& s) { s.*size = 0; }).names("encoder_decoder").value(0).offers(1);
  refusal([](auto& s) { s.vocabulary = 0; }).names("vocabulary").value(0).offers(1);
  refusal([](auto& s) { s.heads = 3; }).names("heads").value(3).names("width").value(8).offers("head_size");
  refusal([](auto& s) { s.cross_attention = parse_spec("gau"); }).names("gau:").value("cross attention");
  const auto over_sequence = [](auto& s) { s.normalization = parse_spec("group(2, over=sequence)"); };
  refusal(over_sequence).names("over=sequence").value("causal").offers("over=token");
  EncoderDecoder model(small_translator());
  nn::initialize(model, 1);
  nn::ForwardPass pass;
  const Tensor two = Tensor::zeros(Shape{1, 2}, Dtype::i32), many = Tensor::zeros(Shape{1, 13}, Dtype::i32);
  expect_error([&] { model(two, pass); }).names("encoder_decoder").names("source").offers("--task=translation");
  expect_error([&] { model.encode(many, {}, pass); }).value("(1, 13)").offers(12).offers("context");
}
