// The stream model: its cached states, their effect, and their cost.
#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "engine/attention/work.h"
#include "engine/autograd/autograd.h"
#include "engine/checks/gradient_check.h"
#include "engine/ops/ops.h"
#include "models/architectures/stream_model.h"
#include "models/tasks/base/task.h"
#include "models/tasks/span_report.h"
#include "models/training/generation.h"
#include "models/training/settings.h"
#include "nn/losses/base/loss.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::largest_difference;
using orrery::testing::random_tensor;

namespace {

constexpr int64_t vocabulary = 9;

StreamSettings settings_with(const std::string& attention, int64_t cache_length) {
  StreamSettings s;
  s.layers = 2, s.heads = 2, s.width = 16, s.context = 8, s.cache_length = cache_length, s.vocabulary = vocabulary;
  s.attention = parse_spec(attention), s.feed_forward = parse_spec("dense(gelu_tanh)");
  return s;
}
// Makes a model in f64; `fraction` is the fraction of their range at which spans start.
std::unique_ptr<StreamModel> make(const StreamSettings& settings, double fraction = 0.5) {
  auto model = std::make_unique<StreamModel>(settings);
  nn::convert(*model, Dtype::f64);
  nn::initialize(*model, 3);
  for (const nn::NamedParameter& p : nn::parameters_of(*model)) {
    if (p.path.ends_with("span.share")) nn::fill(p.parameter->value, nn::constant(fraction), {});
    if (p.path.find("query_key_value") != std::string::npos)
      nn::fill(p.parameter->value, nn::normal(0.4), RandomKey{9, 1}.derive(p.path));
  }
  return model;
}
Tensor some_tokens(int64_t batch, int64_t time) {
  std::vector<int32_t> numbers(static_cast<size_t>(batch * time));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>((i * i + i * i / 7 + 1) % vocabulary);
  return Tensor::from({batch, time}, numbers);
}
Tensor read(StreamModel& model, const Tensor& tokens, nn::Cache* cache = nullptr) {
  nn::ForwardPass pass;
  pass.cache = cache;
  return model(tokens, pass);
}
Tensor in_blocks(StreamModel& model, const Tensor& tokens, const std::vector<int64_t>& sizes, nn::Cache cache) {
  std::vector<Tensor> logits;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    logits.push_back(read(model, slice(tokens, 1, begin, begin + size), &cache));
    CHECK(cache.length == (begin += size));
  }
  return concatenate(logits, 1);
}

}  // namespace

TEST_CASE("stream: block by block with cached states, a text has the logits of one pass") {
  const NoGrad guard;
  const Tensor tokens = some_tokens(2, 300);
  const std::vector<int64_t> blocks = {10, 64, 1, 100, 25, 100};
  for (const char* attention : {"softmax(span=fixed(70))", "softmax(span=fixed(70), attend_to_self=yes)",
                                "softmax(span=adaptive_span(150, R=10))", "softmax(span=dynamic_span(40, R=10))",
                                "softmax(span=adaptive_span(150, R=10), persistent=5, qk_norm=rms)",
                                "pointwise(relu, length=keys_visible, span=adaptive_span(150, R=10))"})
    for (const char* norm_place : {"post", "pre"}) {
      INFO(attention, " ", norm_place);
      StreamSettings settings = settings_with(attention, 150);
      settings.norm_place = norm_place, settings.bias = true;
      const auto model = make(settings);
      const Tensor whole = read(*model, tokens);
      CHECK(largest_difference(in_blocks(*model, tokens, blocks, empty_stream_state()), whole) <= 1e-12);
      CHECK(largest_difference(in_blocks(*model, tokens, blocks, {}), whole) <=
            1e-12);  // cached keys, as in generation
      CHECK(largest_difference(slice(whole, 1, 100, 200), read(*model, slice(tokens, 1, 100, 200))) > 1e-3);
    }
}

TEST_CASE("stream: cached states are limited to the reach of a span, with a margin for a span that grows") {
  const NoGrad guard;
  StreamSettings settings = settings_with("softmax(span=adaptive_span(512, R=10))", 512);
  settings.layers = 1;  // the attention's inputs are embeddings, which do not depend on spans
  const auto model = make(settings, 0.125);
  const Tensor tokens = some_tokens(1, 1010);
  nn::Cache cache = empty_stream_state();
  read(*model, slice(tokens, 1, 0, 1000), &cache);
  const nn::Cache::Entry& entry = cache.entries.at("blocks.0.attention");
  CHECK(!entry.key);
  // z = 64 with R = 10: the ramp ends at distance 75; 64 more are kept, from a multiple of 64.
  CHECK(entry.states.shape() == Shape{1, 1000 - (1000 - 75 - 64) / 64 * 64, 16});
  for (const nn::NamedParameter& p : nn::parameters_of(*model))
    if (p.path.ends_with("span.share")) nn::fill(p.parameter->value, nn::constant(0.2), {});
  const Tensor whole = read(*model, tokens), next = read(*model, slice(tokens, 1, 1000, 1010), &cache);
  CHECK(largest_difference(next, slice(whole, 1, 1000, 1010)) <= 1e-12);
}

TEST_CASE("stream: dropping keys beyond a span in steps of 64 leaves results bit-identical") {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    const auto numbers = [&](const Shape& shape, int seed) { return random_tensor(shape, seed).to(dtype); };
    constexpr int64_t keys = 320, queries = 64, kept = 128, heads = 2, size = 16;
    const Tensor query = numbers({2, queries, heads, size}, 1), key = numbers({2, keys, heads, size}, 2),
                 value = numbers({2, keys, heads, size}, 3), distance = numbers({257, size}, 4);
    const Tensor span = Tensor::from({heads}, {20.5, 31.0}, dtype);
    const auto output = [&](int64_t from) {
      const AttentionOptions options{
          .mask = {.attend_to_self = false, .query_offset = keys - queries - from, .window = 257},
          .scale = 0.25,
          .ramp = 32};
      return nn::attention({.query = query,
                            .key = slice(key, 1, from, keys),
                            .value = slice(value, 1, from, keys),
                            .relative_embedding = distance,
                            .span = span},
                           options)
          .output.to_vector();
    };
    CHECK(output(0) == output(keys - queries - 64));
    CHECK(output(0) == output(kept));
  }
}

TEST_CASE("stream: gradients of a whole model with cached states agree with finite differences") {
  for (const char* attention : {"softmax(span=adaptive_span(6, R=3), persistent=3)", "softmax(span=fixed(5))",
                                "softmax(span=dynamic_span(6, R=3))"}) {
    INFO(attention);
    StreamSettings settings = settings_with(attention, 6);
    settings.width = 8, settings.bias = true;
    const std::shared_ptr<StreamModel> model = make(settings, 0.43);
    nn::Cache before = empty_stream_state();
    {
      const NoGrad guard;
      read(*model, some_tokens(2, 7), &before);
    }
    const std::vector<nn::NamedParameter> parameters = nn::parameters_of(*model);
    GradientCase test{.inputs = {}, .fast = {}, .reference = {}, .finite_differences = 12};
    for (const nn::NamedParameter& p : parameters) test.inputs.push_back({p.path, p.parameter->value.detach()});
    test.fast = [&](const std::vector<Tensor>& in) {
      for (size_t i = 0; i < in.size(); ++i) parameters[i].parameter->value = in[i];
      nn::Cache cache = before;
      nn::ForwardPass pass;
      pass.cache = &cache;
      if (settings.attention.items[0].value.name != "fixed") pass.requested_losses.insert("span_penalty");
      Tensor total = nn::cross_entropy((*model)(some_tokens(2, 4), pass), some_tokens(2, 4));
      for (const nn::ForwardPass::Loss& loss : pass.losses) total = total + loss.value;
      return total;
    };
    const GradientReport report = check_gradients(test);
    for (const GradientRow& row : report.rows) {
      INFO(row.input, " ", row.worst_explicit, " ", row.worst_finite_difference);
      CHECK(row.finite_difference_error < 1e-7);
    }
    CHECK(report.rows.size() == parameters.size());
  }
}

TEST_CASE("stream: weights that project cached states get gradients from them, and the states get none") {
  const auto model = make(settings_with("softmax(span=fixed(8))", 8));
  nn::Cache cache = empty_stream_state();
  {
    const NoGrad guard;
    read(*model, some_tokens(1, 8), &cache);
  }
  for (const auto& [path, entry] : cache.entries) CHECK(!entry.states.requires_grad());
  // A token that does not attend to itself: all its keys come from the cache.
  sum(read(*model, some_tokens(1, 1), &cache) * random_tensor({1, 1, vocabulary})).backward();
  for (const nn::NamedParameter& p : nn::parameters_of(*model)) {
    if (p.path != "blocks.0.attention.query_key_value.weight") continue;
    const std::vector<double> g = p.parameter->value.grad().to_vector();
    for (const size_t third : {size_t{0}, g.size() / 3, 2 * (g.size() / 3)})
      CHECK(std::accumulate(g.begin() + static_cast<std::ptrdiff_t>(third),
                            g.begin() + static_cast<std::ptrdiff_t>(third + g.size() / 3), 0.0,
                            [](double total, double x) { return total + std::abs(x); }) > 1e-6);
  }
}

TEST_CASE("stream: a row does not depend on the others of its batch") {
  const NoGrad guard;
  const auto model = make(settings_with("softmax(span=adaptive_span(32, R=8))", 32));
  const Tensor tokens = some_tokens(3, 60);
  const Tensor together = in_blocks(*model, tokens, {20, 20, 20}, empty_stream_state());
  for (int64_t row = 0; row < 3; ++row) {
    const Tensor one = tokens.slice(row, row + 1);
    CHECK(largest_difference(in_blocks(*model, one, {20, 20, 20}, empty_stream_state()),
                             together.slice(row, row + 1)) <= 1e-12);
  }
}

TEST_CASE("stream: shorter spans cost less, and are reported in tokens") {
  const NoGrad guard;
  const auto measured = [&](const std::string& attention, double fraction) {
    const auto model = make(settings_with(attention, 256), fraction);
    const SpanReport spans(*model);
    nn::Cache cache = empty_stream_state();
    int64_t work = 0;
    for (int block = 0; block < 8; ++block) {
      work = attention_multiply_adds();
      read(*model, some_tokens(2, 64), &cache);
      work = attention_multiply_adds() - work;
    }
    Validation found{.loss = 0};
    spans.add_to(found);
    return std::pair(work, found);
  };
  const auto [fixed, of_fixed] = measured("softmax(span=fixed(256))", 0);
  const auto [smallest, of_min] = measured("softmax(span=adaptive_span(256, R=16))", 0);
  const auto [middle, of_middle] = measured("softmax(span=adaptive_span(256, R=16))", 0.25);
  const auto [largest, of_max] = measured("softmax(span=adaptive_span(256, R=16))", 1);
  CHECK(static_cast<double>(smallest) < 0.75 * static_cast<double>(middle));
  CHECK(static_cast<double>(middle) < 0.6 * static_cast<double>(fixed));
  CHECK(largest == fixed);
  using Figures = std::vector<std::pair<std::string, double>>;
  CHECK(of_fixed.metrics == Figures{{"span_mean", 256}, {"span_max", 256}});
  CHECK(of_min.metrics == Figures{{"span_mean", 16}, {"span_max", 16}});
  CHECK(of_middle.metrics == Figures{{"span_mean", 80}, {"span_max", 80}});
  CHECK(of_max.metrics == Figures{{"span_mean", 256}, {"span_max", 256}});
  CHECK(of_middle.details == Figures{{"span.0.mean", 80},
                                     {"span.0.max", 80},
                                     {"span.0.0", 80},
                                     {"span.0.1", 80},
                                     {"span.1.mean", 80},
                                     {"span.1.max", 80},
                                     {"span.1.0", 80},
                                     {"span.1.1", 80}});
  const auto dynamic = measured("softmax(span=dynamic_span(256, R=16))", 0).second;
  CHECK(dynamic.metrics[0].second > 16);
  CHECK(dynamic.metrics[0].second < 32);  // 16 + 256 sigmoid(-4) = 20.6
}

TEST_CASE("stream: parameter counts equal those of the papers") {
  for (const auto& each : {std::pair("adaptive-span-small", 39.0), std::pair("adaptive-span-large", 209.0),
                           std::pair("all-attention-small", 39.0), std::pair("all-attention-large", 114.0)}) {
    const auto& name = each.first;
    const auto& millions = each.second;
    INFO(name);
    CHECK(std::abs(static_cast<double>(presets().at(name).parameters) / 1e6 - millions) < 0.8);
  }
  const int64_t with = presets().at("stream-char-small").parameters,
                without = presets().at("stream-char-all-attention").parameters;
  // 6 layers of 256 slots equal 4 with feed-forwards, except spans and 1 or 2 normalizations each.
  CHECK(with - without == 4 * 4 * 128 - 6 * 2 * 128 - 2 * 4);
  CHECK(with - presets().at("stream-char-fixed").parameters == 4 * 4);  // one span per head
}

TEST_CASE("stream: generation continues beyond the context and equals generation without a cache") {
  const auto model = make(settings_with("softmax(span=adaptive_span(12, R=4))", 12));
  std::vector<int32_t> tokens = {1, 4, 2};
  const std::vector<int32_t> text = generate(*model, tokens, {.tokens = 40, .temperature = 0});
  const NoGrad guard;
  while (tokens.size() < text.size()) {
    const auto length = static_cast<int64_t>(tokens.size());
    const Tensor logits = read(*model, Tensor::from(Shape{1, length}, tokens));
    tokens.push_back(static_cast<int32_t>(argmax(logits[0][length - 1]).item()));
  }
  CHECK(tokens == text);
}

TEST_CASE("stream: the embedding scale is a number, fixed or learned") {
  const NoGrad guard;
  const Tensor tokens = some_tokens(2, 20);
  const auto logits = [&](const char* scale, double factor) {
    StreamSettings s = settings_with("softmax(span=fixed(8))", 16);
    s.embedding_scale = parse_spec(scale);
    const auto model = make(s);
    for (const nn::NamedParameter& p : nn::parameters_of(*model))
      if (p.path == "token_embedding.weight") p.parameter->value.copy_from(p.parameter->value.detach() * factor);
    return read(*model, tokens);
  };
  CHECK(largest_difference(logits("2", 1), logits("none", 2)) <= 1e-12);
  CHECK(largest_difference(logits("learned(2)", 1), logits("none", 2)) <= 1e-12);
  CHECK(largest_difference(logits("none", 1), logits("none", 2)) > 1e-3);
}

TEST_CASE("stream: invalid stream models and caches have error messages") {
  const auto make_with = [](const std::string& attention, const std::string& position = "relative") {
    StreamSettings settings = settings_with(attention, 16);
    settings.position = parse_spec(position);
    StreamModel model(settings);
  };
  const auto refused = [&](const auto&... specs) { return expect_error([&] { make_with(specs...); }); };
  refused("softmax").names("stream").value("attention=softmax").offers("softmax(span=adaptive_span(256))");
  refused("softmax(span=fixed(17))").names("span").value(17).offers("[1, 16]");
  refused("linear(span=fixed(8))").names("linear").value("span=fixed(8)").offers("softmax or pointwise");
  for (const char* position : {"learned", "rotary", "sinusoidal"})
    refused("softmax(span=fixed(8))", position)
        .names("stream")
        .value(text("position=", position))
        .offers("relative, alibi or none");
  refused("softmax(span=fixed(16))", "relative(8)").names("relative(8)").value(8).offers("relative(15)");
  CHECK_NOTHROW(make_with("softmax(span=fixed(8))", "alibi"));

  const auto model = make(settings_with("softmax(span=fixed(8))", 8));
  nn::Cache keys, states = empty_stream_state();
  expect_error([&] { read(*model, some_tokens(1, 3), &keys); }).names("stream").value("cache of keys").offers("NoGrad");
  read(*model, some_tokens(2, 3), &states);
  expect_error([&] { read(*model, some_tokens(1, 3), &states); }).value(1).names("cache").value(2);
}

TEST_CASE("stream: presets of the authors' sizes have biases in feed-forwards only; older settings have no biases") {
  const auto biases = [](const std::string& preset, const std::vector<std::pair<std::string, std::string>>& changes) {
    std::vector<std::pair<std::string, std::string>> all = {{"model", preset},
                                                            {"layers", "1"},
                                                            {"width", "16"},
                                                            {"d_ff", "32"},
                                                            {"cache_length", "16"},
                                                            {"vocabulary", "9"},
                                                            {"attention", "softmax(span=adaptive_span(16))"}};
    all.insert(all.end(), changes.begin(), changes.end());
    std::string found;
    const auto model = make_model(make_settings(all));
    for (const nn::NamedParameter& p : nn::parameters_of(*model))
      if (p.path.ends_with(".bias") && p.path.find("norm") == std::string::npos) found += p.path + " ";
    return found;
  };
  const std::string feed_forward = "blocks.0.feed_forward.input.bias blocks.0.feed_forward.output.bias ",
                    head = "head.bias ";
  for (const char* preset : {"adaptive-span-small", "adaptive-span-large"}) {
    CHECK(biases(preset, {}) == feed_forward + head);
    CHECK(biases(preset, {{"bias", "no"}}) == head);  // as recorded by runs of these presets
  }
  CHECK(biases("all-attention-small", {}) == head);
  CHECK(biases("stream-char-small", {}) == head);
  CHECK(biases("stream", {{"feed_forward_bias", "yes"}}) == feed_forward + head);
  CHECK(biases("stream", {{"bias", "yes"}, {"feed_forward_bias", "no"}}).ends_with("attention.output.bias " + head));
}
