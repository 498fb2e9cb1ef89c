// Edits where it matters what a pass computes: keys, padding, decoding, streams, pixels and the head alone.
#include <doctest/doctest.h>

#include <map>

#include "engine/attention/work.h"
#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "models/inspection/base/captured_attention.h"
#include "models/inspection/base/edits.h"
#include "models/inspection/base/residual_stream.h"
#include "models/tasks/base/task.h"
#include "tests/support/inspected_examples.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

// Returns the values of this name, each time that the model computes it, in a run with the edits, which then end.
std::vector<Tensor> values_with(Edits&& edits, const std::string& name, const std::function<void()>& run) {
  const NoGrad guard;
  std::vector<Tensor> all;
  edits.begin();
  const Hooks hooks({name}, [&](const std::string&, const Tensor& value) { all.push_back(value.clone()); });
  run();
  edits.check_applied();
  return all;
}
Tensor value_with(const std::string& text, const std::string& name, const InspectedExample& example) {
  return values_with(Edits(text, example.model()), name, [&] { example.run(); }).at(0);
}

std::unique_ptr<nn::Module> small_pairs(const Assignments& more = {}) {
  Assignments all = {{"model", "encoder_decoder"}, {"vocabulary", "9"}, {"layers", "1"}, {"heads", "2"},
                     {"width", "8"}, {"context", "8"}};
  all.insert(all.end(), more.begin(), more.end());
  return randomized(all);
}

}  // namespace

TEST_CASE("edits: the mean of a key is over the queries that see it, and masked pairs stay 0") {
  const auto model = small_gpt({{"attention", "softmax(persistent=slots(3))"}});
  const auto inspected = example_of(*model);
  const std::string name = "blocks.0.attention.weights";
  const Tensor plain = value_with("", name, *inspected);  // (1, 2, 8, 8 + 3)
  const auto at = [](const Tensor& w, int64_t query, size_t key) { return w[0][1][query].to_vector()[key]; };
  double of_key = 0, of_slot = 0;
  for (int64_t query = 2; query < 8; ++query) of_key += at(plain, query, 2) / 6;
  for (int64_t query = 0; query < 8; ++query) of_slot += at(plain, query, 9) / 8;
  const Tensor key = value_with("blocks.0.attention.1.key2=mean", name, *inspected),
               slot = value_with("blocks.0.attention.1.slot1=mean", name, *inspected),
               all = value_with("blocks.0.attention.weights=mean", name, *inspected),
               ones = value_with("blocks.0.attention.weights=1", name, *inspected);
  for (int64_t query = 0; query < 8; ++query) {
    CHECK(at(key, query, 2) == doctest::Approx(query < 2 ? 0 : of_key).epsilon(1e-12));
    CHECK(at(all, query, 2) == doctest::Approx(query < 2 ? 0 : of_key).epsilon(1e-12));
    CHECK(at(slot, query, 9) == doctest::Approx(of_slot).epsilon(1e-12));
    CHECK(at(key, query, 1) == at(plain, query, 1));
    for (size_t column = 0; column < 11; ++column)
      CHECK(at(ones, query, column) == (column >= 8 || static_cast<int64_t>(column) <= query ? 1 : 0));
  }
  expect_error([&] { value_with("blocks.0.attention.1.key5@2=1", name, *inspected); }).value("key5@2=1").names("query");
}

TEST_CASE("edits: a key is the same one in decoding as in a whole pass, and so is its mean") {
  for (const char* const attention : {"softmax", "softmax(span=fixed(8))"}) {
    CAPTURE(attention);
    const auto made = small_gpt({{"context", "160"}, {"attention", attention}});
    auto& model = dynamic_cast<LanguageModel&>(*made);
    const Tensor tokens = some_tokens(1, 150);
    for (const char* const text : {"blocks.0.attention.0.key142*3", "blocks.1.attention.1.key3=mean"}) {
      CAPTURE(text);
      const NoGrad guard;
      const std::vector<Tensor> logits = values_with(Edits(text, model), "logits", [&] {
        nn::ForwardPass pass;
        model(tokens, pass);
      });
      const std::vector<Tensor> last = values_with(Edits(text, model, Passes::decoding), "logits", [&] {
        nn::Cache cache = model.make_cache();
        for (int64_t begin = 0; begin < 150;) {
          nn::ForwardPass pass;
          pass.cache = &cache;
          const int64_t end = begin == 0 ? 20 : begin + 1;
          model.next(slice(tokens, 1, begin, end), pass);
          begin = end;
        }
      });
      // The mean of key 3 is over the queries of the first pass: 20 there, 150 here.
      if (std::string(text).ends_with("*3"))
        CHECK(largest_difference(last.back().reshape(Shape{9}), logits[0][0][149]) < 1e-9);
    }
  }
}

TEST_CASE("edits: a mean is without padding") {
  const auto model = small_pairs();
  auto& translator = dynamic_cast<TranslationModel&>(*model);
  const auto encode = [&](const std::vector<int32_t>& tokens, const std::vector<int32_t>& lengths) {
    nn::ForwardPass pass;
    const auto batch = static_cast<int64_t>(lengths.size());
    translator.encode(Tensor::from(Shape{batch, static_cast<int64_t>(tokens.size()) / batch}, tokens),
                      Tensor::from(Shape{batch}, lengths), pass);
  };
  for (const char* const name :
       {"encoder.0.attention.layer", "encoder.embedding", "encoder.0.feed_forward.layer.hidden",
        "encoder.0.attention.layer.query", "encoder.0.attention.layer.weights"}) {
    CAPTURE(name);
    const std::string text = std::string(name) + "=mean",
                      hook = std::string(name) == "encoder.0.attention.layer" ? std::string(name) + ".output" : name;
    Edits one_by_one(text, *model);
    one_by_one.learn_means("both", [&] { encode({1, 2, 3, 4, 5}, {5}), encode({6, 7, 8}, {3}); });
    const auto both = [&] { encode({1, 2, 3, 4, 5, 6, 7, 8, 0, 0}, {5, 3}); };
    const Tensor is = values_with(Edits(text, *model), hook, both)[0],
                 should_be = values_with(std::move(one_by_one), hook, both)[0];
    CHECK(largest_difference(is, should_be) < 1e-12);
  }
}

TEST_CASE("edits: the mean of an image is over all pixels, which have no @") {
  const auto model = make_model(
      make_settings({{"model", "resnet"}, {"image_size", "8"}, {"channels", "1"}, {"classes", "3"}}));
  randomize(*model);
  const auto image = example_of(*model);
  for (const std::string name :
       {"blocks.1.stream", "blocks.0.residual", "blocks.1.first_norm.input", "blocks.0.output", "input"}) {
    CAPTURE(name);
    const Tensor plain = value_with("", name, *image), edited = value_with(name + "=mean", name, *image);
    const Tensor mean_of_all = broadcast_to(mean(plain, {0, 1, 2}, true), plain.shape());
    CHECK(largest_difference(edited, mean_of_all) < 1e-5);
    expect_error([&] { Edits(name + "@3*0", *model); }).value("@3").names("positions");
  }
}

TEST_CASE("edits: the other example's value enters this example alone, not a generated text of its length") {
  const auto model = small_gpt({});
  const auto inspected = example_of(*model), other = example_of(*model, 1),
             generated = inspected->from_tokens({3, 1, 3, 1, 3, 1, 3, 1}, true);
  const Tensor plain = generated->run();
  Edits edits("embedding=other", *model);
  edits.learn_other(*other, *inspected);
  edits.begin();
  CHECK(largest_difference(generated->run(), plain) == 0);
  CHECK(largest_difference(inspected->run(), other->run()) == 0);
}

TEST_CASE("edits: the logits of the last state are those of the edited model") {
  const auto model = small_gpt({});
  const auto inspected = example_of(*model), other = example_of(*model, 1);
  for (const char* const text : {"blocks.1@3=0", "logits@3=0", "norm=other", "norm.input@2*2", "embedding@2*2"}) {
    CAPTURE(text);
    Edits edits(text, *model);
    edits.learn_other(*other, *inspected);
    edits.begin();
    const ObservedStreams observed = observe_streams(*inspected);
    const ResidualStream& last = observed.streams.back();
    CHECK(largest_difference(logits_of(*inspected, last, last.last().value), inspected->run()) < 1e-9);
    const std::vector<int32_t> targets(8, 4);
    const Tensor state = last.last().value;
    const auto found = target_logits(*inspected, last, std::span(&state, 1), targets);
    for (int64_t row = 0; row < 8; ++row)
      CHECK(found[0][static_cast<size_t>(row)] == doctest::Approx(observed.logits[row].to_vector()[4]).epsilon(1e-9));
  }
}

TEST_CASE("edits: one meaning of the mean: of the model under the other edits") {
  const auto model = small_gpt({});
  const auto inspected = example_of(*model);
  for (const char* const text : {"blocks.0.attention*0; blocks.1.attention=mean",
                                 "blocks.1.attention=mean; blocks.0.attention=mean; blocks.1.attention@3*2"}) {
    const Tensor first = value_with(text, "logits", *inspected);
    Edits learned(text, *model);
    learned.learn_means("this text", [&] { inspected->run(); });
    CHECK(learned.mean_over() == "this text");
    learned.begin();
    CHECK(largest_difference(first[0], inspected->run()) < 1e-12);
    CHECK(Edits("embedding*0", *model).mean_over().empty());
  }
}

TEST_CASE("edits: edited weights do not change the count of a stream's multiply-adds") {
  const auto model = randomized({{"model", "stream"}, {"vocabulary", "9"}, {"context", "8"}, {"cache_length", "8"},
                                 {"attention", "softmax(span=adaptive_span(8, R=4), persistent=3)"}});
  const auto work_of = [&](const std::string& text) {
    const NoGrad guard;
    Edits edits(text, *model, Passes::stream);
    edits.begin();
    nn::Cache cache = empty_stream_state();
    const int64_t before = attention_multiply_adds();
    for (int block = 0; block < 2; ++block) {
      nn::ForwardPass pass;
      pass.cache = &cache;
      (*model)(some_tokens(2, 8), pass);
    }
    return attention_multiply_adds() - before;
  };
  CHECK(work_of("") > 0);
  for (const char* const text : {"blocks.0.attention.weights*0.5", "blocks.0.attention.slot1*0"})
    CHECK(work_of(text) == work_of(""));
  const auto error = [&](const std::string& text) {
    return expect_error([&] { Edits(text, *model, Passes::stream); });
  };
  error("blocks.0.attention@3*0").value("blocks.0.attention@3*0").names("stream").offers("inspect");
  error("blocks.0.attention.0.key3*0").value("key3").names("stream").offers("inspect");
  error("blocks.0.attention.weights=mean").value("weights").names("stream").offers("inspect");
}

TEST_CASE("edits: what the model does not read, tokens, and a value without one meaning are refused") {
  const auto model = small_gpt({{"attention", "softmax(span=adaptive_span(8, R=4))"}, {"normalization", "dynamic"}}),
             pairs = small_pairs({{"shared_embedding", "yes"}});
  const auto error = [&](nn::Module& of, const std::string& text) { return expect_error([&] { Edits(text, of); }); };
  for (const char* const name : {"blocks.0.attention.row_sum", "blocks.0.attention.row_entropy",
                                 "blocks.0.attention.row_zero_fraction", "blocks.0.attention.row_max",
                                 "blocks.0.attention.visible", "blocks.0.attention.span.input", "norm.saturation"})
    error(*model, std::string(name) + "*0").value(name).names("read");
  for (const char* const text : {"input*0", "input=mean", "input=1e9"})
    error(*model, text).value(text).names("tokens").offers("embedding");
  Edits("encoder.embedding.output@2*0", *pairs);
  error(*pairs, "encoder.embedding.output=other").value("encoder.embedding.output").names("2 times");
  error(*pairs, "encoder.embedding.output+1(other-this)").value("encoder.embedding.output").names("2 times");
  error(*pairs, "encoder.embedding.output=mean").value("encoder.embedding.output").names("2 times");
}

TEST_CASE("edits: white space and the nearest component") {
  const auto model = small_gpt({});
  Edits spaced("  blocks.0.attention.1 * 0 ;\n\tblocks.1.feed_forward\n= -1 ;\r\n", *model);
  CHECK(spaced.given() == "blocks.0.attention.1*0; blocks.1.feed_forward=-1");
  expect_error([&] { Edits("blocks.0.attention*1 0", *model); }).value("1 0");
  expect_error([&] { Edits("blocks.0.att ention*0", *model); }).value("blocks.0.att ention");
  expect_error([&] { Edits("blocks.2.feed_forward.unit1=2", *model); }).offers("blocks.0.feed_forward");
}
