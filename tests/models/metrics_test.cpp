// Metrics against plain computations; logging them leaves a run bit-identical.
#include "models/metrics/base/model_metric.h"

#include <doctest/doctest.h>

#include <cmath>

#include "engine/autograd/hooks.h"
#include "engine/ops/ops.h"
#include "engine/system/files.h"
#include "engine/tensor/flops.h"
#include "models/architectures/gpt.h"
#include "models/model.h"
#include "models/training/trainer.h"
#include "tests/support/folder.h"
#include "tests/support/logged_rows.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"
#include "tests/support/small_text.h"
#include "tests/support/train.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::Folder;
using orrery::testing::logged_rows;
using orrery::testing::Message;
using orrery::testing::train;
using orrery::testing::with;
using orrery::testing::write_small_text;

namespace {

Assignments small_run(const Folder& folder, const std::string& out, const Assignments& more = {}) {
  return with({{"data", write_small_text(folder)},
               {"out", folder / out},
               {"steps", "6"},
               {"layers", "2"},
               {"heads", "2"},
               {"width", "16"},
               {"context", "12"},
               {"batch_size", "3"},
               {"gradient_accumulation_steps", "2"},
               {"warmup_steps", "2"},
               {"dropout", "0.1"},
               {"evaluate_every", "0"},
               {"metrics", "all"},
               {"metrics_every", "2"}},
              more);
}
const Assignments stream = {{"model", "stream"},
                            {"cache_length", "40"},
                            {"attention", "softmax(span=adaptive_span(40, R=8), persistent=4)"},
                            {"losses.span_penalty", "1e-4"}};
const Assignments translation = {{"model", "encoder_decoder"},
                                 {"data", ORRERY_SOURCE_DIR "/tests/models/translation/bible.tsv"},
                                 {"source_column", "4"},
                                 {"target_column", "3"},
                                 {"tokenizer", "sentence_piece(vocabulary=150)"},
                                 {"validation_fraction", "0.1"},
                                 {"batch_tokens", "500"},
                                 {"context", "256"}};

bool logs_metric(const std::map<std::string, double>& row, const std::string& metric) {
  for (const auto& [key, value] : row)
    if (key.starts_with(metric + "/")) return true;
  return false;
}

// A freshly initialized model of these settings, with a batch and its metrics.
struct Observed {
  Folder folder;
  std::unique_ptr<nn::Module> model;
  std::unique_ptr<Task> task;
  std::vector<Tensor> batch;
  MetricRow row;

  Observed(const std::string& names, const Assignments& more) {
    TrainSettings s = make_settings(small_run(folder, "run", more));
    task = tasks().at(s.task).make(s.task_settings, s.model_settings, {.batch_size = s.batch_size, .seed = 7});
    model = make_model(s);
    nn::initialize(*model, 5);
    batch = task->batch(0, 0);
    collect_metrics(row, select_metrics(names), *task, *model, batch, nullptr);
  }
  std::map<std::string, Tensor> shown(const std::vector<std::string>& patterns) {
    std::map<std::string, Tensor> all;
    const Hooks hooks(patterns, [&](const std::string& name, const Tensor& value) { all[name] = value; });
    nn::ForwardPass pass;
    task->loss(*model, batch, pass);
    return all;
  }
};

}  // namespace

TEST_CASE("metrics: a run is bit-identical with all metrics and with none, for every task") {
  for (const Assignments& kind : {Assignments{}, stream, translation}) {
    const Folder folder;
    train(small_run(folder, "all", kind));
    train(small_run(folder, "none", with(kind, {{"metrics", "none"}})));
    for (const char* file : {"/step_000006/weights.safetensors", "/step_000006/optimizer.safetensors"})
      CHECK(read_file(folder / ("all" + std::string(file))) == read_file(folder / ("none" + std::string(file))));
    const auto all = logged_rows(folder / "all"), none = logged_rows(folder / "none");
    REQUIRE(all.size() == none.size());
    for (size_t i = 0; i + 1 < all.size(); ++i) {
      CHECK(all[i].at("loss") == none[i].at("loss"));
      CHECK(all[i].at("multiply_adds") == none[i].at("multiply_adds"));
      CHECK(logs_metric(all[i], "gradient_norm") == (i == 0 || i % 2 == 1));  // steps 1, 2, 4 and 6
      CHECK(!logs_metric(none[i], "gradient_norm"));
    }
  }
}

TEST_CASE("metrics: each metric is logged by some small model") {
  std::set<std::string> logged;
  const Assignments forms[] = {
      {{"normalization", "dyt"}, {"feed_forward", "memory(relu)"}, {"attention", "relu_former"}},
      stream,
  };
  for (const Assignments& form : forms) {
    const Folder folder;
    train(small_run(folder, "run", form));
    const auto row = logged_rows(folder / "run").at(0);
    for (const std::string& name : model_metrics().names())
      for (const auto& each : row)
        if (each.first.starts_with((name == "losses" ? "loss" : name == "parameters" ? "alpha" : name) + "/")) {
          logged.insert(name);
          CHECK_MESSAGE(!std::isnan(each.second), each.first, " is not a number");
        }
  }
  for (const std::string& name : model_metrics().names())
    CHECK_MESSAGE(logged.contains(name), name, " is never logged");
}

TEST_CASE("metrics: entropies, zeros and row sums equal those of the weights, sizes those of the hook values") {
  for (const char* attention : {"softmax", "pointwise(relu)", "softmax(persistent=3)"}) {
    CAPTURE(attention);
    Observed observed("entropy, attention_zero_fraction, row_sum, max_score, residual_rms", {{"attention", attention}});
    const auto shown = observed.shown({"*.weights", "*.scores", "*.residual"});
    for (const std::string path : {"blocks.0.attention", "blocks.1.attention"}) {
      const Tensor w = shown.at(path + ".weights");
      const int64_t heads = w.size(1), length = w.size(2), keys = w.size(3), slots = keys - length;
      for (int64_t h = 0; h < heads; ++h) {
        double entropy = 0, sum = 0, zeros = 0;
        for (int64_t b = 0; b < w.size(0); ++b)
          for (int64_t t = 0; t < length; ++t) {
            double total = 0, none = 0, spread = 0;
            std::vector<double> row;
            for (int64_t j = 0; j < keys; ++j)
              if (j <= t || j >= length) row.push_back(w[b][h][t][j].item());
            for (const double x : row) total += x, none += x == 0;
            for (const double x : row)
              if (x > 0) spread -= x / total * std::log(x / total);
            entropy += spread, sum += total, zeros += none / static_cast<double>(t + 1 + slots);
          }
        const auto rows = static_cast<double>(w.size(0) * length);
        const std::string head_path = path + "." + std::to_string(h);
        CHECK(observed.row.at("entropy/" + head_path) == doctest::Approx(entropy / rows).epsilon(1e-6));
        CHECK(observed.row.at("row_sum/" + head_path) == doctest::Approx(sum / rows).epsilon(1e-6));
        CHECK(observed.row.at("attention_zero_fraction/" + head_path) == doctest::Approx(zeros / rows).epsilon(1e-6));
      }
      double largest = 0, squares = 0;
      for (const double x : shown.at(path + ".scores").to_vector()) largest = std::max(largest, std::abs(x));
      CHECK(observed.row.at("max_score/" + path) == doctest::Approx(largest));
      const Tensor residual = shown.at(path + ".residual");
      for (const double x : residual.to_vector()) squares += x * x;
      CHECK(observed.row.at("residual_rms/" + path) ==
            doctest::Approx(std::sqrt(squares / static_cast<double>(residual.numel()))).epsilon(1e-13));
    }
  }
}

TEST_CASE("metrics: padding does not count") {
  const Observed observed("entropy", translation);
  CHECK(observed.row.size() == 12);  // 2 heads x (2 attentions x 2 decoder blocks + 2 encoder blocks)
  for (const auto& each : observed.row) CHECK_MESSAGE(std::isfinite(each.second), each.first);
  // The padding (NaN) of the shorter sentence does not count: the mean is over the other rows.
  const Tensor rows = Tensor::from({2, 1, 2}, std::vector<double>{1, 2, 3, NAN}, Dtype::f64);
  CHECK(means_of_heads(rows) == std::vector<double>{2});
}

TEST_CASE("metrics: units that are 0 for every token are dead; dynamic normalizations saturate at |alpha x| > 2") {
  Observed observed("dead_units, hidden_zero_fraction", {{"feed_forward", "dense(relu)"}, {"bias", "yes"}});
  const Tensor hidden = observed.shown({"*.hidden"}).at("blocks.1.feed_forward.hidden");
  const std::vector<double> values = hidden.to_vector();
  const auto units = static_cast<size_t>(hidden.size(-1));
  double zeros = 0, dead = 0;
  for (size_t unit = 0; unit < units; ++unit) {
    bool open = false;
    for (size_t i = unit; i < values.size(); i += units) zeros += values[i] == 0, open |= values[i] != 0;
    dead += !open;
  }
  CHECK(observed.row.at("hidden_zero_fraction/blocks.1.feed_forward") ==
        doctest::Approx(zeros / static_cast<double>(values.size())));
  CHECK(observed.row.at("dead_units/blocks.1.feed_forward") == doctest::Approx(dead / static_cast<double>(units)));
  CHECK(zeros > 0);

  Observed saturated("saturation", {{"normalization", "dyt(alpha=30)"}, {"initialization", "0.5"}});
  const Tensor x = saturated.shown({"*.input"}).at("blocks.1.attention_norm.input");
  double flat = 0;
  for (const double each : x.to_vector()) flat += std::abs(30 * each) > 2;
  const double fraction = saturated.row.at("saturation/blocks.1.attention_norm");
  CHECK(fraction == doctest::Approx(flat / static_cast<double>(x.numel())));
  CHECK(fraction > 0.1);
}

TEST_CASE("metrics: variances of sublayer outputs, of the residual stream before them, and of head outputs") {
  Observed observed("output_variance, residual_variance, head_output_variance, value_variance",
                    {{"attention", "naive"}});
  CHECK(observed.row.size() == 2 * 2 * 2 + 2 * 2);  // 2 metrics of 2 sublayers, 2 metrics of 1 attention, in 2 blocks
  const auto shown = observed.shown({"*.output", "*.stream", "*.residual", "*.head_output", "*.value"});
  const auto variance_of = [](const Tensor& x) {
    double sum = 0, squares = 0;
    for (const double each : x.to_vector()) sum += each, squares += each * each;
    const auto n = static_cast<double>(x.numel());
    return squares / n - sum / n * (sum / n);
  };
  for (const std::string sublayer : {"blocks.0.attention", "blocks.1.attention", "blocks.1.feed_forward"}) {
    const Tensor stream = shown.at(sublayer + ".stream"), added = shown.at(sublayer + ".residual") - stream;
    CHECK(observed.row.at("output_variance/" + sublayer) == doctest::Approx(variance_of(added)).epsilon(1e-4));
    CHECK(observed.row.at("residual_variance/" + sublayer) == doctest::Approx(variance_of(stream)).epsilon(1e-5));
  }
  for (const char* what : {"head_output", "value"})
    CHECK(observed.row.at(std::string(what) + "_variance/blocks.1.attention") ==
          doctest::Approx(variance_of(shown.at(std::string("blocks.1.attention.") + what))).epsilon(1e-5));
}

TEST_CASE("metrics: fraction of the largest slots, and mean cosine between slot values") {
  for (const char* feed_forward : {"memory(relu, slots=9)", "memory(softmax, slots=9)"}) {
    CAPTURE(feed_forward);
    Observed observed("top_unit_fraction, value_cosine", {{"feed_forward", feed_forward}});
    const std::string path = "blocks.1.feed_forward";
    const std::vector<double> hidden = observed.shown({"*.hidden"}).at(path + ".hidden").to_vector();
    Tensor v;
    for (const auto& [name, parameter] : nn::parameters_of(*observed.model))
      if (name == path + ".value") v = parameter->value;
    constexpr size_t slots = 9;
    double largest = 0, read[slots] = {}, rows = 0;
    for (size_t i = 0; i < hidden.size(); i += slots) {
      double all = 0, row_max = 0;
      for (size_t s = 0; s < slots; ++s) {
        const double a = hidden[i + s];
        all += a, row_max = std::max(row_max, a), read[s] += a;
      }
      if (all > 0) largest += row_max / all, ++rows;  // the top 0.2 % of nine slots: at least one
    }
    CHECK(observed.row.at("top_unit_fraction/" + path) == doctest::Approx(largest / rows).epsilon(1e-5));
    double together = 0, pairs = 0;
    const auto at = [](size_t i) { return static_cast<int64_t>(i); };
    for (size_t s = 0; s < slots; ++s)
      for (size_t t = 0; t < slots; ++t) {
        const Tensor a = v[at(s)], b = v[at(t)];
        const double cosine = sum(a * b).item() / std::sqrt(sum(a * a).item() * sum(b * b).item());
        if (s != t) together += read[s] * read[t] * cosine, pairs += read[s] * read[t];
      }
    CHECK(observed.row.at("value_cosine/" + path) == doctest::Approx(together / pairs).epsilon(1e-4));
  }
}

TEST_CASE("metrics: gradient norms of the components add up to the total, and learned scalars are logged by name") {
  const Folder folder;
  train(small_run(folder, "run", {{"normalization", "dyt"}, {"attention", "softmax(temperature=learned(2))"}}));
  const auto row = logged_rows(folder / "run").at(5);
  double squares = 0;
  for (const auto& [key, value] : row)
    if (key.starts_with("gradient_norm/")) squares += value * value;
  CHECK(std::sqrt(squares) == doctest::Approx(row.at("gradient_norm")).epsilon(1e-9));
  for (const char* key :
       {"gradient_norm/blocks.0.attention", "gradient_norm/blocks.1.feed_forward", "gradient_norm/token_embedding",
        "alpha/blocks.0.attention_norm", "alpha/norm", "temperature/blocks.1.attention.1"})
    CHECK_MESSAGE(row.contains(key), key);
  CHECK(std::abs(row.at("alpha/norm") - 0.5) < 0.1);
}

TEST_CASE("metrics: gradient norms have the bits of one sum over each parameter, added by component") {
  GptSettings settings;
  settings.layers = 2, settings.heads = 2, settings.width = 96, settings.context = 8, settings.vocabulary = 17;
  Gpt model(settings);
  nn::initialize(model, 1);
  nn::FlatParameters flat(model);
  nn::ForwardPass pass;
  sum(model(Tensor::zeros({1, 8}, Dtype::i32), pass)).backward();
  flat.write_pending_zeros();
  MetricRow row;
  model_metrics().at("gradient_norm").of_parameters(row, flat);
  std::map<std::string, double> squares;
  const Tensor square = Tensor::zeros({}, Dtype::f64);
  for (const nn::FlatParameters::Segment& segment : flat.segments())
    for (const auto& [key, norm] : row)
      if (segment.path.starts_with(key.substr(key.find('/') + 1) + ".")) {
        nn::sum_of_squares(segment.parameter->value.grad(), square);
        squares[key] += square.item();
      }
  CHECK(row.size() > 4);
  for (const auto& [key, norm] : row) {
    const std::string name = key;
    CAPTURE(name);
    CHECK(norm == std::sqrt(squares.at(name)));
  }
}

TEST_CASE("metrics: shared parameters are logged for the model, and biases of queries and keys are not logged") {
  const Folder folder;
  train(small_run(folder, "run",
                  {{"feed_forward", "dense(leaky_relu_learned)"},
                   {"shared_activation", "yes"},
                   {"embedding_scale", "learned(2)"},
                   {"attention_bias", "query_key"}}));
  const auto row = logged_rows(folder / "run").at(5);
  CHECK(std::abs(row.at("activation/model") - 0.01) < 0.1);
  CHECK(std::abs(row.at("embedding_scale/model") - 2) < 0.2);
  for (const auto& each : row) {
    CHECK_MESSAGE(!each.first.ends_with('/'), each.first);
    CHECK_MESSAGE(each.first.find("_bias/") == std::string::npos, each.first);
  }
}

TEST_CASE("metrics: learned parameters of attention are logged per head, layer or model") {
  const std::pair<std::string, const char*> all[] = {{"head", "activation/blocks.0.attention.1"},
                                                     {"layer", "activation/blocks.0.attention"},
                                                     {"model", "attention_activation/model"}};
  for (const auto& [per, key] : all) {
    const Folder folder;
    train(small_run(folder, "run", {{"attention", "pointwise(prelu, gate=prelu, parameters_per=" + per + ")"}}));
    const auto row = logged_rows(folder / "run").at(5);
    const std::string unit = per;
    CAPTURE(unit);
    CHECK(row.at(key) != 0.25);
    CHECK(std::abs(row.at(key) - 0.25) < 0.1);
    CHECK(std::abs(row.at("gate_activation/blocks.0.attention") - 0.25) < 0.1);
  }
  const Folder folder;
  train(small_run(folder, "run", {{"attention", "pointwise(xielu)"}}));
  const auto row = logged_rows(folder / "run").at(5);
  for (const std::string head : {"0", "1"}) {
    const std::string path = "activation/blocks.0.attention." + head;
    CHECK(std::abs(row.at(path + ".0") - 0.203) < 0.2);  // softplus^-1(0.8)
    CHECK(std::abs(row.at(path + ".1") + 1.05) < 0.2);   // softplus^-1(0.3)
    CHECK(!row.contains(path));
  }
}

TEST_CASE("metrics: the multiply-adds of a step are those of its matrix products, forward and backward") {
  // Without attention a step has only products, each computed three times (result, 2 gradients).
  const Folder folder;
  const Assignments plain = {
      {"layers", "1"}, {"batch_size", "3"}, {"gradient_accumulation_steps", "1"}, {"vocabulary", "0"}};
  train(small_run(folder, "one", plain));
  train(small_run(folder, "two", with(plain, {{"gradient_accumulation_steps", "2"}, {"peak_tflops", "0.5"}})));
  const auto one = logged_rows(folder / "one").at(3), two = logged_rows(folder / "two").at(3);
  CHECK(two.at("multiply_adds") == 2 * one.at("multiply_adds"));
  CHECK(!one.contains("mfu"));
  CHECK(two.at("mfu") == doctest::Approx(2 * two.at("multiply_adds") / (two.at("step_ms") * 1e-3 * 0.5e12)));
  const double before = flops_counted();
  matmul(Tensor::full({3, 5}, 1), Tensor::full({5, 7}, 1));
  CHECK(flops_counted() - before == 2 * 3 * 5 * 7);
}

TEST_CASE("metrics: an unknown name is an error before the folder is created") {
  const Folder folder;
  const Assignments unknown = {{"metrics", "entropies"}};
  expect_error([&] { train(small_run(folder, "run", unknown)); }).value("entropies").offers("'entropy'");
  CHECK(!file_exists(folder / "run"));
  CHECK(select_metrics("none").empty());
  CHECK(select_metrics("all").size() == model_metrics().names().size());
  CHECK(select_metrics("entropy,span").size() == 2);
}

TEST_CASE("metrics: a listed metric that the model lacks is reported once, with the components that have it") {
  const Folder folder;
  std::vector<std::string> warnings;
  TrainingEvents events;
  events.warning = [&](const std::string& message) {
    if (message.starts_with("--metrics")) warnings.push_back(message);
  };
  Trainer(make_settings(small_run(folder, "listed", {{"metrics", "span,entropy,value_cosine"}}))).run(events);
  REQUIRE(warnings.size() == 2);
  Message(warnings[0]).names("--metrics").value("'span'").offers("adaptive_span");
  Message(warnings[1]).names("--metrics").value("'value_cosine'").offers("--feed_forward=memory");
  for (const char* const general : {"all", "default", "none"})
    Trainer(make_settings(small_run(folder, general, {{"metrics", general}}))).run(events);
  CHECK(warnings.size() == 2);
  for (const char* file : {"/step_000006/weights.safetensors", "/step_000006/optimizer.safetensors"})
    CHECK(read_file(folder / ("listed" + std::string(file))) == read_file(folder / ("none" + std::string(file))));
}
