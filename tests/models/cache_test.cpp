// Incremental decoding with a cache gives the same logits as one pass over the text.
#include <doctest/doctest.h>

#include "engine/autograd/autograd.h"
#include "engine/autograd/hooks.h"
#include "engine/ops/ops.h"
#include "models/architectures/gpt.h"
#include "models/training/generation.h"
#include "tests/support/errors.h"
#include "tests/support/message.h"
#include "tests/support/parameters.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::error_of;
using orrery::testing::expect_error;
using orrery::testing::largest_difference;
using orrery::testing::Message;

namespace {

constexpr int64_t context = 12, vocabulary = 9;

GptSettings settings_with(const std::string& attention, const std::string& position, int64_t max_context) {
  GptSettings s;
  s.layers = 2, s.heads = 2, s.width = 16, s.context = max_context, s.vocabulary = vocabulary;
  s.attention = parse_spec(attention), s.position = parse_spec(position);
  return s;
}
// Makes a model in f64, far from its initial values; bounded parameters are in mid-range.
std::unique_ptr<Gpt> make(const std::string& attention, const std::string& position, int64_t max_context = context) {
  auto model = std::make_unique<Gpt>(settings_with(attention, position, max_context));
  nn::convert(*model, Dtype::f64);
  nn::initialize(*model, 3);
  orrery::testing::randomize_parameters(*model, 0.5);
  return model;
}
Tensor some_tokens(int64_t batch, int64_t time) {
  std::vector<int32_t> numbers(static_cast<size_t>(batch * time));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>((i * i + 3 * i + 1) % vocabulary);
  return Tensor::from({batch, time}, numbers);
}
Tensor tokens_between(const Tensor& x, int64_t begin, int64_t end) { return slice(x, 1, begin, end); }

Tensor whole(Gpt& model, const Tensor& tokens) {
  nn::ForwardPass pass;
  return model(tokens, pass);
}
Tensor in_chunks(Gpt& model, const Tensor& tokens, const std::vector<int64_t>& sizes) {
  nn::Cache cache = model.make_cache();
  std::vector<Tensor> logits;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    nn::ForwardPass pass;
    pass.cache = &cache;
    logits.push_back(model(tokens_between(tokens, begin, begin + size), pass));
    begin += size;
    CHECK(cache.length == begin);
  }
  return concatenate(logits, 1);
}
// Compares one pass with single steps, and with two chunks and single steps between them.
void check_steps(const std::string& attention, const std::string& position) {
  INFO(attention, " with ", position);
  const NoGrad guard;
  std::unique_ptr<Gpt> model;
  try {
    model = make(attention, position);
  } catch (const Error&) {  // only positions that act on scores may be refused
    CHECK(nn::make_position(parse_spec(position), {.context = context, .width = 16, .heads = 2})->acts_on_scores());
    Message(error_of([&] { make(attention, position); })).names(parse_spec(attention).name + ":");
    return;
  }
  const Tensor tokens = some_tokens(2, context), logits = whole(*model, tokens);
  CHECK(largest_difference(in_chunks(*model, tokens, std::vector<int64_t>(context, 1)), logits) <= 1e-12);
  CHECK(largest_difference(in_chunks(*model, tokens, {5, 1, 1, 1, 4}), logits) <= 1e-12);
  CHECK(largest_difference(in_chunks(*model, tokens, {context}), logits) <= 1e-12);
}

std::vector<std::string> position_specs() {
  std::vector<std::string> specs = nn::positions().names();
  specs.insert(specs.end(), {"alibi(learned=yes)", "relative(11, bias)"});
  return specs;
}

}  // namespace

TEST_CASE("steps through a cache equal the full pass, for every attention with every position") {
  for (const std::string& attention : nn::attentions().names())
    for (const std::string& position : position_specs()) check_steps(attention, position);
}

TEST_CASE("steps through a cache equal the full pass, for the settings of an attention layer") {
  for (const char* attention : {"softmax(span=fixed(3))", "softmax(span=adaptive_span(6, R=3))",
                                "softmax(span=dynamic_span(6, R=3), attend_to_self=yes)", "softmax(persistent=3)",
                                "softmax(persistent=slots(3, split=yes))", "softmax(qk_norm=rms, gate=silu)",
                                "softmax(soft_cap=5, temperature=learned)", "pointwise(gelu, length=row_index)",
                                "pointwise(relu, length=fixed(5), span=adaptive_span(6, R=3))"})
    for (const char* position : {"learned", "relative", "rotary"}) check_steps(attention, position);
  check_steps("softmax(span=fixed(3))", "relative(3)");
}

TEST_CASE("a span limits the cache: keys beyond the reach of later tokens are dropped, and results are unchanged") {
  constexpr int64_t tokens_in_all = 300;
  struct Bounded {
    const char *attention, *position;
    int64_t reach;  // keys that a query attends to, at most; includes its own
  };
  // Learned spans are in the middle of their range: z = 75, so m > 0 below 10 + 75 + 1.
  for (const Bounded& one :
       {Bounded{"softmax(span=fixed(20))", "learned", 21}, Bounded{"softmax(span=fixed(1))", "rotary", 2},
        Bounded{"softmax(span=fixed(65), attend_to_self=yes)", "alibi", 65},
        Bounded{"softmax(span=fixed(65), attend_to_self=no)", "none", 66},
        Bounded{"softmax(span=adaptive_span(150, R=10))", "relative(150)", 86},
        Bounded{"softmax(span=adaptive_span(80, R=60))", "none", 81},
        Bounded{"softmax(span=dynamic_span(40, R=10), attend_to_self=yes)", "rotary", 41},
        Bounded{"pointwise(relu, span=adaptive_span(150, R=10))", "none", 86},
        Bounded{"pointwise(gelu, length=row_index, span=fixed(20))", "relative(20, bias)", 21},
        Bounded{"relu_former(span=fixed(70), persistent=3)", "rotary", 71}}) {
    INFO(one.attention, " with ", one.position);
    const NoGrad guard;
    const auto model = make(one.attention, one.position, tokens_in_all);
    const Tensor tokens = some_tokens(1, tokens_in_all), logits = whole(*model, tokens);
    nn::Cache cache = model->make_cache();
    std::vector<Tensor> steps;
    int64_t max_keys = 0, min_dropped = tokens_in_all;
    for (int64_t t = 0; t < tokens_in_all; ++t) {
      nn::ForwardPass pass;
      pass.cache = &cache;
      steps.push_back((*model)(tokens_between(tokens, t, t + 1), pass));
      for (const auto& [path, kept] : cache.entries) {
        CHECK(kept.key.size(1) == kept.value.size(1));
        max_keys = std::max(max_keys, kept.key.size(1)), min_dropped = std::min(min_dropped, t + 1 - kept.key.size(1));
      }
    }
    CHECK(min_dropped == 0);                                   // drops nothing at first
    CHECK(max_keys <= one.reach + 62);                         // drops 64 keys at a time
    CHECK(max_keys >= std::min<int64_t>(one.reach + 62, 64));  // not fewer: each drop copies the cache
    for (const auto& [path, kept] : cache.entries) CHECK((tokens_in_all - kept.key.size(1)) % 64 == 0);
    CHECK(largest_difference(concatenate(steps, 1), logits) <= 1e-12);
    CHECK(largest_difference(in_chunks(*model, tokens, {100, 1, 99, 60, 40}), logits) <= 1e-12);
  }
  const NoGrad guard;  // without a span, no key is dropped
  const auto model = make("softmax", "none", 150);
  nn::Cache cache = model->make_cache();
  nn::ForwardPass pass;
  pass.cache = &cache;
  (*model)(some_tokens(1, 150), pass);
  for (const auto& [path, kept] : cache.entries) CHECK(kept.key.size(1) == 150);
}

TEST_CASE("cached tokens matter: without them, the logits of the next token differ") {
  const NoGrad guard;
  for (const std::string& position : position_specs()) {
    INFO(position);
    const auto model = make("softmax", position);
    const Tensor tokens = some_tokens(2, 6);
    CHECK(largest_difference(tokens_between(in_chunks(*model, tokens, {5, 1}), 5, 6),
                             whole(*model, tokens_between(tokens, 5, 6))) > 1e-3);
  }
}

TEST_CASE("unsupported uses of a cache have error messages") {
  const auto model = make("softmax", "learned");
  nn::Cache cache = model->make_cache();
  nn::ForwardPass pass;
  pass.cache = &cache;
  const auto refused = [&](int64_t tokens) { return expect_error([&] { (*model)(some_tokens(1, tokens), pass); }); };
  refused(3).names("cache").offers("NoGrad");
  const NoGrad guard;
  (*model)(some_tokens(1, 10), pass);
  refused(3).names("cache").value(10).value(3).names("context").value(12).offers("new cache");
  pass.document_ids = Tensor::from({1, 2}, std::vector<int32_t>{0, 1});
  refused(2).names("position_embedding").value("document_ids").names("cache");
  const auto rotary = make("softmax", "rotary");
  expect_error([&] { (*rotary)(some_tokens(1, 2), pass); }).names("cache").value("lengths").value("document_ids");
}

TEST_CASE("generation processes each token once, and refills the cache when the context is full") {
  const auto model = make("softmax", "learned");
  const auto reads = [&](int64_t prompt, const SamplingSettings& sampling) {
    std::vector<int64_t> sizes;
    const Hooks hooks({"blocks.0.attention.query"},
                      [&](const std::string&, const Tensor& query) { sizes.push_back(query.size(1)); });
    generate(*model, std::vector<int32_t>(static_cast<size_t>(prompt), 1), sampling);
    return sizes;
  };
  using Sizes = std::vector<int64_t>;
  CHECK(reads(5, {.tokens = 9}) == Sizes{5, 1, 1, 1, 1, 1, 1, 1, 6});
  CHECK(reads(30, {.tokens = 4}) == Sizes{12, 6, 1, 1});
  CHECK(reads(11, {.tokens = 5, .keep = 10}) == Sizes{11, 1, 10, 1, 1});
  CHECK(reads(11, {.tokens = 4, .keep = context}) == Sizes{11, 1, 12, 12});
  expect_error([&] { reads(1, {.keep = 13}); }).names("keep").value(13).offers(0).offers(12).offers("context");
}

TEST_CASE("with keep = context, generation equals a full pass over the last tokens for each new token") {
  for (const std::string& position : position_specs()) {
    INFO(position);
    const auto model = make("softmax", position);
    std::vector<int32_t> tokens = {1, 4, 2};
    const SamplingSettings greedy{.tokens = 20, .temperature = 0, .keep = context};
    const std::vector<int32_t> text = generate(*model, tokens, greedy);
    const NoGrad guard;
    while (tokens.size() < text.size()) {
      const auto window_size = static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(tokens.size()), context));
      const Tensor window =
          Tensor::from({1, static_cast<int64_t>(window_size)}, std::span<const int32_t>(tokens).last(window_size));
      tokens.push_back(
          static_cast<int32_t>(argmax(whole(*model, window)[0][static_cast<int64_t>(window_size) - 1]).item()));
    }
    CHECK(tokens == text);
  }
}
