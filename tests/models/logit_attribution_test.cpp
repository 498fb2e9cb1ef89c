// Logit attribution: the components add up to the logits, and each equals a plain computation.
#include <doctest/doctest.h>

#include <cmath>

#include "engine/autograd/hooks.h"
#include "engine/ops/ops.h"
#include "models/inspection/base/targets.h"
#include "nn/normalizations/base/normalization.h"
#include "tests/support/inspected_examples.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

const std::string prefix = "logit_attribution/difference/";

int32_t most_likely_other(std::vector<double> z, int32_t answer) {
  z[static_cast<size_t>(answer)] = -INFINITY;
  return most_likely(z);
}
// Returns the mean, over the rows with a target, of its logit minus that of the most likely other one.
double mean_difference(const InspectedExample& example) {
  const Tensor logits = example.run();
  const std::vector<int32_t> targets = targets_of(example, logits).by_row;
  double total = 0, count = 0;
  for (size_t row = 0; row < targets.size(); ++row) {
    if (targets[row] < 0) continue;
    const std::vector<double> z = logits[static_cast<int64_t>(row)].to_vector();
    total += z[static_cast<size_t>(targets[row])] - z[static_cast<size_t>(most_likely_other(z, targets[row]))], ++count;
  }
  return total / count;
}

// Checks that the components, none of which is a rest, add up to the difference of the logits.
void check_sum(const InspectedExample& example, double tolerance) {
  const auto metrics = metrics_of(analyze(example, "logit_attribution", {}));
  double total = 0, size = 0;
  for (const auto& [name, value] : metrics)
    if (name.starts_with(prefix)) total += value, size += std::abs(value);
  const double expected = mean_difference(example);
  CHECK(metrics.count(prefix + "rest") == 0);
  CHECK(std::abs(total - expected) <= tolerance * (1 + size));
  CHECK(std::abs(metrics.at("logit_attribution/logit_difference") - expected) <= tolerance * (1 + size));
}

Tensor captured(const InspectedExample& example, const std::string& name) {
  Tensor value;
  const Hooks hooks({name}, [&](const std::string&, const Tensor& x) { value = x.clone(); });
  example.run();
  hooks.check_all_matched();
  return value;
}
// Returns row `from` of the unembedding minus row `to`, (C).
Tensor direction_of(nn::Module& model, int64_t from, int64_t to) {
  const Tensor weight = parameter_of(model, "token_embedding.weight");
  return weight[from] - weight[to];
}
double dot(const Tensor& x, const Tensor& y) { return sum(x * y).item(); }

const AnalysisSettings five_against_two = {.answer = "5", .against = "2", .top = 1000};  // at the last position

}  // namespace

TEST_CASE("logit attribution: components add up to the logits, for every model class") {
  int attributed = 0;
  for (const ModelCase& each : model_cases()) {
    CAPTURE(each.described());
    const auto model = make_model(make_settings(each.settings));
    randomize(*model);
    const auto inspected = example_of(*model);
    if (analyze(*inspected, "logit_attribution", {}).empty()) {
      CHECK(each.settings[0].second == "resnet");
      continue;
    }
    check_sum(*inspected, 1e-5);
    ++attributed;
  }
  CHECK(attributed > 25);
}

TEST_CASE("logit attribution: components add up to the logits, for every normalization before, after and at the end") {
  for (const std::string& name : nn::normalizations().names())
    for (const char* place : {"pre", "post"})
      for (const std::string last : {"same", name.c_str()}) {
        CAPTURE(name);
        CAPTURE(place);
        const auto model = small_gpt({{"normalization", name}, {"norm_place", place}, {"final_normalization", last}});
        check_sum(*example_of(*model), 1e-11);
      }
  const auto vit = make_model(make_settings({{"model", "vit"}, {"image_size", "8"}, {"channels", "1"}, {"classes", "3"},
                                             {"layers", "2"}, {"heads", "2"}, {"width", "16"},
                                             {"normalization", "group(groups=4, over=sequence)"}}));
  nn::convert(*vit, Dtype::f64);
  randomize(*vit);
  check_sum(*example_of(*vit), 1e-11);
}

TEST_CASE("logit attribution: without biases no attention has a bias, with them it is that of its output") {
  for (const bool bias : {false, true}) {
    const auto model = small_gpt({{"bias", bias ? "yes" : "no"}, {"final_normalization", "none"}});
    const auto inspected = example_of(*model);
    const auto metrics = metrics_of(analyze(*inspected, "logit_attribution", five_against_two));
    CHECK((metrics.count(prefix + "blocks.1.attention.bias") == 1) == bias);
    if (bias)
      CHECK(metrics.at(prefix + "blocks.1.attention.bias") ==
            doctest::Approx(dot(parameter_of(*model, "blocks.1.attention.output.bias"), direction_of(*model, 5, 2)))
                .epsilon(1e-9));
  }
}

TEST_CASE("logit attribution: heads, units, embedding and positions equal plain products without a final norm") {
  const auto model = small_gpt({{"final_normalization", "none"}, {"feed_forward", "dense(relu)"},
                                {"position", "learned"}, {"residual_gain", "0.5"}});
  const auto inspected = example_of(*model);
  const std::vector<View> views = analyze(*inspected, "logit_attribution", five_against_two);
  const Tensor u = direction_of(*model, 5, 2);
  const auto& heads = shown<MapView>(views, "logit_attribution/heads");
  const Tensor z = captured(*inspected, "blocks.1.attention.head_output")[0][7],  // (H, D)
      w_o = parameter_of(*model, "blocks.1.attention.output.weight");             // (C, H D)
  for (int64_t head = 0; head < 2; ++head) {
    const Tensor columns = slice(w_o, 1, 8 * head, 8 * head + 8);
    const Tensor added = matmul(columns, z[head].reshape(Shape{8, 1})).reshape(Shape{16});
    CHECK(row_of(heads, "blocks.1.attention")[static_cast<size_t>(head)] ==
          doctest::Approx(0.5 * dot(added, u)).epsilon(1e-9));
  }
  const Tensor hidden = captured(*inspected, "blocks.0.feed_forward.hidden")[0][7],
               w_out = parameter_of(*model, "blocks.0.feed_forward.output.weight");  // (C, N)
  const auto& units = shown<TableView>(views, "Units with the largest contributions");
  CHECK(units.rows.size() == 128);
  for (const auto& row : units.rows) {
    const std::string path = "blocks.0.feed_forward unit ";
    if (!row[0].starts_with(path)) continue;
    const int64_t unit = std::stoll(row[0].substr(path.size()));
    const double expected = 0.5 * hidden.to_vector()[static_cast<size_t>(unit)] *
                            dot(slice(w_out, 1, unit, unit + 1).reshape(Shape{16}), u);
    CHECK(std::abs(std::stod(row[3]) - expected) < 1e-4);
  }
  const auto metrics = metrics_of(views);
  const Tensor token = captured(*inspected, "token_embedding.output")[0][7],
               position = parameter_of(*model, "position_embedding.weight")[7];
  CHECK(metrics.at(prefix + "embedding") == doctest::Approx(dot(token, u)).epsilon(1e-9));
  CHECK(metrics.at(prefix + "positions") == doctest::Approx(dot(position, u)).epsilon(1e-9));
}

TEST_CASE("logit attribution: a final normalization has the divisor of the actual state") {
  for (const std::string last : {"layer", "rms", "dyt"}) {
    CAPTURE(last);
    const auto model = small_gpt({{"final_normalization", last}});
    const auto inspected = example_of(*model);
    const auto metrics = metrics_of(analyze(*inspected, "logit_attribution", five_against_two));
    const Tensor state = captured(*inspected, "blocks.1.feed_forward.residual")[0][7],
                 a = captured(*inspected, "blocks.0.feed_forward.output")[0][7],
                 weight = parameter_of(*model, "norm.weight"), u = direction_of(*model, 5, 2) * weight;
    const auto centred = [](const Tensor& x) { return x - mean(x, {0}, true); };
    double expected = 0;
    if (last == "dyt") {
      const Tensor alpha = parameter_of(*model, "norm.alpha");
      expected = dot(a * tanh(alpha * state) / state, u);
    } else {
      const Tensor x = last == "layer" ? centred(state) : state, d = last == "layer" ? centred(a) : a;
      expected = dot(d / sqrt(mean(x * x, {0}, true) + 1e-5), u);
    }
    CHECK(metrics.at(prefix + "blocks.0.feed_forward") == doctest::Approx(expected).epsilon(1e-8));
  }
}

TEST_CASE("logit attribution: answers are named, at the last or the given position; wrong names are refused") {
  const auto model = small_gpt({});
  const auto inspected = example_of(*model);
  const auto z = [&](int64_t row, size_t index) { return inspected->run()[row].to_vector()[index]; };
  const auto difference = [&](const AnalysisSettings& s) {
    return metrics_of(analyze(*inspected, "logit_attribution", s)).at("logit_attribution/logit_difference");
  };
  CHECK(difference(five_against_two) == doctest::Approx(z(7, 5) - z(7, 2)).epsilon(1e-12));
  CHECK(difference({.position = 3, .answer = "␣5", .against = " 2"}) ==
        doctest::Approx(z(3, 5) - z(3, 2)).epsilon(1e-12));
  const int32_t other = most_likely_other(inspected->run()[7].to_vector(), 5);
  CHECK(difference({.answer = "5"}) == doctest::Approx(z(7, 5) - z(7, static_cast<size_t>(other))).epsilon(1e-12));
  const auto target = static_cast<size_t>(inspected->targets()[3]);
  if (target != 2)
    CHECK(difference({.position = 3, .against = "2"}) == doctest::Approx(z(3, target) - z(3, 2)).epsilon(1e-12));
  const auto refused = [&](const AnalysisSettings& s) {
    return expect_error([&] { analyze(*inspected, "logit_attribution", s); });
  };
  refused({.answer = "55"}).names("--answer").value("55").offers("predictions");
  refused({.answer = "5", .against = "5"}).names("--answer").names("--against").value("5").offers("another");
  refused({.position = 8}).names("position").value(8).offers(7);

  const auto vit = make_model(make_settings({{"model", "vit"}, {"image_size", "8"}, {"channels", "1"}, {"classes", "3"},
                                             {"layers", "1"}, {"heads", "2"}, {"width", "16"}}));
  randomize(*vit);
  const auto image = example_of(*vit);
  const std::vector<double> logits = image->run()[0].to_vector();
  const auto metrics = metrics_of(analyze(*image, "logit_attribution", {.answer = "bag", .against = "shoe"}));
  CHECK(metrics.at("logit_attribution/logit_difference") == doctest::Approx(logits[0] - logits[2]).epsilon(1e-5));
}
