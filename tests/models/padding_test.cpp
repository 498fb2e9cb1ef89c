// Padding in a batch of pairs: metrics and signal propagation treat each pair separately.
#include "models/metrics/base/padding.h"

#include <doctest/doctest.h>

#include <cmath>

#include "models/data/sentence_pairs.h"
#include "models/metrics/base/model_metric.h"
#include "models/training/signal_propagation.h"
#include "models/training/trainer.h"
#include "tests/support/folder.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::Folder;

namespace {

// A translator with random weights, and two pairs with different lengths.
struct Translator {
  Folder folder;
  Trainer trainer{make_settings({{"model", "encoder_decoder"},
                                 {"data", ORRERY_SOURCE_DIR "/tests/models/translation/bible.tsv"},
                                 {"source_column", "4"},
                                 {"target_column", "3"},
                                 {"tokenizer", "sentence_piece(vocabulary=150)"},
                                 {"validation_fraction", "0.1"},
                                 {"label_smoothing", "0"},
                                 {"context", "256"},
                                 {"layers", "2"},
                                 {"heads", "2"},
                                 {"width", "16"},
                                 {"initialization", "0.5"},
                                 {"normalization", "dyt(alpha=3)"},
                                 {"decoder_attention", "softmax(span=dynamic_span(64, R=4), attend_to_self=yes)"},
                                 {"cross_attention", "softmax(qk_norm=dyt(alpha=3))"},
                                 {"feed_forward", "memory(relu, slots=9)"},
                                 {"out", folder / "run"}})};
  Pair a{.source = {4, 9, 12, 31, 7, 22, 90, 5}, .target = {8, 70, 3}},
      b{.source = {11, 6}, .target = {33, 12, 8, 64, 27, 9, 100, 41, 2, 71, 5}};

  std::vector<Tensor> batch(const std::vector<const Pair*>& pairs) const {
    const PairBatch made = batch_of(pairs, {.begin = 1, .end = 2, .vocabulary = 150});
    return {made.sources, made.source_lengths, made.inputs, made.targets, made.target_lengths};
  }
  MetricRow metrics(const std::vector<const Pair*>& pairs) {
    MetricRow row;
    collect_metrics(row, select_metrics("all"), trainer.task(), trainer.model(), batch(pairs), nullptr);
    return row;
  }
  SignalPropagation propagation(const std::vector<const Pair*>& pairs) {
    return measure_signals(trainer.settings(), trainer.task(), trainer.model(), batch(pairs));
  }
  // Returns how many tokens of a pair the value with this name covers.
  static double tokens(const std::string& name, const Pair& pair) {
    const bool of_encoder =
        name.find("cross_attention") != name.npos && (name.find("key") != name.npos || name.find("value") != name.npos);
    const bool source = name.find("encoder.") != name.npos || of_encoder;
    return static_cast<double>(source ? pair.source.size() : pair.target.size());
  }
};

}  // namespace

TEST_CASE("padding: metrics do not count it") {
  Translator t;
  const MetricRow both = t.metrics({&t.a, &t.b}), of_a = t.metrics({&t.a}), of_b = t.metrics({&t.b});
  std::set<std::string> compared;
  for (const auto& each : both) {
    const auto& key = each.first;
    const auto& value = each.second;
    CAPTURE(key);
    const std::string metric = key.substr(0, key.find('/'));
    const double a = of_a.at(key), b = of_b.at(key), n = Translator::tokens(key, t.a), m = Translator::tokens(key, t.b);
    const auto mean = [&](double x, double y) { return (n * x + m * y) / (n + m); };
    if (metric == "max_score") {
      CHECK(value == doctest::Approx(std::max(a, b)).epsilon(1e-5));
    } else if (metric == "residual_rms") {
      CHECK(value == doctest::Approx(std::sqrt(mean(a * a, b * b))).epsilon(1e-5));
    } else if (metric == "dead_units") {
      CHECK(value <= std::min(a, b));
    } else if (metric.ends_with("variance")) {  // mean of variances plus variance of means
      CHECK(value >= mean(a, b) * 0.9999);
    } else if (metric == "top_unit_fraction" || metric == "value_cosine" || metric == "loss") {
      continue;  // not only means over tokens
    } else {
      CHECK(value == doctest::Approx(mean(a, b)).epsilon(1e-5));
    }
    compared.insert(metric);
  }
  for (const char* metric :
       {"attention_zero_fraction", "entropy", "row_sum", "span", "saturation", "hidden_zero_fraction"})
    CHECK_MESSAGE(compared.contains(metric), metric, " is not logged");
}

TEST_CASE("padding: hook values of every shape lose only their padding") {
  Translator t;
  nn::ForwardPass pass;
  pass.lengths = Tensor::from(Shape{2}, std::vector<int32_t>{1, 3});
  pass.encoder_lengths = Tensor::from(Shape{2}, std::vector<int32_t>{2, 1});
  const Padding padding(t.trainer.model(), &pass);
  const auto real = [&](const std::string& name, const Tensor& x) {
    return without_padding(name, x, padding.lengths(name, x));
  };
  const auto counted = [](const Shape& shape) {
    std::vector<double> numbers(static_cast<size_t>(shape.numel()));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i);
    return Tensor::from(shape, numbers, Dtype::f64);
  };
  const std::string self = "decoder.0.attention.layer.", cross = "decoder.0.cross_attention.layer.";
  const Tensor x = real(self + "residual", counted({2, 3, 2}));
  CHECK(x.shape() == Shape{1, 4, 2});
  CHECK(x.to_vector() == std::vector<double>{0, 1, 6, 7, 8, 9, 10, 11});
  const Tensor rows = real(self + "row_entropy", counted({2, 2, 3}));
  CHECK(rows.shape() == Shape{1, 2, 4});
  CHECK(rows.to_vector() == std::vector<double>{0, 6, 7, 8, 3, 9, 10, 11});
  CHECK(real(cross + "value", counted({2, 2, 1, 1})).to_vector() == std::vector<double>{0, 1, 2});
  CHECK(real(cross + "key_norm.input", counted({2, 2, 1, 1})).to_vector() == std::vector<double>{0, 1, 2});
  CHECK(real(cross + "query", counted({2, 3, 1, 1})).to_vector() == std::vector<double>{0, 3, 4, 5});
  CHECK(real(self + "value", counted({2, 3, 1, 1})).to_vector() == std::vector<double>{0, 3, 4, 5});
  CHECK(real("decoder.0.feed_forward.layer.hidden", counted({2, 1, 3, 1})).to_vector() ==
        std::vector<double>{0, 3, 4, 5});
  CHECK(real(self + "span.span", counted({2})).to_vector() == std::vector<double>{0, 1});  // per head
  pass.lengths = Tensor::from(Shape{2}, std::vector<int32_t>{3, 3});
  const Tensor whole = counted({2, 3, 2});
  CHECK(real(self + "residual", whole).data<double>() == whole.data<double>());
}

TEST_CASE("padding: signal propagation does not count it") {
  Translator t;
  const SignalPropagation both = t.propagation({&t.a, &t.b}), of_a = t.propagation({&t.a}),
                          of_b = t.propagation({&t.b});
  REQUIRE(both.values.size() == of_a.values.size());
  // The loss is a mean over targets: each pair's gradients are weighted by its fraction of them.
  const auto targets = [](const Pair& pair) { return static_cast<double>(pair.target.size()); };
  const double fraction = targets(t.a) / (targets(t.a) + targets(t.b));
  for (const SignalPropagation::Value& value : both.values) {
    CAPTURE(value.name);
    const SignalPropagation::Value &a = *of_a.find(value.name), &b = *of_b.find(value.name);
    const double n = Translator::tokens(value.name, t.a), m = Translator::tokens(value.name, t.b);
    CHECK(value.mean_square == doctest::Approx((n * a.mean_square + m * b.mean_square) / (n + m)).epsilon(1e-5));
    const double gradient = fraction * fraction * n * a.gradient + (1 - fraction) * (1 - fraction) * m * b.gradient;
    CHECK(value.gradient == doctest::Approx(gradient / (n + m)).epsilon(1e-4));
  }
  size_t predicted = 0;
  for (const SignalPropagation::Ratio& ratio : both.ratios) {
    if (std::isnan(ratio.v)) continue;
    CAPTURE(ratio.path);
    CAPTURE(ratio.ratio);
    CHECK(std::isfinite(ratio.predicted));
    ++predicted;
  }
  CHECK(predicted > 0);
}
