// Algorithmic problems: the targets follow from the sequence, for any random draw.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "models/data/algorithmic/base/problem.h"
#include "models/training/trainer.h"
#include "nn/base/spec_family.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"
#include "tests/support/train.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::Folder;
using orrery::testing::train;

namespace {

using Tokens = std::vector<int32_t>;

struct Sequence {
  Tokens inputs, targets;
};
Sequence made(const Problem& problem, uint64_t number) {
  const auto length = static_cast<size_t>(problem.length());
  Sequence s{Tokens(length), Tokens(length, no_target)};
  problem.write(RandomKey{5, 0}.derive(number), s.inputs, s.targets);
  return s;
}
// Checks 200 sequences: each has an answer, and all tokens are in the vocabulary.
void each(const std::string& spec, const std::function<void(const Sequence&)>& inspect) {
  INFO(spec);
  const auto problem = make_problem(parse_spec(spec));
  for (uint64_t i = 0; i < 200; ++i) {
    const Sequence s = made(*problem, i);
    inspect(s);
    CHECK(std::count(s.targets.begin(), s.targets.end(), no_target) < problem->length());
    for (const int32_t token : s.inputs) CHECK((token >= 0 && token < problem->vocabulary()));
    for (const int32_t token : s.targets) CHECK((token == no_target || (token >= 0 && token < problem->vocabulary())));
    CHECK(made(*problem, i).inputs == s.inputs);
  }
  CHECK(made(*problem, 0).inputs != made(*problem, 1).inputs);
}
Assignments small_run(const Folder& folder, const std::string& out, const std::string& problem, int steps) {
  return {{"task", "algorithmic"},
          {"problem", problem},
          {"out", folder / out},
          {"steps", std::to_string(steps)},
          {"layers", "2"},
          {"heads", "2"},
          {"width", "32"},
          {"context", "16"},
          {"batch_size", "16"},
          {"warmup_steps", "5"},
          {"validation_sequences", "50"},
          {"evaluate_every", "0"},
          {"checkpoint_every", "0"}};
}

}  // namespace

TEST_CASE("problems: copy queries the symbols before the separator") {
  each("copy(length=5, symbols=3)", [](const Sequence& s) {
    CHECK(s.inputs[5] == 3);
    for (size_t i = 0; i < 5; ++i) {
      CHECK(s.targets[i] == no_target);
      CHECK(s.targets[5 + i] == s.inputs[i]);
      if (i < 4) CHECK(s.inputs[6 + i] == s.inputs[i]);
    }
  });
  each("copy(length=1, symbols=200)", [](const Sequence& s) { CHECK(s.targets == Tokens{no_target, s.inputs[0]}); });
}

TEST_CASE("problems: induction queries the symbol after the earlier occurrence of the last token") {
  for (const char* spec : {"induction(length=9, symbols=5)", "induction(length=3, symbols=40)"})
    each(spec, [](const Sequence& s) {
      CHECK(std::count(s.inputs.begin(), s.inputs.end(), s.inputs.back()) == 2);
      const auto before = std::find(s.inputs.begin(), s.inputs.end(), s.inputs.back());
      CHECK(s.targets.back() == *(before + 1));
      CHECK(std::count(s.targets.begin(), s.targets.end(), no_target) ==
            static_cast<std::ptrdiff_t>(s.targets.size()) - 1);
    });
}

TEST_CASE("problems: recall queries the most frequent value under a key") {
  struct Case {
    int32_t length, evidence, keys, values, questions = 1;
  };
  for (const Case& c : {Case{20, 5, 3, 4}, Case{8, 8, 2, 2}, Case{10, 1, 4, 3}, Case{64, 16, 2, 2},
                        Case{20, 5, 4, 3, 4}, Case{20, 5, 5, 3, 3}}) {
    const std::string spec = text("recall(length=", c.length, ", evidence=", c.evidence, ", keys=", c.keys,
                                  ", values=", c.values, ", questions=", c.questions, ")");
    each(spec, [&](const Sequence& s) {
      std::set<int32_t> questions;
      for (auto at = static_cast<size_t>(c.length); at < s.inputs.size(); ++at) {
        const int32_t question = s.inputs[at] - c.keys * c.values;
        questions.insert(question);
        std::map<int32_t, int> count;
        for (size_t i = 0; i < static_cast<size_t>(c.length); ++i)
          if (s.inputs[i] / c.values == question) ++count[s.inputs[i] % c.values];
        int all = 0;
        for (const auto& [value, times] : count) {
          all += times;
          if (value != s.targets[at]) CHECK(times < count[s.targets[at]]);
        }
        CHECK(all == c.evidence);
      }
      CHECK(questions.size() == static_cast<size_t>(c.questions));
    });
  }
  const auto refusal = [](const char* problem) { return expect_error([&] { make_problem(parse_spec(problem)); }); };
  refusal("recall(length=4, evidence=5)").names("evidence").value(5).value(1).value(4).offers(4);
  refusal("recall(length=20, evidence=4, questions=4)").value(4).names("keys").value(4).offers("fewer questions");
}

TEST_CASE("problems: the target of a sum is the sum of its terms modulo k") {
  each("modular_sum(terms=6, modulus=7)", [](const Sequence& s) {
    int32_t sum = 0;
    for (size_t i = 0; i < 6; ++i) sum += s.inputs[i];
    CHECK(s.inputs[6] == 7);
    CHECK(s.targets[6] == sum % 7);
  });
  CHECK(make_problem(parse_spec("modular_sum(k=11)"))->vocabulary() == 12);
}

TEST_CASE("problems: each mark of a ladder queries the symbol at its lag, and all lags are queried") {
  std::map<int32_t, int> marks;
  each("ladder(length=50, first=3, gap=7, rungs=4, symbols=5)", [&](const Sequence& s) {
    for (size_t t = 0; t < s.inputs.size(); ++t) {
      CHECK((s.targets[t] == no_target) == (s.inputs[t] < 5));
      if (s.inputs[t] < 5) continue;
      const int32_t rung = s.inputs[t] - 5;
      ++marks[rung];
      CHECK(s.targets[t] < 5);
      CHECK(s.targets[t] == s.inputs[t - static_cast<size_t>(3 + 7 * rung)]);
    }
  });
  CHECK(marks.size() == 4);
  each("ladder(length=5, first=4, gap=1, rungs=2)", [](const Sequence& s) { CHECK(s.targets[4] == s.inputs[0]); });
  const Spec short_one = parse_spec("ladder(length=4, first=4)");
  expect_error([&] { make_problem(short_one); }).names("length").value(4).names("lag").value(4).offers(5);
}

TEST_CASE("algorithmic: a GPT learns to copy, and the logged accuracy rises") {
  const Folder folder;
  Assignments settings = small_run(folder, "copy", "copy(length=4, symbols=4)", 300);
  settings.emplace_back("learning_rate", "5e-3");
  const TrainingResult result = train(settings);
  REQUIRE(result.metrics.size() == 1);
  CHECK(result.metrics[0].first == "accuracy");
  INFO(result.validation_loss, " ", result.metrics[0].second);
  CHECK(result.metrics[0].second > 0.9);
  CHECK(result.validation_loss < 0.5);  // ln 4 = 1.39 without copying
}

TEST_CASE("algorithmic: every problem trains, also with a stream model, and resumes bit-identically") {
  const Folder folder;
  for (const std::string& problem : problems().names()) {
    INFO(problem);
    Assignments settings = small_run(folder, problem, problem, 2);
    settings.emplace_back("context", "128");
    const double once = train(settings).validation_loss;
    CHECK(std::isfinite(once));
    settings.insert(settings.end(), {{"out", folder / (problem + "-again")}, {"steps", "1"}, {"schedule", "constant"}});
    Assignments whole = settings, rest = settings;
    whole.insert(whole.end(), {{"out", folder / (problem + "-whole")}, {"steps", "2"}});
    rest.insert(rest.end(), {{"steps", "2"}, {"resume", "yes"}});
    train(settings);
    CHECK(train(rest).validation_loss == train(whole).validation_loss);
  }
  Assignments stream = small_run(folder, "stream", "ladder(length=40, first=3, gap=4, rungs=3)", 2);
  stream.insert(stream.end(), {{"model", "stream"},
                               {"context", "40"},
                               {"cache_length", "40"},
                               {"attention", "softmax(span=adaptive_span(40, R=8))"}});
  const TrainingResult result = train(stream);
  CHECK(result.metrics.size() == 3);  // accuracy, span_mean, span_max
}

TEST_CASE("algorithmic: settings that do not fit have error messages") {
  const Folder folder;
  const auto refusal = [&](const std::string& problem, const Assignments& more = {}) {
    Assignments settings = small_run(folder, "refused", problem, 2);
    settings.insert(settings.end(), more.begin(), more.end());
    return expect_error([&] { Trainer trainer(make_settings(settings)); });
  };
  refusal("copy(length=9)").names("problem=copy(length=9)").value(18).value(16).offers("context=18");
  const Assignments few = {{"vocabulary", "5"}};
  refusal("copy(length=4)", few).names("vocabulary").value(5).value(9).names("problem=copy(length=4)").offers("raise");
  refusal("copi").value("copi").offers("'copy'");
  refusal("copy(length=0)").names("length").value(0).offers(1);
  Assignments run = small_run(folder, "run", "copy(length=4)", 2);
  train(run);
  run.insert(run.end(), {{"problem", "copy(length=5)"}, {"resume", "yes"}, {"steps", "4"}});
  const auto resume = [&] { Trainer trainer(make_settings(run)); };
  expect_error(resume).names("problem=copy(length=4, symbols=8)").value("copy(length=5, symbols=8)").offers("--resume");
}
