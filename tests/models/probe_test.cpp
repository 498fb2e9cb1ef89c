// The linear probe of a few-shot evaluation: shots, whitening, strengths, and features of layers.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "engine/math/random.h"
#include "engine/ops/ops.h"
#include "models/evaluation/few_shot.h"
#include "models/model.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;

namespace {

// Three classes around (0, 0, ...), (d, 0, ...) and (0, d, ...) in six dimensions, `each` of each.
LabelledFeatures clouds(int64_t each, double distance, uint64_t seed) {
  LabelledFeatures all;
  std::vector<double> x;
  for (int64_t i = 0; i < 3 * each; ++i) {
    const auto label = static_cast<int32_t>(i / each);
    all.labels.push_back(label);
    for (int64_t d = 0; d < 6; ++d)
      x.push_back(normal(RandomKey{seed, 0}, static_cast<uint64_t>(6 * i + d)) + (label == d + 1 ? distance : 0));
  }
  all.x = Tensor::from(Shape{3 * each, 6}, x, Dtype::f64);
  return all;
}

// Examples whose features are given; the reader is not used.
class GivenExamples final : public ProbeExamples {
 public:
  GivenExamples(LabelledFeatures train, LabelledFeatures test) : train_(std::move(train)), test_(std::move(test)) {
    owner = "clouds", classes = {"a", "b", "c"}, train_labels = train_.labels, test_labels = test_.labels;
  }
  Tensor features(const FeatureReader&, Split split, std::span<const int64_t> indices,
                  const std::function<void(size_t)>&) const override {
    return rows_of(split == Split::train ? train_ : test_, {indices.begin(), indices.end()}).x;
  }

 private:
  LabelledFeatures train_, test_;
};

using Values = std::vector<std::pair<std::string, std::string>>;
std::unique_ptr<nn::Module> model_of(const std::string& name, const Values& set) {
  const NamedModel named = named_model(name);
  const AnySettings settings = named.settings;
  for (const auto& [key, value] : set) set_setting(settings.members(), "test", key, value);
  auto model = named.model_class.make(settings);
  nn::initialize(*model, 1);
  return model;
}
std::unique_ptr<nn::Module> small_vit(const std::string& pooling) {
  return model_of("vit", {{"layers", "2"}, {"heads", "2"}, {"width", "8"}, {"patch", "4"}, {"image_size", "8"},
                          {"channels", "1"}, {"classes", "3"}, {"pooling", pooling}});
}

}  // namespace

TEST_CASE("probe: shots are drawn for each class and seed, without repetition") {
  std::vector<int32_t> labels;
  for (int32_t i = 0; i < 60; ++i) labels.push_back(i * i % 3 == 0 ? 0 : 1);  // 20 and 40 examples
  std::set<std::vector<int64_t>> different;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const std::vector<int64_t> drawn = draw_shots(labels, 2, 7, seed);
    REQUIRE(drawn.size() == 14);
    CHECK(std::set(drawn.begin(), drawn.end()).size() == 14);
    for (size_t i = 0; i < 14; ++i) CHECK(labels[static_cast<size_t>(drawn[i])] == (i < 7 ? 0 : 1));
    CHECK(draw_shots(labels, 2, 7, seed) == drawn);
    different.insert(drawn);
  }
  CHECK(different.size() == 4);
}

TEST_CASE("probe: a class with fewer examples than shots is named with both numbers") {
  const std::vector<int32_t> labels = {0, 1, 0, 1, 0};
  check_shots("set", {"cats", "dogs"}, labels, 2);
  expect_error([&] { check_shots("set", {"cats", "dogs"}, labels, 3); })
      .names("set")
      .value(2)
      .value("dogs")
      .value(3)
      .offers("--few_shot=2");
}

TEST_CASE("probe: it separates distant clouds, guesses on equal ones, and ignores shifts and scales of features") {
  const LabelledFeatures train = clouds(10, 8, 1), test = clouds(100, 8, 2);
  const FittedProbe far = fit_probe(train, test, 3, 10), near = fit_probe(clouds(10, 0, 3), clouds(100, 0, 4), 3, 10);
  CHECK(far.accuracy > 0.98);
  CHECK(near.accuracy > 0.2);
  CHECK(near.accuracy < 0.47);
  CHECK(far.weights.shape() == Shape{7, 3});
  const auto moved = [](const LabelledFeatures& of) {
    return LabelledFeatures{shift(scale(of.x, 1000), 5000), of.labels};
  };
  const FittedProbe same = fit_probe(moved(train), moved(test), 3, 10);
  CHECK(same.accuracy == far.accuracy);
  CHECK(same.strength == far.strength);
  const std::vector<double> expected = far.weights.to_vector(), found = same.weights.to_vector();
  for (size_t i = 0; i < found.size(); ++i) CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-3));
}

TEST_CASE("probe: the weights solve the regularized problem of whitened features and targets of -1 and 1") {
  const LabelledFeatures train = clouds(4, 2, 5);
  const FittedProbe fitted = fit_probe(train, clouds(5, 2, 6), 3, 4);
  const std::vector<double> x = train.x.to_vector(), w = fitted.weights.to_vector();
  double inputs[12][7];
  for (size_t d = 0; d < 6; ++d) {
    double mean = 0, squares = 0;
    for (size_t i = 0; i < 12; ++i) mean += x[6 * i + d] / 12;
    for (size_t i = 0; i < 12; ++i) squares += (x[6 * i + d] - mean) * (x[6 * i + d] - mean) / 12;
    for (size_t i = 0; i < 12; ++i) inputs[i][d] = (x[6 * i + d] - mean) / (std::sqrt(squares) + 1e-5);
  }
  for (auto& row : inputs) row[6] = 100;
  for (size_t d = 0; d < 7; ++d)  // X^T (X W - Y) + l W = 0
    for (size_t k = 0; k < 3; ++k) {
      double gradient = fitted.strength * w[3 * d + k];
      for (size_t i = 0; i < 12; ++i) {
        double residual = i / 4 == k ? -1 : 1;
        for (size_t e = 0; e < 7; ++e) residual += inputs[i][e] * w[3 * e + k];
        gradient += inputs[i][d] * residual;
      }
      CHECK(std::abs(gradient) < 1e-8);
    }
}

TEST_CASE("probe: the strength is a power of two between 2^-10 and 2^19, and fixed for one shot") {
  const double exponent = std::log2(fit_probe(clouds(10, 3, 7), clouds(10, 3, 8), 3, 10).strength);
  CHECK(exponent == std::round(exponent));
  CHECK(exponent >= -10);
  CHECK(exponent <= 19);
  CHECK(fit_probe(clouds(1, 3, 9), clouds(10, 3, 10), 3, 1).strength == 1024);
}

TEST_CASE("probe: a feature that never varies takes no part, and NaN is an error") {
  LabelledFeatures train = clouds(10, 8, 1), test = clouds(20, 8, 2);
  for (LabelledFeatures* const each : {&train, &test})
    each->x = concatenate({each->x, Tensor::full(Shape{each->x.size(0), 1}, 3, Dtype::f64)}, 1);
  const FittedProbe fitted = fit_probe(train, test, 3, 10);
  CHECK(fitted.accuracy > 0.9);
  for (size_t k = 0; k < 3; ++k) CHECK(std::abs(fitted.weights.to_vector()[3 * 6 + k]) < 1e-9);
  test.x = scale(test.x, NAN);
  expect_error([&] { fit_probe(train, test, 3, 10); }).names("evaluate").value("NaN").offers("--features");
}

TEST_CASE("probe: an evaluation averages over seeds and reads each example once") {
  const GivenExamples examples(clouds(15, 2, 1), clouds(50, 2, 2));
  const auto model = small_vit("mean");
  const FewShot found = evaluate_few_shot(examples, FeatureReader(*model, ""), {.shots = 5, .seeds = 4});
  REQUIRE(found.seeds.size() == 4);
  CHECK(found.layer == "head.input");
  CHECK(found.train.x.size(0) == static_cast<int64_t>(found.indices.size()));
  CHECK(std::set(found.indices.begin(), found.indices.end()).size() == found.indices.size());
  double sum = 0;
  for (uint64_t i = 0; i < 4; ++i) {
    const FewShot::Seed& seed = found.seeds[i];
    sum += seed.probe.accuracy;
    std::vector<int64_t> drawn;
    for (const int32_t row : seed.shots) drawn.push_back(found.indices[static_cast<size_t>(row)]);
    CHECK(drawn == draw_shots(examples.train_labels, 3, 5, i + 1));
  }
  CHECK(found.accuracy() == doctest::Approx(sum / 4));
  CHECK(found.deviation() > 0);
  CHECK(std::isnan(evaluate_few_shot(examples, FeatureReader(*model, ""), {.shots = 5, .seeds = 1}).deviation()));
  expect_error([&] {
    evaluate_few_shot(examples, FeatureReader(*model, ""), {.shots = 16, .seeds = 1});
  }).names("clouds").value(15).value("a").value(16).offers("--few_shot=15");
}

TEST_CASE("features: the default layer is the head's input, a block's states are pooled as the model pools") {
  const Tensor pixels = Tensor::from(Shape{2, 8, 8, 1}, [] {
    std::vector<double> values(128);
    for (size_t i = 0; i < values.size(); ++i) values[i] = normal(RandomKey{3, 0}, i);
    return values;
  }());
  for (const char* const pooling : {"mean", "class_token"}) {
    CAPTURE(pooling);
    const auto model = small_vit(pooling);
    const Tensor last = FeatureReader(*model, "")(pixels), norm = FeatureReader(*model, "norm")(pixels),
                 block = FeatureReader(*model, "blocks.1")(pixels),
                 same = FeatureReader(*model, "blocks.1.output")(pixels),
                 other = FeatureReader(*model, "blocks.1.hook_resid_post")(pixels);
    CHECK(last.shape() == Shape{2, 8});
    CHECK(last.to_vector() == norm.to_vector());
    CHECK(block.to_vector() == same.to_vector());
    CHECK(block.to_vector() == other.to_vector());
    CHECK(block.to_vector() != last.to_vector());
  }
}

TEST_CASE("features: those of a text are the last token's, and a convolution's are means over its places") {
  const auto gpt = model_of(
      "gpt", {{"layers", "2"}, {"heads", "2"}, {"width", "8"}, {"context", "6"}, {"vocabulary", "9"}});
  const Tensor longer = Tensor::from(Shape{1, 4}, std::vector<int32_t>{1, 2, 3, 4}),
               shorter = Tensor::from(Shape{1, 3}, std::vector<int32_t>{1, 2, 3});
  const FeatureReader read(*gpt, "");
  CHECK(read.layer() == "norm.output");
  CHECK(read(longer).shape() == Shape{1, 8});
  CHECK(read(longer).to_vector() != read(shorter).to_vector());
  for (const char* const place : {"pre", "post"}) {  // a post-norm stream model has no final normalization
    const auto stream = model_of("stream", {{"layers", "1"}, {"heads", "2"}, {"width", "8"}, {"context", "6"},
                                            {"cache_length", "6"}, {"vocabulary", "9"}, {"norm_place", place},
                                            {"attention", "softmax(span=adaptive_span(6, R=3))"}});
    CHECK(FeatureReader(*stream, "")(longer).shape() == Shape{1, 8});
  }
  const auto resnet = model_of("resnet", {{"width", "4"}, {"channels", "1"}, {"classes", "3"}});
  const Tensor pixels = Tensor::full(Shape{2, 8, 8, 1}, 0.5);
  CHECK(FeatureReader(*resnet, "")(pixels).size(0) == 2);
  CHECK(FeatureReader(*resnet, "blocks.0")(pixels).shape() == Shape{2, 4});
}

TEST_CASE("features: a layer that the model lacks is an error that lists the layers") {
  const auto model = small_vit("mean");
  const Tensor pixels = Tensor::zeros(Shape{1, 8, 8, 1});
  const auto refused = [&](const std::string& layer) {
    return expect_error([&] { FeatureReader(*model, layer)(pixels); });
  };
  refused("blocks.2").names("evaluate").value("blocks.2").offers("blocks.0").offers("blocks.1").offers("norm");
  refused("blocks.*").names("features").value("blocks.*").offers("--features=blocks.3");
  refused("blocks.0.attention.weights").names("blocks.0.attention.weights").offers("--features=blocks.0");
}
