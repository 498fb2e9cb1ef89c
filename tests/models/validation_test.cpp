// Validation on text: the tokens that count, and the metrics next to the loss.
#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "models/data/prepared.h"
#include "models/model.h"
#include "models/tasks/base/task.h"
#include "models/tasks/evaluation.h"
#include "nn/base/initialization.h"
#include "tests/support/message.h"
#include "tests/support/small_run.h"
#include "tests/support/thread_ranks.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

struct Evaluated {
  std::unique_ptr<Task> task;
  std::unique_ptr<nn::Module> model;
  Evaluated(const Run& run, const Assignments& more) {
    TrainSettings s = run.settings(more);
    task = tasks().at(s.task).make(s.task_settings, s.model_settings, {.batch_size = 2});
    model = make_model(s);
    nn::initialize(*model, 1);
  }
  std::pair<double, std::map<std::string, double>> validate() const {
    const Validation found = task->validate(*model, {}).value();
    return {found.loss, {found.metrics.begin(), found.metrics.end()}};
  }
};

}  // namespace

TEST_CASE("validation: a limited number of tokens, the loss of training tokens, and bits per character") {
  const Run run;
  const Evaluated some(run, {{"validation_tokens", "20"}, {"training_loss_tokens", "30"}});
  const TokenSequence text(restore_tokenizer(some.task->tokenizer())->encode(read_file(run.text)));
  const auto [learned, held_out] = split(text, 0.1);
  REQUIRE(held_out.size() > 20);
  CHECK(some.task->validation_units() == 20);
  const auto [loss, metrics] = some.validate();
  CHECK(loss == evaluate(*some.model, held_out.slice(0, 20), 8).value().mean());
  CHECK(metrics.at("training_loss") ==
        evaluate(*some.model, learned.slice(learned.size() - 30, learned.size()), 8).value().mean());
  CHECK(metrics.at("bits_per_character") == doctest::Approx(loss / std::log(2.0)).epsilon(1e-12));  // 1 char per token

  const Evaluated all(run, {{"training_loss_tokens", "0"}});
  const auto [whole, others] = all.validate();
  CHECK(whole == evaluate(*all.model, held_out, 8).value().mean());
  CHECK(!others.contains("training_loss"));
  const auto too_many = [&] { Evaluated(run, {{"validation_tokens", "1000000000"}}); };
  expect_error(too_many).names("validation_tokens").value(1000000000).offers("--validation_tokens=0");
}

TEST_CASE("validation: the token between the files of a folder counts as a target, not as a character") {
  const Run run;
  const std::string files = run.folder / "files/";
  for (int i = 100; i < 200; ++i) write(files + std::to_string(i), "ab cd\n");
  const std::string tokenizer = ORRERY_SOURCE_DIR "/tests/cases/gpt2_end_of_text";
  for (const Assignments& model :
       {Assignments{},
        Assignments{{"model", "stream"}, {"cache_length", "8"}, {"attention", "softmax(span=fixed(8))"}}}) {
    Assignments of_folder = {{"data", files}, {"tokenizer", tokenizer}, {"training_loss_tokens", "0"}};
    of_folder.insert(of_folder.end(), model.begin(), model.end());
    const Evaluated evaluated(run, of_folder);
    const auto read = restore_tokenizer(evaluated.task->tokenizer());
    const auto in_file = static_cast<int64_t>(read->encode("ab cd\n").size()) + 1,
               validation_units = evaluated.task->validation_units();
    REQUIRE(validation_units % in_file == 0);  // whole files: all but the first token are targets
    const auto first = read->decode(std::vector<int32_t>{read->encode("ab cd\n")[0]}).size();
    const double characters = static_cast<double>(6 * (validation_units / in_file)) - static_cast<double>(first);
    const auto [loss, metrics] = evaluated.validate();
    CHECK(
        metrics.at("bits_per_character") ==
        doctest::Approx(loss * static_cast<double>(validation_units - 1) / std::log(2.0) / characters).epsilon(1e-12));
  }
}

TEST_CASE("validation: a stream reports the loss of training tokens as well, read continuously") {
  const Run run;
  const Assignments stream = {{"model", "stream"},
                              {"layers", "1"},
                              {"heads", "2"},
                              {"width", "8"},
                              {"context", "8"},
                              {"cache_length", "8"},
                              {"attention", "softmax(span=fixed(8))"}};
  const auto [loss, metrics] = Evaluated(run, stream).validate();
  CHECK(metrics.at("bits_per_character") == doctest::Approx(loss / std::log(2.0)).epsilon(1e-12));
  CHECK(metrics.at("training_loss") > 0);
  CHECK(metrics.at("training_loss") != loss);
}

TEST_CASE("documents: packed documents are evaluated and trained on like separate ones") {
  const TrainSettings settings = make_settings({{"model", "gpt"},
                                                {"layers", "2"},
                                                {"heads", "2"},
                                                {"width", "16"},
                                                {"context", "16"},
                                                {"vocabulary", "9"},
                                                {"position", "rotary"}});
  const auto model = make_model(settings);
  nn::initialize(*model, 3);
  const std::vector<std::vector<int32_t>> documents = {{1, 2, 3, 0}, {4, 5, 6, 7, 0}, {8, 1, 0}};
  std::vector<int32_t> packed;
  double total = 0;
  for (const std::vector<int32_t>& each : documents) {
    packed.insert(packed.end(), each.begin(), each.end());
    total += evaluate(*model, each, 16).value().mean() * static_cast<double>(each.size() - 1);
  }
  CHECK(evaluate(*model, packed, 16, 1, {}, 0).value().mean() == doctest::Approx(total / 9).epsilon(1e-6));
  CHECK(evaluate(*model, packed, 16).value().mean() != doctest::Approx(total / 9).epsilon(1e-3));
  // A window that holds only an end has no target.
  CHECK(evaluate(*model, std::vector<int32_t>{1, 0, 2, 0, 3}, 1, 1, {}, 0).has_value());

  Batch batch{Tensor::from(Shape{2, 4}, std::vector<int32_t>{1, 0, 2, 3, 4, 5, 0, 0}),
              Tensor::from(Shape{2, 4}, std::vector<int32_t>{0, 2, 3, 4, 5, 0, 0, 6})};
  CHECK(separate_documents(batch, 0).to_vector() == std::vector<double>{0, 0, 1, 1, 0, 0, 0, 1});
  CHECK(batch.targets.to_vector() == std::vector<double>{0, -1, 3, 4, 5, 0, -1, -1});

  const Run run;
  expect_error([&] { run.train({{"documents", "yes"}}); }).names("documents=yes").names("tokenizer").offers("GPT-2");
  TrainSettings s = run.settings({{"documents", "yes"}});
  const TaskOptions options{.purpose = Purpose::evaluate};
  expect_error([&] { tasks().at(s.task).make(s.task_settings, s.model_settings, options); })
      .names("evaluate")
      .names("documents=yes")
      .offers("GPT-2");
}

TEST_CASE("documents: a run over packed documents resumes bit-identically") {
  const Run parts("parts"), whole("whole"), one_text("one_text");
  std::string text;
  for (int i = 0; i < 300; ++i) text += "document " + std::to_string(i * i % 89) + " ends.<|endoftext|>";
  write(parts.folder / "documents.txt", text);
  const Assignments packed = {
      {"data", parts.folder / "documents.txt"}, {"tokenizer", "byte_pair(vocabulary=270)"}, {"documents", "yes"}};
  parts.train(packed), parts.resume(packed);
  Assignments to_the_end = packed;
  to_the_end.emplace_back("steps", "8");
  whole.train(to_the_end);
  to_the_end.emplace_back("documents", "no");
  one_text.train(to_the_end);
  const auto weights = [](const Run& run) { return read_file(run.checkpoint(8) + "/weights.safetensors"); };
  CHECK(weights(parts) == weights(whole));
  CHECK(weights(one_text) != weights(whole));
}

TEST_CASE("validation: windows that pass the model in parts have the loss of the whole batch, bit for bit") {
  std::vector<int32_t> text;
  for (int32_t i = 0; i < 16 * 37 + 6; ++i) text.push_back(i * i % 41 % 9);
  for (const char* dtype : {"f32", "bf16", "f64"}) {
    const TrainSettings settings = make_settings({{"model", "gpt"},
                                                  {"layers", "2"},
                                                  {"heads", "2"},
                                                  {"width", "16"},
                                                  {"context", "16"},
                                                  {"vocabulary", "9"},
                                                  {"dtype", dtype}});
    const auto model = make_model(settings);
    nn::initialize(*model, 3);
    nn::convert(*model, parse_dtype(dtype));
    for (const std::optional<int32_t> end_of_document : {std::optional<int32_t>(), std::optional<int32_t>(0)}) {
      const auto loss = [&](int64_t at_once) {
        return evaluate(*model, text, 16, 16, {}, end_of_document, at_once).value().mean();
      };
      CAPTURE(dtype);
      for (const int64_t at_once : {1, 3, 15}) CHECK(loss(at_once) == loss(16));
    }
  }
}

TEST_CASE("validation: a large vocabulary limits the windows that are held at once") {
  const Run run;
  const auto at_once = [&](const char* vocabulary, const char* context) {
    TrainSettings s = run.settings({{"vocabulary", vocabulary}, {"context", context}});
    return tasks().at(s.task).make(s.task_settings, s.model_settings, {.batch_size = 2})->validation_batch();
  };
  CHECK(at_once("1000000", "8") == 2);
  CHECK(at_once("1000000", "32") == 1);
  CHECK(at_once("300", "8") == 16);
}

TEST_CASE("validation: ranks share the batches, and the sums have the bits of one process") {
  const auto add = [](MeanLoss& loss, int64_t batch) {
    loss.add(1 / (1.0 + static_cast<double>(batch)), 3 + batch, batch);
  };
  for (const int64_t batches : {0, 1, 7})
    for (const int64_t count : {1, 2, 3, 8}) {
      MeanLoss one;
      for (int64_t i = 0; i < batches; ++i) add(one, i);
      std::vector<MeanLoss> found(static_cast<size_t>(count));
      std::vector<int64_t> evaluated(static_cast<size_t>(count));
      on_thread_ranks(count, [&](Ranks& ranks) {
        const auto r = static_cast<size_t>(ranks.rank());
        MeanLoss mine(&ranks);
        for (int64_t i = 0; i < batches; ++i)
          if (mine.evaluates_next()) add(mine, i), ++evaluated[r];
        mine.add_others();
        found[r] = mine;
      });
      CAPTURE(batches);
      CAPTURE(count);
      for (int64_t r = 0; r < count; ++r) {
        CHECK(evaluated[static_cast<size_t>(r)] == (batches + count - 1 - r) / count);
        CHECK(found[static_cast<size_t>(r)].targets() == one.targets());
        if (batches == 0) continue;
        CHECK(found[static_cast<size_t>(r)].mean() == one.mean());
        CHECK(found[static_cast<size_t>(r)].accuracy() == one.accuracy());
      }
    }
}
