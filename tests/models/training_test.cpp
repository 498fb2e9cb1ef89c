// Training as a whole: bit-identical runs, resuming, complete or absent checkpoints, errors.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "engine/system/files.h"
#include "engine/system/parallel.h"
#include "models/tasks/evaluation.h"
#include "models/training/generation.h"
#include "models/training/run_folder.h"
#include "models/training/trainer.h"
#include "nn/losses/base/loss.h"
#include "tests/support/folder.h"
#include "tests/support/gpt_settings.h"
#include "tests/support/logged_rows.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"
#include "tests/support/small_text.h"
#include "tests/support/train.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::Folder;
using orrery::testing::largest_difference;
using orrery::testing::logged_rows;
using orrery::testing::Message;
using orrery::testing::rows_without_time;
using orrery::testing::train;
using orrery::testing::with;
using orrery::testing::write_small_text;
namespace fs = std::filesystem;

namespace {

using orrery::testing::gpt_settings;
Assignments small_run(const std::string& text, const std::string& out, int steps) {
  return {{"data", text},
          {"out", out},
          {"steps", std::to_string(steps)},
          {"layers", "2"},
          {"heads", "2"},
          {"width", "32"},
          {"context", "16"},
          {"batch_size", "4"},
          {"warmup_steps", "5"},
          {"checkpoint_every", "10"},
          {"evaluate_every", "0"},
          {"dropout", "0.1"},
          {"keep_checkpoints", "0"},
          {"gradient_accumulation_steps", "2"}};
}

}  // namespace

TEST_CASE("training with one seed is bit-identical for one and two threads, and for two runs") {
  const Folder folder;
  const std::string text = write_small_text(folder);
  const int before = thread_count();
  for (const auto& [name, threads] : {std::pair("a", "1"), std::pair("b", "2"), std::pair("c", "2")})
    train(with(small_run(text, folder / name, 20), {{"threads", threads}}));
  set_thread_count(before);
  const std::string weights = "/step_000020/weights.safetensors";
  CHECK(read_file(folder / ("a" + weights)) == read_file(folder / ("b" + weights)));
  CHECK(read_file(folder / ("b" + weights)) == read_file(folder / ("c" + weights)));
  train(with(small_run(text, folder / "d", 20), {{"seed", "2"}}));
  CHECK(read_file(folder / ("a" + weights)) != read_file(folder / ("d" + weights)));
}

TEST_CASE("a resumed run has the weights and metrics of an uninterrupted one, also after rows without a checkpoint") {
  const Folder folder;
  const std::string text = write_small_text(folder);
  train(small_run(text, folder / "whole", 30));
  {
    Trainer trainer(make_settings(small_run(text, folder / "parts", 30)));
    int64_t steps = 0;
    TrainingEvents events;
    events.step = [&](const StepReport& r) {
      steps = r.step;
      if (steps == 15) throw std::runtime_error("killed");  // five steps after the checkpoint
    };
    CHECK_THROWS_AS(trainer.run(events), std::runtime_error);
  }
  CHECK(rows_without_time(folder / "parts").size() == 15);
  std::ofstream(folder / "parts/metrics.jsonl", std::ios::app) << "{\"step\": 16, \"lo";  // cut short
  train(with(small_run(text, folder / "parts", 30), {{"resume", "yes"}}));
  CHECK(read_file(folder / "whole/step_000030/weights.safetensors") ==
        read_file(folder / "parts/step_000030/weights.safetensors"));
  CHECK(read_file(folder / "whole/step_000030/optimizer.safetensors") ==
        read_file(folder / "parts/step_000030/optimizer.safetensors"));
  CHECK(rows_without_time(folder / "whole") == rows_without_time(folder / "parts"));
  CHECK(rows_without_time(folder / "whole").size() == 31);
}

TEST_CASE("resume: a row that cannot be read is reported by its number, and skipped") {
  const Folder folder;
  const std::string text = write_small_text(folder), out = folder / "run", log = out + "/metrics.jsonl";
  train(small_run(text, out, 10));
  const auto rows = rows_without_time(out);
  std::string changed = read_file(log);
  const size_t third = changed.find("{\"step\":3,");
  REQUIRE(third != std::string::npos);
  changed.replace(third, 8, "{\"stop\":");
  write_file_atomically(log, changed + "{\"step\":11,\"lo");  // cut short
  std::vector<std::string> warnings;
  TrainingEvents events;
  events.warning = [&](const std::string& sentence) { warnings.push_back(sentence); };
  Trainer(make_settings(with(small_run(text, out, 12), {{"resume", "yes"}}))).run(events);
  REQUIRE(warnings.size() == 1);
  Message(warnings[0]).names(log).value(3).offers("removed");
  CHECK(rows_without_time(out).size() == rows.size() - 1 + 3);
  warnings.clear();
  Trainer(make_settings(with(small_run(text, out, 13), {{"resume", "yes"}}))).run(events);
  CHECK(warnings.empty());
}

TEST_CASE("a resumed run equals an uninterrupted one for every optimizer and every schedule") {
  const Folder folder;
  const std::string text = write_small_text(folder);
  const std::map<std::string, std::string> settings = {{"adagrad", "(grad_clip=0.1)"},
                                                       {"adamw", "(weight_decay=0.1)"},
                                                       {"lion", "(weight_decay=0.1)"},
                                                       {"muon", "(weight_decay=0.1)"},
                                                       {"warmup_stable_decay", "(decay_fraction=0.4)"}};
  const auto spec_of = [&](const std::vector<std::string>& names, size_t i) {
    const std::string& name = names[i % names.size()];
    const auto found = settings.find(name);
    return name + (found == settings.end() ? "" : found->second);
  };
  const std::vector<std::string> optimizers = nn::optimizers().names(), schedules = nn::schedules().names();
  for (size_t i = 0; i < std::max(optimizers.size(), schedules.size()); ++i) {
    const std::string optimizer = spec_of(optimizers, i), schedule = spec_of(schedules, i);
    INFO(optimizer, " ", schedule);
    const std::string whole = folder / ("whole" + std::to_string(i)),
                      interrupted = folder / ("parts" + std::to_string(i));
    const Assignments more = {
        {"optimizer", optimizer}, {"schedule", schedule}, {"warmup_form", "quadratic"}, {"checkpoint_every", "4"}};
    train(with(small_run(text, whole, 8), more));
    Trainer trainer(make_settings(with(small_run(text, interrupted, 8), more)));
    int64_t steps = 0;
    TrainingEvents events;
    events.stop = [&] { return ++steps == 4; };
    CHECK(trainer.run(events).steps_done == 4);
    train(with(small_run(text, interrupted, 8), with(more, {{"resume", "yes"}})));
    for (const std::string file : {"weights", "optimizer"})
      CHECK(read_file(whole + "/step_000008/" + file + ".safetensors") ==
            read_file(interrupted + "/step_000008/" + file + ".safetensors"));
  }
}

TEST_CASE("batch statistics: they are updated once a step, saved, and continue in a resumed run") {
  const Folder folder;
  const std::string text = write_small_text(folder);
  const auto run = [&](const char* name, int steps, const char* resume) {
    Trainer trainer(make_settings(with(small_run(text, folder / name, steps),
                                       {{"normalization", "batch"}, {"schedule", "constant"}, {"resume", resume}})));
    trainer.run();
    for (const auto& [path, buffer] : nn::buffers_of(trainer.model()))
      if (path == "norm.running_variance") return buffer->to_vector();
    return std::vector<double>();
  };
  const std::vector<double> whole = run("whole", 20, "no");
  REQUIRE(whole.size() == 32);
  for (const double variance : whole) CHECK(variance != 1);
  const std::vector<double> half = run("parts", 10, "no");
  CHECK(half != whole);
  CHECK(run("parts", 20, "yes") == whole);
}

TEST_CASE("a run learns: the loss on validation text halves") {
  const Folder folder;
  const TrainingResult result = train(
      with(small_run(write_small_text(folder), folder / "run", 120), {{"learning_rate", "1e-2"}, {"dropout", "0"}}));
  CHECK(result.validation_loss < 1.6);  // ln of the 32 characters is 3.4
  CHECK(result.steps_done == 120);
  CHECK(fs::exists(folder / "run/settings.toml"));
}

TEST_CASE("losses of attentions are weighted by name, reported separately, and absent without a weight") {
  const Folder folder;
  const std::string text = write_small_text(folder);
  const auto metrics = [&](const std::string& out, const Assignments& more) {
    train(with(small_run(text, folder / out, 3), more));
    return logged_rows(folder / out);
  };
  const Assignments spans = {{"attention", "softmax(span=adaptive_span(16, R=4))"}};
  const auto plain = metrics("plain", spans), priced = metrics("priced", with(spans, {{"losses.span_penalty", "0.5"}}));
  CHECK(!plain[0].contains("span_penalty"));
  CHECK(priced[0].at("span_penalty") == 0);                             // spans start at 0
  CHECK(priced[0].at("loss") == plain[0].at("loss"));                   // only cross-entropy
  CHECK(priced[0].at("gradient_norm") > plain[0].at("gradient_norm"));  // the penalty has a gradient
  const auto former = metrics(
      "former",
      {{"attention", "relu_former"}, {"losses.normalization_loss", "0.1"}, {"losses.entropy_margin_loss", "0.1"}});
  CHECK(former[2].at("normalization_loss") > 0);
  CHECK(former[2].contains("entropy_margin_loss"));
  const auto heads = metrics("heads", {{"attention", "softmax(entropy_threshold=learned(0.3), temperature=learned)"},
                                       {"losses.entropy_regularizer", "0.1"}});
  CHECK(heads[2].at("entropy_regularizer") > 0);
  expect_error([&] {
    train(with(small_run(text, folder / "none", 3), {{"losses.span_penalty", "1"}}));
  })
      .names("train")
      .names("losses.span_penalty")
      .names("model");
  CHECK(!std::filesystem::exists(folder / "none"));  // refused before any file is made
}

TEST_CASE("an early stop saves a checkpoint; older checkpoints are removed") {
  const Folder folder;
  Trainer trainer(make_settings(with(small_run(write_small_text(folder), folder / "run", 100),
                                     {{"checkpoint_every", "2"}, {"keep_checkpoints", "2"}})));
  int steps = 0;
  TrainingEvents events;
  events.stop = [&] { return ++steps == 7; };
  CHECK(trainer.run(events).checkpoint == folder / "run/step_000007");
  CHECK(fs::exists(folder / "run/step_000006"));
  CHECK(!fs::exists(folder / "run/step_000004"));
}

TEST_CASE("micro-batches of half the size give the gradient of the full batch") {
  GptSettings s;
  s.layers = 1, s.heads = 2, s.width = 16, s.context = 8, s.vocabulary = 9;
  Gpt model(s);
  nn::convert(model, Dtype::f64);
  nn::initialize(model, 3);
  std::vector<int32_t> numbers(32);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i * i % 9);
  const Tensor tokens = Tensor::from({4, 8}, numbers);
  const auto gradient = [&](int64_t interrupted) {
    nn::FlatParameters flat(model);
    flat.zero_gradients();
    for (int64_t i = 0; i < interrupted; ++i) {
      const Tensor micro_batch = tokens.slice(i * 4 / interrupted, (i + 1) * 4 / interrupted);
      nn::ForwardPass pass;
      scale(nn::cross_entropy(model(micro_batch, pass), micro_batch), 1.0 / static_cast<double>(interrupted))
          .backward();
    }
    return flat.gradients();
  };
  CHECK(largest_difference(gradient(1), gradient(2)) <= 1e-14);
}

TEST_CASE("evaluation predicts every token except the first once") {
  GptSettings s;
  s.layers = 1, s.heads = 2, s.width = 16, s.context = 8, s.vocabulary = 9;
  Gpt model(s);
  nn::initialize(model, 3);
  std::vector<int32_t> tokens(30);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % 9);
  double total = 0;
  const NoGrad guard;
  for (int64_t at = 0; at + 1 < 30; at += 8) {
    const int64_t n = std::min<int64_t>(8, 29 - at);
    const auto window = [&](int64_t offset) {
      return Tensor::from({1, n}, std::vector<int32_t>(tokens.begin() + at + offset, tokens.begin() + at + offset + n));
    };
    nn::ForwardPass pass;
    total += nn::cross_entropy(model(window(0), pass), window(1)).item() * static_cast<double>(n);
  }
  CHECK(evaluate(model, tokens, 8, 2).value().mean() == doctest::Approx(total / 29).epsilon(1e-6));
}

TEST_CASE("generation: equal text for equal seeds; greedy; beyond the context; errors") {
  GptSettings s;
  s.layers = 1, s.heads = 2, s.width = 16, s.context = 8, s.vocabulary = 9;
  Gpt model(s);
  nn::initialize(model, 3);
  const SamplingSettings sampling{.tokens = 40, .temperature = 1, .seed = 5};
  const std::vector<int32_t> one = generate(model, {1}, sampling);
  CHECK(one.size() == 41);
  CHECK(one == generate(model, {1}, sampling));
  SamplingSettings other = sampling;
  other.seed = 6;
  CHECK(one != generate(model, {1}, other));
  SamplingSettings greedy = sampling, top = sampling;
  greedy.temperature = 0, top.top_k = 1;
  CHECK(generate(model, {1}, greedy) == generate(model, {1}, top));
  expect_error([&] { generate(model, {}, sampling); }).names("generate").names("prompt").value("empty").offers("token");
}

TEST_CASE("invalid input is an error before any training") {
  const Folder folder;
  const std::string text = write_small_text(folder);
  write_file_atomically(folder / "short.txt", "abcabc");
  const auto refused = [&](const Assignments& more) {
    return expect_error([&] { train(with(small_run(text, folder / "run", 10), more)); });
  };
  refused({{"data", ""}}).names("train").names("text").offers("--data=FILE");
  refused({{"data", folder / "absent.txt"}}).names("read").value(folder / "absent.txt");
  refused({{"data", folder / "short.txt"}}).names(folder / "short.txt").names("context").value(16).offers(17);
  refused({{"n_layer", "0"}}).names("train").names("layers").value(0).offers(1);
  refused({{"layerz", "3"}}).names("train").value("layerz").offers("layers");
  refused({{"batch_size", "abc"}}).names("train").names("batch_size").value("abc").offers("whole number");
  refused({{"model", "gpt-char-smal"}}).names("model").value("gpt-char-smal").offers("gpt-char-small");
  refused({{"attention", "softmux"}}).names("attention").value("softmux").offers("softmax");
  refused({{"optimizer", "lion(lr_scales=groups(spans=2))"}})
      .names("lion")
      .names("lr_scales")
      .value("spans")
      .offers("lr_scales");
  refused({{"schedule", "warmup_stable_decay(decay_fraction=2)"}})
      .names("warmup_stable_decay")
      .names("decay_fraction")
      .value(2)
      .offers(1);
  refused({{"warmup_form", "cubic"}}).names("warmup_form").value("cubic").offers("linear, quadratic");
  refused({{"heads", "5"}}).names("heads").value(5).names("width").value(32).offers("head_size");
  refused({{"vocabulary", "3"}}).names("train").names("vocabulary").value(3).names("tokenizer").offers("raise");
  refused({{"resume", "yes"}}).names("train").names("checkpoint").value(folder / "run").offers("--resume");
#if !defined(ORRERY_CUDA) && !defined(EMULATE_CUDA)
  refused({{"device", "cuda"}}).names("device").value("cuda").offers("--device=cpu");
#endif
  refused({{"cuda_graph", "yes"}}).names("--cuda_graph").offers("--device=cuda");
  for (const char* schedule : {"cosine", "linear", "warmup_stable_decay"})
    refused({{"schedule", schedule}, {"learning_rate", "0.01"}, {"min_learning_rate", "0.5"}})
        .names(schedule)
        .value("0.5")
        .value("0.01")
        .offers("--min_learning_rate=0.001");
  CHECK(!fs::exists(folder / "run"));
  train(with(small_run(text, folder / "run", 2), {{"schedule", "constant"}, {"min_learning_rate", "0.5"}}));
  refused({}).names("train").value(folder / "run").offers("--out").offers("orrery train --resume=");
}

TEST_CASE("a non-finite loss stops the run with an error that names the step; the last good checkpoint is kept") {
  const Folder folder;
  Assignments settings = with(small_run(write_small_text(folder), folder / "run", 40),
                              {{"warmup_steps", "0"}, {"checkpoint_every", "1"}, {"keep_checkpoints", "1"}});
  settings.emplace_back("learning_rate", "1e30");
  expect_error([&] { train(settings); })
      .value("step 2")
      .names("gradient norm")
      .names(folder / "run/step_000001.damaged")
      .names("no good checkpoint")
      .offers("--learning_rate");
  train(with(settings, {{"learning_rate", "1e-3"}, {"steps", "3"}}));
  settings.emplace_back("resume", "yes");
  expect_error([&] { train(settings); })
      .value("step 5")
      .names("gradient norm")
      .offers("good checkpoint")
      .offers(folder / "run/step_000003");
  CHECK(latest_checkpoint(folder / "run") == folder / "run/step_000003");
}

TEST_CASE("errors name damaged checkpoints, from which nothing is loaded") {
  const Folder folder;
  const std::string text = write_small_text(folder);
  train(small_run(text, folder / "run", 20));
  const std::string weights = folder / "run/step_000020/weights.safetensors", whole = read_file(weights);
  const std::string state = folder / "run/step_000020/state.json";
  const auto resume = [&] { return train(with(small_run(text, folder / "run", 30), {{"resume", "yes"}})); };
  write_file_atomically(weights, whole.substr(0, whole.size() / 2));
  expect_error(resume).names(weights).value(whole.size() / 2).offers("--resume_from_previous=yes");
  CHECK(fs::exists(folder / "run/step_000010/weights.safetensors"));
  write_file_atomically(weights, whole);
  write_file_atomically(state, "{\"step\": ");
  expect_error(resume).names(state).names("damaged").offers("--resume_from_previous=yes");
  fs::remove_all(folder / "run/step_000020");
  CHECK(resume().steps_done == 30);  // from the previous checkpoint
  expect_error([&] {
    train(with(small_run(text, folder / "run", 40), {{"resume", "yes"}, {"width", "16"}}));
  })
      .names("width")
      .value(32)
      .value(16)
      .offers("--resume=");
  expect_error([&] {
    const Trainer other(make_settings(small_run(text, folder / "other", 1)));
    GptSettings wider = gpt_settings(other.settings());
    wider.width = 64;
    Gpt model(wider);
    load_weights(latest_checkpoint(folder / "run"), model);
  })
      .names("weights.safetensors")
      .value("32)")
      .value("64)")
      .offers("settings");
}

TEST_CASE("a full disk leaves the previous checkpoint and no partial one") {
  const Folder folder;
  const std::string text = write_small_text(folder);
  train(small_run(text, folder / "run", 10));
  rlimit before{}, small{};
  getrlimit(RLIMIT_FSIZE, &before);
  small = before;
  small.rlim_cur = 20000;  // the weights are larger, the metrics smaller
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  Message message = expect_error([&] { train(with(small_run(text, folder / "run", 20), {{"resume", "yes"}})); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  message.names("write").names(folder / "run/step_000020").offers(folder / "run/step_000010");
  CHECK(latest_checkpoint(folder / "run") == folder / "run/step_000010");
  CHECK(!fs::exists(folder / "run/step_000020.partial"));
  CHECK(train(with(small_run(text, folder / "run", 20), {{"resume", "yes"}})).steps_done == 20);
}
