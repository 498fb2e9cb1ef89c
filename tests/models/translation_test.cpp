// Translation as a task: bit-identical runs, resuming, beam search, and errors.
#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>

#include "engine/ops/ops.h"
#include "engine/system/files.h"
#include "engine/system/parallel.h"
#include "models/architectures/translation_search.h"
#include "models/model.h"
#include "models/training/trainer.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"
#include "tests/support/small_translator.h"
#include "tests/support/train.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

// Chapters of a bible in English and German, verse by verse.
const std::string bible = ORRERY_SOURCE_DIR "/tests/models/translation/bible.tsv";

Assignments small_run(const std::string& out, const Assignments& more = {}) {
  return with({{"model", "encoder_decoder"},
               {"data", bible},
               {"source_column", "4"},
               {"target_column", "3"},
               {"tokenizer", "sentence_piece(vocabulary=150)"},
               {"validation_fraction", "0.1"},
               {"batch_tokens", "500"},
               {"out", out},
               {"steps", "8"},
               {"layers", "1"},
               {"heads", "2"},
               {"width", "16"},
               {"context", "256"},
               {"warmup_steps", "2"},
               {"checkpoint_every", "4"},
               {"evaluate_every", "0"},
               {"keep_checkpoints", "0"}},
              more);
}
std::string weights_of(const std::string& out) { return read_file(out + "/step_000008/weights.safetensors"); }

// The best translation of at most `limit` tokens, finished or cut off there, by trying all.
struct Best {
  std::vector<int32_t> tokens;
  double score = -INFINITY;
};
void try_all(TranslationModel& model, const std::vector<int32_t>& source, std::vector<int32_t>& so_far, double before,
             int64_t limit, double penalty, Best& best) {
  const Pair pair{source, so_far};
  std::vector<int32_t> input = {small_marks.begin};
  input.insert(input.end(), so_far.begin(), so_far.end());
  nn::ForwardPass pass;
  model.encode(Tensor::from(Shape{1, static_cast<int64_t>(source.size())}, source), {}, pass);
  const auto time = static_cast<int64_t>(input.size());
  const std::vector<double> logits = model(Tensor::from(Shape{1, time}, input), pass)[0][time - 1].to_vector();
  const double top = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const double z : logits) total += std::exp(z - top);
  const auto consider = [&](double log_probability) {
    const double score = log_probability / std::pow((5 + static_cast<double>(time)) / 6, penalty);
    if (score > best.score) best = {so_far, score};
  };
  for (size_t token = 0; token < logits.size(); ++token) {
    const double now = before + logits[token] - top - std::log(total);
    if (static_cast<int32_t>(token) == small_marks.end) {
      consider(now);
      continue;
    }
    so_far.push_back(static_cast<int32_t>(token));
    if (time == limit)
      consider(now);
    else
      try_all(model, source, so_far, now, limit, penalty, best);
    so_far.pop_back();
  }
}

}  // namespace

TEST_CASE("translation: a beam as large as the search space finds the best translation") {
  const NoGrad guard;
  const auto model = make_translator(small_translator());
  for (const double penalty : {0.0, 1.0, 2.5})
    for (const Pair& pair : small_pairs()) {
      Best best;
      std::vector<int32_t> none;
      try_all(*model, pair.source, none, 0, 2, penalty, best);
      const auto found =
          translate(*model, {&pair.source, 1}, small_marks, {.beam = 400, .length_penalty = penalty, .max_tokens = 2});
      CHECK(found[0] == best.tokens);
    }
}

TEST_CASE("translation: a beam whose candidates cannot fit is refused with the needed and the free memory") {
  const auto model = make_translator(small_translator());
  const std::vector<std::vector<int32_t>> sources = {small_pairs()[0].source};
  const auto search = [&] {
    translate(*model, sources, small_marks, {.beam = 1'000'000'000'000'000, .max_tokens = 64});
  };
  expect_error(search).names("translate: 1 sentence").names("beam=1000000000000000").names("MB").offers("beam");
  CHECK(translate(*model, sources, small_marks, {.beam = 1'000'000'000'000'000, .max_tokens = 1}).size() == 1);
}

TEST_CASE("translation: one beam selects the most likely token each time, regardless of the other sentences") {
  const NoGrad guard;
  for (const char* attention : {"softmax", "relu_former", "linear"}) {
    const auto model = make_translator(small_translator(attention));
    std::vector<std::vector<int32_t>> sources;
    for (const Pair& pair : small_pairs()) sources.push_back(pair.source);
    const auto together = translate(*model, sources, small_marks, {.beam = 1, .max_tokens = 6});
    for (size_t i = 0; i < sources.size(); ++i) {
      std::vector<int32_t> written;
      while (written.size() < 6) {
        std::vector<int32_t> input = {small_marks.begin};
        input.insert(input.end(), written.begin(), written.end());
        nn::ForwardPass pass;
        model->encode(Tensor::from(Shape{1, static_cast<int64_t>(sources[i].size())}, sources[i]), {}, pass);
        const auto time = static_cast<int64_t>(input.size());
        const Tensor last = (*model)(Tensor::from(Shape{1, time}, input), pass)[0][time - 1];
        const auto next = static_cast<int32_t>(argmax(last.reshape(Shape{1, last.numel()})).to_vector()[0]);
        if (next == small_marks.end) break;
        written.push_back(next);
      }
      CHECK(together[i] == written);
      CHECK(translate(*model, {&sources[i], 1}, small_marks, {.beam = 1, .max_tokens = 6})[0] == written);
    }
    std::vector<double> fractions;
    const auto beams = translate(*model, sources, small_marks,
                                 {.beam = 3, .max_tokens = 6, .batch_size = 1, .progress = [&](double fraction) {
                                    fractions.push_back(fraction);
                                  }});
    CHECK(fractions.size() == sources.size());
    CHECK(std::is_sorted(fractions.begin(), fractions.end()));
    CHECK(fractions.back() == 1);
    for (size_t i = 0; i < sources.size(); ++i)
      CHECK(translate(*model, {&sources[i], 1}, small_marks, {.beam = 3, .max_tokens = 6})[0] == beams[i]);
  }
}

TEST_CASE("translation: each sentence becomes one line, for any tokens and for an untrained model") {
  const NoGrad guard;
  const std::vector<TextPair> pairs = {{"a b\r", "b"}, {"bb", "a a"}, {"a", "b b"}, {"ab", ""}, {"ba b", "aa"}};
  for (const char* name : {"character", "byte", "byte_pair(vocabulary=258)"}) {
    const auto tokenizer = make_tokenizer(name, [&] { return text_of(pairs) + "\n\n\n\n\n\n"; });
    const SentenceMarks marks = sentence_marks(*tokenizer);
    for (const int32_t each : tokenizer->encode("\n\r"))
      CHECK(std::find(marks.never.begin(), marks.never.end(), each) != marks.never.end());
    CHECK(std::find(marks.never.begin(), marks.never.end(), tokenizer->encode("a")[0]) == marks.never.end());
    EncoderDecoderSettings settings = small_translator();
    settings.vocabulary = marks.vocabulary, settings.context = 64;
    const auto model = make_translator(settings);
    std::vector<std::vector<int32_t>> sources;
    for (const Pair& pair : encode(pairs, *tokenizer, marks)) sources.push_back(pair.source);
    const std::vector<std::string> lines = translate_to_text(*model, sources, *tokenizer, {.beam = 2});
    CHECK(lines.size() == 5);
    for (const std::string& line : lines) CHECK(line.find_first_of("\r\n") == std::string::npos);
  }
}

TEST_CASE("translation: a model's ids beyond the tokenizer's vocabulary are never drawn") {
  const NoGrad guard;
  const auto model = make_translator(small_translator());  // has 11 ids
  const std::vector<std::vector<int32_t>> sources = {{1, 2, 3, 4, 5}, {3, 5}, {0, 0, 2, 5}, {4, 1, 5}};
  const auto beyond = [&](int64_t vocabulary, int64_t beam) {
    int64_t found = 0;
    for (int32_t begin = 0; begin < 5; ++begin)
      for (const std::vector<int32_t>& ids :
           translate(*model, sources, {.begin = begin, .end = 5, .vocabulary = vocabulary},
                     {.beam = beam, .max_tokens = 4}))
        found += std::count_if(ids.begin(), ids.end(), [](int32_t id) { return id >= 6; });
    return found;
  };
  for (const int64_t beam : {1, 4}) {
    CHECK(beyond(small_marks.vocabulary, beam) > 0);
    CHECK(beyond(6, beam) == 0);
  }
}

TEST_CASE("translation: training is bit-identical for one and two threads, and after an interruption") {
  const Folder folder;
  const int before = thread_count();
  train(small_run(folder / "one", {{"threads", "1"}}));
  train(small_run(folder / "two", {{"threads", "2"}}));
  set_thread_count(before);
  CHECK(weights_of(folder / "one") == weights_of(folder / "two"));
  train(small_run(folder / "parts", {{"steps", "4"}, {"schedule", "constant"}, {"dropout", "0.2"}}));
  train(small_run(folder / "parts", {{"resume", "yes"}, {"schedule", "constant"}, {"dropout", "0.2"}}));
  train(small_run(folder / "whole", {{"schedule", "constant"}, {"dropout", "0.2"}}));
  CHECK(weights_of(folder / "parts") == weights_of(folder / "whole"));
}

TEST_CASE("translation: a model trains in f32 and bf16, with sentences and documents, with ReLUFormer's losses") {
  const Folder folder;
  const double before = Trainer(make_settings(small_run(folder / "none"))).task().validation_units();
  CHECK(before > 0);
  int count = 0;
  for (const Assignments& more :
       {Assignments{{"dtype", "f32"}}, Assignments{{"dtype", "bf16"}},
        Assignments{{"document_column", "1"}, {"context", "2500"}, {"validation_fraction", "0.3"}},
        Assignments{{"attention", "relu_former"},
                    {"losses.normalization_loss", "0.01"},
                    {"losses.entropy_margin_loss", "0.01"}},
        Assignments{{"tokenizer", "character"}, {"norm_place", "post"}, {"gradient_accumulation_steps", "2"}}}) {
    Assignments settings = small_run(folder / std::to_string(count++), more);
    settings.insert(settings.end(), {{"learning_rate", "0.01"}, {"steps", "12"}});
    std::vector<double> losses;
    TrainingEvents events;
    events.step = [&](const StepReport& r) { losses.push_back(r.loss); };
    Trainer(make_settings(settings)).run(events);
    CHECK(losses.back() < losses.front() - 0.3);
  }
}

TEST_CASE("translation: a validation evaluates training pairs like validation pairs, all or an even sample") {
  const Folder folder;
  const auto evaluated = [&](const std::string& name, const std::string& count) {
    return train(small_run(folder / name, {{"validation_data", bible}, {"training_loss_pairs", count}}));
  };
  const TrainingResult all = evaluated("all", "100000"), some = evaluated("some", "10"), none = evaluated("none", "0");
  REQUIRE(all.metrics.size() == 1);
  CHECK(all.metrics[0] == std::pair<std::string, double>("training_loss", all.validation_loss));
  REQUIRE(some.metrics.size() == 1);
  CHECK(some.validation_loss == all.validation_loss);
  CHECK(some.metrics[0].second != all.metrics[0].second);
  CHECK(some.metrics[0].second == doctest::Approx(all.metrics[0].second).epsilon(0.2));
  CHECK(none.metrics.empty());
}

TEST_CASE("translation: the training pairs of a validation are an even sample") {
  const Folder folder;
  std::vector<std::string> lines;
  std::istringstream in(read_file(bible));
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  const size_t count = lines.size() * 2 / 3;
  REQUIRE(lines.size() % count != 0);
  std::string even;
  for (size_t i = 0; i < count; ++i) even += lines[i * lines.size() / count] + "\n";
  write_file_atomically(folder / "even.tsv", even);
  const TrainingResult evaluated = train(small_run(
      folder / "run", {{"validation_data", folder / "even.tsv"}, {"training_loss_pairs", std::to_string(count)}}));
  REQUIRE(evaluated.metrics.size() == 1);
  CHECK(evaluated.metrics[0].second == evaluated.validation_loss);
}

TEST_CASE("translation: a batch counts its targets and the tokens of both sides") {
  const TaskClass& of = tasks().at("translation");
  const AnySettings settings = of.settings;
  setting_of<std::string>(settings, "data") = bible;
  setting_of<std::string>(settings, "tokenizer") = "character";
  setting_of<int64_t>(settings, "batch_tokens") = 700;
  AnySettings of_model = AnySettings(small_translator());
  setting_of<int64_t>(of_model, "vocabulary") = 0, setting_of<int64_t>(of_model, "context") = 400;
  const auto task = of.make(settings, of_model, {.micro_batches = 3, .seed = 3});
  for (int64_t micro = 0; micro < 3; ++micro) {
    const std::vector<Tensor> batch = task->batch(1, micro);
    double targets = 0, sources = 0;
    for (const double t : batch[3].to_vector()) targets += t >= 0;
    for (const double length : batch[1].to_vector()) sources += length;
    CHECK(static_cast<double>(task->counts(batch).targets) == targets);
    CHECK(static_cast<double>(task->counts(batch).units) == sources + targets);
  }
}

TEST_CASE("translation: invalid settings have error messages") {
  const Folder folder;
  const auto refused = [&](const Assignments& more) {
    return expect_error([&] { Trainer(make_settings(small_run(folder / "run", more))); });
  };
  refused({{"data", ""}}).names("train").names("sentences").offers("--data=FILE").offers("--translations=FILE");
  refused({{"context", "20"}}).names(bible).names("context").value(20).offers("--context").offers("--max_length=20");
  refused({{"context", "20"}, {"max_length", "5"}}).names("train").names(bible).value(5).offers("--max_length");
  refused({{"vocabulary", "20"}}).names("vocabulary").value(20).names("tokenizer").offers(150);
  refused({{"validation_fraction", "0.002"}}).names("validation_fraction").value("0.002").value(48).names("pairs");
  refused({{"source_column", "9"}}).names(bible).value(9);
  refused({{"task", "language_modeling"}, {"source_column", "4"}}).names("source_column").offers("task=translation");
  const auto of_gpt = [&] {
    train({{"model", "gpt-char-small"},
           {"task", "translation"},
           {"data", bible},
           {"source_column", "4"},
           {"target_column", "3"},
           {"out", folder / "gpt"},
           {"tokenizer", "sentence_piece(vocabulary=150)"},
           {"context", "256"}});
  };
  expect_error(of_gpt).names("translation").names("model").offers("sequence");
  const auto model = make_translator(small_translator());
  const std::vector<std::vector<int32_t>> sources = {{10}, std::vector<int32_t>(13, 1)};
  const auto search = [&](const SearchSettings& s) {
    return expect_error([&] { translate(*model, sources, small_marks, s); }).names("translate");
  };
  search({}).names("sentence 2").value(13).names("context").offers(12);
  search({.beam = 0}).names("beam").value(0).offers(1);
  search({.max_tokens = -1}).names("max_tokens").value(-1).offers(0);
  const SentenceMarks of_more{.begin = 4, .end = 5, .vocabulary = 9999};
  const auto other = [&] { translate(*model, sources, of_more, {}); };
  expect_error(other).names("translate").value(9999).names("model").value(model->vocabulary());
}
