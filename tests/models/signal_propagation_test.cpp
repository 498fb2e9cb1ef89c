// --signal_propagation=yes: measurements against plain computations and the papers' formulas at
// random weights. The run stays bit-identical.
#include "models/training/signal_propagation.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <random>

#include "engine/autograd/hooks.h"
#include "engine/ops/ops.h"
#include "engine/system/files.h"
#include "models/model.h"
#include "nn/attentions/base/attention.h"
#include "nn/diagnostics/predictions.h"
#include "nn/feed_forwards/base/feed_forward.h"
#include "nn/normalizations/base/normalization.h"
#include "tests/support/logged_rows.h"
#include "tests/support/message.h"
#include "tests/support/small_run.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

Tensor normal(const Shape& shape, unsigned seed, double deviation = 1) {
  std::mt19937 bits(seed);
  std::normal_distribution<double> draw(0, deviation);
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  for (double& x : values) x = draw(bits);
  return Tensor::from(shape, values, Dtype::f32);
}
double mean_square(const Tensor& x) {
  double sum = 0;
  for (const double each : x.to_vector()) sum += each * each;
  return sum / static_cast<double>(x.numel());
}

// Returns the relative difference of a and b (doctest's Approx adds 1 to the value).
double off(double a, double b) { return std::abs(a / b - 1); }

// A module that gives its one component a path.
struct Holder final : nn::Module {
  std::string name;
  std::unique_ptr<nn::Module> module;
  Holder(std::string n, std::unique_ptr<nn::Module> p) : name(std::move(n)), module(std::move(p)) {
    nn::name_paths(*this);
    nn::initialize(*this, 3);
  }
  Tensor forward(const Tensor& x, nn::ForwardPass& pass) override { return (*module)(x, pass); }
  void visit(nn::Visitor& v) override { v(name, *module); }
};

SignalPropagation::Ratio ratio_of(const SignalPropagation& propagation, const std::string& name) {
  for (const SignalPropagation::Ratio& ratio : propagation.ratios)
    if (ratio.ratio == name) return ratio;
  FAIL("there is no ratio " << name);
  return {};
}

struct Shape4 {
  int64_t batch, time, heads, size;
};
// Measures an attention with keys and values N(0, 1) and queries N(0, deviation^2).
SignalPropagation::Ratio head_output_of(const std::string& spec, bool causal, Shape4 s, double deviation) {
  Holder holder("attention",
                nn::make_attention(parse_spec(spec),
                                   {.width = s.heads * s.size, .heads = s.heads, .causal = causal, .context = s.time}));
  const Shape shape{s.batch, s.time, s.heads, s.size};
  const Tensor q = normal(shape, 1, deviation), k = normal(shape, 2), v = normal(shape, 3);
  for (const Tensor& x : {q, k, v}) x.set_requires_grad();
  return ratio_of(measure_modules(holder,
                                  [&] {
                                    nn::ForwardPass pass;
                                    const Tensor y = dynamic_cast<nn::AttentionLayer&>(*holder.module)
                                                         .attend_heads({.query = q, .key = k, .value = v}, {}, pass);
                                    return mean(y * y);
                                  }),
                  "head_output / value");
}

const std::string data_of_tests = ORRERY_SOURCE_DIR "/tests/models/";
struct Kind {
  std::string name;
  Assignments settings;
  size_t residual_steps, ends;  // rows of the residual stream; embeddings and logits among them
};
// One model or more for each family of presets.
const std::vector<Kind> kinds = {
    {"gpt", {{"model", "gpt"}, {"layers", "2"}, {"width", "8"}, {"heads", "2"}, {"context", "8"}}, 6, 2},
    {"gpt, otherwise",
     {{"model", "gpt"},
      {"layers", "2"},
      {"width", "8"},
      {"heads", "2"},
      {"context", "8"},
      {"norm_place", "post"},
      {"attention", "relu_former(dropout=0.2)"},
      {"feed_forward", "memory(softmax)"},
      {"normalization", "dyt"},
      {"gradient_accumulation_steps", "2"},
      {"dropout", "0.3"},
      {"losses.normalization_loss", "0.1"}},
     6,
     2},
    {"bf16",
     {{"model", "gpt"}, {"layers", "1"}, {"width", "8"}, {"heads", "2"}, {"context", "8"}, {"dtype", "bf16"}},
     4,
     2},
    {"stream",
     {{"model", "stream"},
      {"layers", "2"},
      {"width", "8"},
      {"heads", "2"},
      {"context", "8"},
      {"cache_length", "16"},
      {"feed_forward", "none"},
      {"attention", "softmax(span=adaptive_span(16, R=4), persistent=3)"}},
     4,
     2},
    {"vit",
     {{"model", "vit"},
      {"layers", "2"},
      {"width", "8"},
      {"heads", "2"},
      {"patch", "7"},
      {"data", data_of_tests + "images/fashion"}},
     6,
     2},
    {"resnet",
     {{"model", "resnet"}, {"width", "4"}, {"data", data_of_tests + "images/shapes"}, {"batch_size", "4"}},
     4,
     1},
    {"encoder_decoder",
     {{"model", "encoder_decoder"},
      {"layers", "1"},
      {"width", "8"},
      {"heads", "2"},
      {"data", data_of_tests + "translation/bible.tsv"},
      {"source_column", "4"},
      {"target_column", "3"},
      {"tokenizer", "sentence_piece(vocabulary=150)"},
      {"batch_tokens", "300"},
      {"context", "256"}},
     8,
     3},
};
TrainSettings settings_of_kind(const Run& run, const Kind& kind, const Assignments& more) {
  Assignments all = {{"data", run.text}, {"out", run.out},        {"batch_size", "2"},
                     {"steps", "3"},     {"evaluate_every", "0"}, {"metrics_every", "2"}};
  all.insert(all.end(), kind.settings.begin(), kind.settings.end());
  all.insert(all.end(), more.begin(), more.end());
  std::erase_if(all, [&](const auto& each) {  // translation counts its batches in tokens
    return kind.name == "encoder_decoder" && each.first == "batch";
  });
  return make_settings(all);
}

}  // namespace

// The scores are not exactly normal: given the query their variance is |q|^2 / D, 1 +- sqrt(2 /
// 64); E exp(2 s) rises by 2 %, E s^4 by 3 %. exp(v) / n is the limit of many keys: at v = 1 the
// next term is -7.6 / n, 3 % at 256. 16 x 256 rows of 256 keys have a sampling error below 1 %.
TEST_CASE("signal propagation: head outputs over all keys match the formulas to 6 percent") {
  const Shape4 shape{4, 256, 4, 64};
  const std::map<std::string, double> by_hand = {{"softmax", std::exp(1.0) / 256},
                                                 {"pointwise(relu, alpha=1)", 0.5 / 256},
                                                 {"pointwise(relu_squared, alpha=1)", 1.5 / 256},
                                                 {"pointwise(identity, alpha=0.5)", 1},
                                                 {"pointwise(relu, alpha=1, length=fixed(16))", 0.5},
                                                 {"naive", 128},
                                                 {"relu_former(gamma=1.5)", 1 / 2.25}};
  for (const auto& each : by_hand) {
    const auto& [spec, expected] = each;
    CAPTURE(each.first);
    const SignalPropagation::Ratio read = head_output_of(spec, false, shape, 1);
    CHECK(off(read.v, 1) <= 0.01);
    CHECK(off(read.predicted, expected) <= 0.02);  // with the measured v
    CHECK(off(read.measured, read.predicted) <= 0.06);
  }
  for (const char* spec : {"pointwise(gelu)", "pointwise(sigmoid)", "pointwise(softplus)"}) {
    CAPTURE(spec);
    const SignalPropagation::Ratio read = head_output_of(spec, false, shape, 1);
    CHECK(off(read.measured, read.predicted) <= 0.06);
  }
  CHECK(std::isnan(head_output_of("sparsemax", false, shape, 1).predicted));
}

// The mean of 1 / n over the rows is 5.4 / 128; the first rows dominate. The 64 (batch x heads)
// rows of one key have a deviation of 2.2 in relu(s)^2: 2.2 / 8 x 1.1 / 5.4 = 6 %. Softmax's first
// row is exact: 64 x 64 numbers give 1 %. Terms beyond first order in v = 0.09 are below 1 %.
TEST_CASE("signal propagation: causal rows are predicted with their visible keys") {
  const Shape4 shape{16, 128, 4, 64};
  const SignalPropagation::Ratio softmax = head_output_of("softmax", true, shape, 0.3);
  double sum = 0;
  for (int n = 1; n <= 128; ++n) sum += (1 + std::expm1(softmax.v) * (1 - 1.0 / n)) / n / 128;
  CHECK(off(softmax.v, 0.09) <= 0.03);
  CHECK(off(softmax.predicted, sum) <= 1e-9);
  CHECK(off(softmax.measured, sum) <= 0.04);
  CHECK(off(head_output_of("relu_former", true, shape, 1).predicted, 1) <= 0.02);
  CHECK(off(head_output_of("relu_former", true, shape, 1).measured, 1) <= 0.04);
  const SignalPropagation::Ratio relu = head_output_of("pointwise(relu)", true, shape, 1);
  CHECK(off(relu.measured, relu.predicted) <= 0.2);
  CHECK(off(head_output_of("pointwise(relu, length=row_index)", true, shape, 1).predicted, relu.predicted) <= 1e-12);
}

// A third of ReLU's output comes from the mean weight, which multiplies the sum of the values. Its
// error sqrt(2 / 256) and that of the rest, from 512 slots, give less than 5 %.
TEST_CASE("signal propagation: slots under relu and softmax match the formulas to 10 percent") {
  std::map<std::string, double> outputs;
  for (const char* spec : {"memory(relu)", "memory(softmax)", "dense(gelu)", "gated(silu)"}) {
    CAPTURE(spec);
    constexpr int64_t width = 256, slots = 512;
    Holder holder("feed_forward",
                  nn::make_feed_forward(parse_spec(spec), {.width = width, .d_ff = slots, .bias = false}));
    unsigned seed = 11;
    for (const nn::NamedParameter& each : nn::parameters_of(holder))
      each.parameter->value.copy_from(normal(each.parameter->value.shape(), ++seed, 1 / std::sqrt(width)));
    const Tensor x = normal({64, 16, width}, 5);
    const SignalPropagation propagation = measure_modules(holder, [&] {
      nn::ForwardPass pass;
      return mean(holder(x, pass));
    });
    const SignalPropagation::Ratio hidden = ratio_of(propagation, "hidden / before F");
    CHECK(off(hidden.v, 1) <= 0.02);
    CHECK(off(hidden.measured, hidden.predicted) <= 0.06);
    if (std::string(spec) == "gated(silu)") continue;
    const SignalPropagation::Ratio output = ratio_of(propagation, "output / slots' values");
    CHECK(off(output.measured, output.predicted) <= 0.1);
    outputs[spec] = output.measured;
  }
  // The papers' ratio, (e / S) / (S / 2).
  CHECK(off(outputs["memory(softmax)"] / outputs["memory(relu)"], std::exp(1.0) / 512 / 256) <= 0.15);
}

// 4,096 rows of 64: the variance about the row's mean is 1 - 1 / 64 of v; 1 / variance has a mean
// of 1 + 2 / 64 of its inverse. All else is below 1 %.
TEST_CASE("signal propagation: normalizations give mean square 1, dynamic ones keep it, and so do their derivatives") {
  const Tensor x = normal({4096, 64}, 1, 1.5), g = normal({4096, 64}, 2);
  for (const char* spec : {"layer", "rms", "none", "dyt", "dyt(alpha=2)", "derf", "derf(alpha=0.7, shift=0.4)",
                           "dynamic(hardtanh, alpha=0.8)", "dynamic(sigmoid)", "dynamic(identity, alpha=0.3)"}) {
    CAPTURE(spec);
    Holder holder("norm", nn::make_normalization(parse_spec(spec), {.width = 64}));
    const Tensor in = x.clone();
    in.set_requires_grad();
    const SignalPropagation propagation = measure_modules(holder, [&] {
      nn::ForwardPass pass;
      return sum(holder(in, pass) * g);
    });
    const SignalPropagation::Ratio forward = ratio_of(propagation, "output / input"),
                                   backward = ratio_of(propagation, "gradient of input / of output");
    CHECK(off(forward.v, 2.25) <= 0.02);
    CHECK(off(forward.measured, forward.predicted) <= 0.02);
    CHECK(off(backward.measured, backward.predicted) <= 0.06);
    CHECK(off(propagation.find("norm.input")->gradient, mean_square(in.grad())) <= 1e-6);
  }
}

TEST_CASE("signal propagation: mean squares forward and backward equal those of a plain pass") {
  const Run run;
  const TrainSettings given =
      run.settings({{"layers", "2"}, {"attention", "softmax(dropout=0.1)"}, {"dropout", "0.2"}});
  Trainer trainer(given);
  const TrainSettings& s = trainer.settings();
  nn::Module& model = trainer.model();
  const std::vector<Tensor> batch = trainer.task().batch(0, 0);
  const SignalPropagation propagation = measure_signals(s, trainer.task(), model, batch);
  std::map<std::string, Tensor> captured, leaves;
  const std::vector<std::string> hook_names = {"embedding",
                                               "logits",
                                               "blocks.0.attention.value",
                                               "blocks.0.attention.head_output",
                                               "blocks.1.attention.stream",
                                               "blocks.1.feed_forward.output",
                                               "blocks.1.feed_forward.residual",
                                               "norm.input"};
  {
    const Hooks hooks(hook_names, [&](const std::string& name, const Tensor& value) { captured[name] = value; });
    nn::ForwardPass pass;  // no dropout
    trainer.task().loss(model, batch, pass);
  }
  for (const std::string& name : hook_names) {
    CAPTURE(name);
    const SignalPropagation::Value* const value = propagation.find(name);
    REQUIRE(value != nullptr);
    CHECK(off(value->mean_square, mean_square(captured.at(name))) <= 1e-5);
    // Compares with the gradient of a leaf that replaces the value.
    const Tensor leaf = captured.at(name).clone();
    leaf.set_requires_grad();
    const Hooks hooks({name}, Hooks::Replace{[&](const std::string&, const Tensor&) { return leaf; }});
    nn::ForwardPass pass;
    trainer.task().loss(model, batch, pass).backward();
    CHECK(off(value->gradient, mean_square(leaf.grad())) <= 1e-4);
  }
  const std::vector<ResidualRow> steps = residual_rows(propagation);
  REQUIRE(steps.size() == 6);
  CHECK(steps[0].path == "embedding");
  CHECK(steps[2].path == "blocks.0.feed_forward");
  CHECK(steps[1].after->mean_square == steps[2].before->mean_square);
  CHECK(steps[5].path == "logits");
}

TEST_CASE("signal propagation: a run of every family stays bit-identical, and its file restores the values") {
  for (const Kind& kind : kinds) {
    CAPTURE(kind.name);
    const Run plain, probed;
    SignalPropagation reported;
    TrainingEvents events;
    events.propagation = [&](const SignalPropagation& propagation) { reported = propagation; };
    const TrainingResult one = Trainer(settings_of_kind(plain, kind, {})).run(),
                         other = Trainer(settings_of_kind(probed, kind, {{"signal_propagation", "yes"}})).run(events);
    for (const char* file : {"/weights.safetensors", "/optimizer.safetensors"})
      CHECK(read_file(one.checkpoint + file) == read_file(other.checkpoint + file));
    CHECK(rows_without_time(plain.out) == rows_without_time(probed.out));
    CHECK(!file_exists(propagation_file(plain.out)));

    const SignalPropagation read = read_propagation(propagation_file(probed.out));
    REQUIRE(read.values.size() == reported.values.size());
    REQUIRE(read.ratios.size() == reported.ratios.size());
    CHECK(!read.ratios.empty());
    for (size_t i = 0; i < read.values.size(); ++i) {
      CAPTURE(read.values[i].name);
      CHECK(read.values[i].name == reported.values[i].name);
      CHECK(read.values[i].mean_square == reported.values[i].mean_square);
      CHECK(std::isfinite(read.values[i].mean_square));
      CHECK(std::isfinite(read.values[i].gradient));
      CHECK(read.values[i].gradient == reported.values[i].gradient);
    }
    const std::vector<ResidualRow> steps = residual_rows(read);
    CHECK(steps.size() == kind.residual_steps);
    size_t ends = 0;
    for (const ResidualRow& step : steps) {
      REQUIRE(step.after != nullptr);
      ends += step.before == nullptr;
    }
    CHECK(ends == kind.ends);
  }
}

TEST_CASE("signal propagation: dropout is off, and only the first step is measured") {
  const Run without, with;
  const Assignments probing = {{"signal_propagation", "yes"}, {"steps", "2"}};
  without.train(probing);
  Assignments dropping = probing;
  dropping.insert(dropping.end(), {{"dropout", "0.5"}, {"attention", "softmax(dropout=0.5)"}});
  with.train(dropping);
  const SignalPropagation one = read_propagation(propagation_file(without.out)),
                          other = read_propagation(propagation_file(with.out));
  REQUIRE(one.values.size() == other.values.size());
  for (size_t i = 0; i < one.values.size(); ++i) CHECK(one.values[i].mean_square == other.values[i].mean_square);

  std::filesystem::remove(propagation_file(without.out));
  without.resume({{"signal_propagation", "yes"}, {"steps", "4"}});
  CHECK(!file_exists(propagation_file(without.out)));

  // init_from weights are measured unchanged: 20 steps at a high learning rate made them larger.
  const Run first, second;
  first.train({{"steps", "20"}, {"learning_rate", "0.03"}, {"warmup_steps", "0"}});
  second.train({{"init_from", first.out}, {"signal_propagation", "yes"}, {"steps", "1"}});
  CHECK(read_propagation(propagation_file(second.out)).find("logits")->mean_square >
        2 * one.find("logits")->mean_square);
}

TEST_CASE("signal propagation: a file that no run wrote is not replaced, and another format is an error") {
  const Run run;
  std::filesystem::create_directories(run.out);
  write(propagation_file(run.out), "mine\n");
  const auto train = [&] { run.train({{"signal_propagation", "yes"}}); };
  expect_error(train).names("train").value(propagation_file(run.out)).offers("--out");
  CHECK(read_file(propagation_file(run.out)) == "mine\n");
  run.train();  // without signal propagation the file stays
  CHECK(read_file(propagation_file(run.out)) == "mine\n");
  write(propagation_file(run.out), R"({"format": "orrery probe 9", "values": [], "ratios": []})");
  expect_error([&] { read_propagation(propagation_file(run.out)); })
      .names("format")
      .value("orrery probe 9")
      .offers("orrery");
}

TEST_CASE("signal propagation: the file of an older run is read under its former name") {
  const Run run;
  std::filesystem::create_directories(run.out);
  CHECK(signal_propagation_to_read(run.out) == run.out + "/signal_propagation.json");
  write(run.out + "/probe.json", "{}");
  CHECK(signal_propagation_to_read(run.out) == run.out + "/probe.json");
  write(propagation_file(run.out), "{}");
  CHECK(signal_propagation_to_read(run.out) == run.out + "/signal_propagation.json");
}

TEST_CASE("signal propagation: formulas alone") {
  CHECK(nn::softmax_sum_of_squares(0.7, 1) == 1);
  CHECK(nn::softmax_sum_of_squares(0, 8) == 0.125);
  CHECK(off(nn::softmax_sum_of_squares(1, 1e6), std::exp(1.0) / 1e6) <= 1e-5);
  const auto relu = [](double x) { return std::max(x, 0.0); };
  for (const double v : {0.01, 1.0, 9.0}) {
    CHECK(off(nn::mean_square(v, relu), v / 2) <= 1e-6);
    CHECK(off(nn::mean_square(v, [&](double x) { return relu(x) * relu(x); }), 1.5 * v * v) <= 1e-6);
    CHECK(off(nn::mean_square(v, [](double x) { return std::exp(x); }), std::exp(2 * v)) <= 1e-3);
  }
}
