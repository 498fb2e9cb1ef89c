// Edits of a model's values, against weights that are changed by hand.
#include <doctest/doctest.h>

#include <map>

#include "engine/ops/ops.h"
#include "engine/types/usage_error.h"
#include "models/inspection/base/edits.h"
#include "tests/support/inspected_examples.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

Tensor run_with(const std::string& text, const InspectedExample& example) {
  Edits edits(text, example.model());
  edits.begin();
  const Tensor logits = example.run();
  edits.check_applied();
  return logits;
}

// Runs the example with changed numbers of a weight.
template <class Change>
Tensor run_with_weight(const InspectedExample& example, const std::string& path, const Change& change) {
  const Tensor weight = parameter_of(example.model(), path), old = weight.clone();
  std::vector<double> numbers = old.to_vector();
  change(numbers);
  weight.copy_from(Tensor::from(weight.shape(), numbers, weight.dtype()));
  const Tensor logits = example.run();
  weight.copy_from(old);
  return logits;
}

const Assignments with_slots = {{"attention", "softmax(persistent=slots(3))"}, {"feed_forward", "dense(relu)"}};

}  // namespace

TEST_CASE("edits: factor 1 on every value of every model changes no bit") {
  for (const ModelCase& each : model_cases()) {
    const auto model = make_model(make_settings(each.settings));
    randomize(*model);
    const auto inspected = example_of(*model);
    std::map<std::string, Tensor> values;
    Tensor plain;
    {
      const Hooks hooks({"*"}, [&](const std::string& name, const Tensor& value) { values[name] = value; });
      plain = inspected->run();
    }
    size_t edited = 0;
    for (const auto& value : values) {
      CAPTURE(value.first);
      Tensor logits;
      try {
        logits = run_with(value.first + "*1", *inspected);
      } catch (const UsageError&) {  // the model does not read it
        continue;
      }
      CHECK(largest_difference(logits, plain) == 0);
      ++edited;
    }
    CHECK(edited > 8);
  }
}

TEST_CASE("edits: a head, a unit and a slot times 0 equal their weights at 0") {
  const auto model = small_gpt(with_slots);
  const auto inspected = example_of(*model);
  CHECK(largest_difference(
            run_with("blocks.1.attention.1*0", *inspected),
            run_with_weight(*inspected, "blocks.1.attention.output.weight", [](std::vector<double>& w) {  // (16, 16)
              for (size_t i = 0; i < w.size(); ++i)
                if (i % 16 / 8 == 1) w[i] = 0;
            })) == 0);
  CHECK(largest_difference(
            run_with("blocks.1.feed_forward.unit5=0", *inspected),
            run_with_weight(*inspected, "blocks.1.feed_forward.output.weight", [](std::vector<double>& w) {  // (16, 64)
              for (size_t i = 5; i < w.size(); i += 64) w[i] = 0;
            })) == 0);
  const auto without_slot = [&](size_t slot, size_t first_head, size_t end) {
    return run_with_weight(*inspected, "blocks.0.attention.slots.value", [&](std::vector<double>& v) {  // (3, 2, 8)
      for (size_t i = (slot * 2 + first_head) * 8; i < (slot * 2 + end) * 8; ++i) v[i] = 0;
    });
  };
  CHECK(largest_difference(run_with("blocks.0.attention.1.slot2*0", *inspected), without_slot(2, 1, 2)) < 1e-12);
  CHECK(largest_difference(run_with("blocks.0.attention.slot1*0", *inspected), without_slot(1, 0, 2)) < 1e-12);
}

TEST_CASE("edits: numbers, positions, keys, order and channels") {
  const auto model = small_gpt({});
  const auto inspected = example_of(*model);
  const auto value_of = [&](const std::string& edits, const std::string& name) {
    Edits all(edits, *model);
    all.begin();
    Tensor found;
    const Hooks hooks({name}, [&](const std::string&, const Tensor& value) { found = value.clone(); });
    inspected->run();
    all.check_applied();
    return found;
  };
  const Tensor plain = value_of("", "blocks.0.attention.output");  // (1, 8, 16)
  const Tensor edited = value_of("blocks.0.attention@2-4=7; blocks.0.attention@3 *2", "blocks.0.attention.output");
  for (int64_t position = 0; position < 8; ++position) {
    const std::vector<double> was = plain[0][position].to_vector(), is = edited[0][position].to_vector();
    for (size_t i = 0; i < is.size(); ++i)
      CHECK(is[i] == (position < 2 || position > 4 ? was[i] : position == 3 ? 14 : 7));
  }
  const Tensor weights = value_of("blocks.0.attention.1.key2@5=0.25", "blocks.0.attention.weights");  // (1, 2, 8, 8)
  CHECK(weights[0][1][5].to_vector()[2] == 0.25);
  CHECK(weights[0][0][5].to_vector()[2] != 0.25);
  CHECK(weights[0][1][6].to_vector()[2] != 0.25);
  const Tensor own = value_of("", "blocks.0.attention.scores"),
               without = value_of("blocks.0.attention.scores@1*0", "blocks.0.attention.scores");  // (1, 2, 8, 8)
  for (int64_t query = 0; query < 8; ++query)
    CHECK(without[0][1][query].to_vector() == (query == 1 ? std::vector<double>(8) : own[0][1][query].to_vector()));
  const auto convolutions = make_model(
      make_settings({{"model", "resnet"}, {"image_size", "8"}, {"channels", "1"}, {"classes", "3"}}));
  randomize(*convolutions);
  const auto image = example_of(*convolutions);
  std::string layer;
  std::map<std::string, Tensor> before;
  {
    const Hooks hooks({"*.output"}, [&](const std::string& name, const Tensor& value) {
      if (value.shape().rank() == 4) layer = name.substr(0, name.rfind('.')), before[layer] = value.clone();
    });
    image->run();
  }
  REQUIRE(!layer.empty());
  Edits channel(layer + ".channel1=3", *convolutions);
  channel.begin();
  const Hooks hooks({layer + ".output"}, [&](const std::string&, const Tensor& value) {
    const std::vector<double> is = value.to_vector(), was = before[layer].to_vector();
    const auto channels = static_cast<size_t>(value.size(-1));
    for (size_t i = 0; i < is.size(); ++i) CHECK(is[i] == (i % channels == 1 ? 3 : was[i]));
  });
  image->run();
}

TEST_CASE("edits: the mean, the other example, and the way to it") {
  const auto model = small_gpt({});
  const auto inspected = example_of(*model), other = example_of(*model, 1);
  const auto with_other = [&](const std::string& text) {
    Edits edits(text, *model);
    CHECK(edits.needs_other());
    edits.learn_other(*other, *inspected);
    edits.begin();
    return inspected->run();
  };
  CHECK(largest_difference(with_other("embedding=other"), other->run()) == 0);
  CHECK(largest_difference(with_other("embedding+1(other-this)"), other->run()) < 1e-9);
  CHECK(largest_difference(with_other("embedding+0(other-this)"), inspected->run()) == 0);
  const auto state_with = [&](Edits& edits) {
    edits.begin();
    Tensor found;
    const Hooks hooks({"blocks.0.feed_forward.output"},
                      [&](const std::string&, const Tensor& value) { found = value.clone(); });
    inspected->run();
    return found;
  };
  Edits of_this("blocks.0.feed_forward=mean", *model), of_both("blocks.0.feed_forward=mean", *model), none("", *model);
  of_both.learn_means("both", [&] { inspected->run(), other->run(); });
  const Tensor plain = state_with(none), here = state_with(of_this), both = state_with(of_both);
  const std::vector<double> mean_here = mean(plain[0], {0}).to_vector(), first = here[0][0].to_vector();
  for (size_t i = 0; i < first.size(); ++i) CHECK(first[i] == doctest::Approx(mean_here[i]).epsilon(1e-12));
  CHECK(here[0][7].to_vector() == first);
  CHECK(both[0][0].to_vector() != first);
}

TEST_CASE("edits: what is wrong is named, with the nearest component") {
  const auto model = small_gpt(with_slots);
  const auto error = [&](const std::string& text) { return expect_error([&] { Edits(text, *model); }); };
  error("blocks.0.atention.1*0").value("blocks.0.atention.1").offers("blocks.0.attention.1");
  error("embedding=0; blocks.0.attention.2*0").value("blocks.0.attention.2*0").offers("0 to 1");
  error("blocks.0.feed_forward.unit64=0").value("unit64").offers("0 to 63");
  error("blocks.0.attention.slot3=0").value("slot3").offers("0 to 2");
  error("blocks.0.attention").value("blocks.0.attention").names("operation").offers("*0");
  error("*0").names("component");
  error("embedding=x").value("x");
  error("embedding=inf").value("inf");
  error("embedding@-1=0").value("@-1").offers("@5");
  error("embedding@5-3=0").value("@5-3").offers("@5-9");
  error("embedding+2(this-other)").value("+2(this-other)").offers("(other-this)");
  expect_error([&] { Edits("embedding@2=0", *model, Passes::decoding); }).value("embedding@2=0").offers("inspect");
  const auto inspected = example_of(*model), shorter = example_of(*model, std::string("0 1 2"));
  expect_error([&] { run_with("embedding@9=0", *inspected); }).value("embedding@9=0").names("position");
  Edits edits("embedding=other", *model);
  expect_error([&] { edits.learn_other(*shorter, *inspected); })
      .value("embedding=other")
      .offers("--patch_from");
}
