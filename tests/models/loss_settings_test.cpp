// Settings that give a loss its meaning: which losses of runs may be compared.
#include "models/training/loss_settings.h"

#include <doctest/doctest.h>

#include "tests/support/message.h"
#include "tests/support/small_run.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

using Names = std::vector<std::string>;

using Prints = std::map<std::string, std::string>;  // SHA-256 by input

// Two runs whose settings share `common`.
std::vector<LossMeaning> two_runs(const Assignments& first, const Assignments& second, const Assignments& common) {
  const auto settings = [&](const Assignments& more) {
    Assignments all = common;
    all.insert(all.end(), more.begin(), more.end());
    return make_settings(all);
  };
  return {{settings(first)}, {settings(second)}};
}
// Compares runs whose inputs have these fingerprints.
Names differing(const std::string& metric, const Assignments& first, const Prints& read_by_first,
                const Assignments& second, const Prints& read_by_second) {
  std::vector<LossMeaning> runs = two_runs(first, second, {});
  for (const auto& [key, print] : read_by_first) runs[0].fingerprints[key] = {1, print};
  for (const auto& [key, print] : read_by_second) runs[1].fingerprints[key] = {1, print};
  return differing_loss_settings(metric, runs);
}
Names differing(const std::string& metric, const Assignments& first, const Assignments& second,
                const Assignments& common = {{"data", "a.txt"}}) {
  return differing_loss_settings(metric, two_runs(first, second, common));
}

}  // namespace

TEST_CASE("meaning: validation losses are comparable if they have equal targets") {
  CHECK(differing("validation_loss", {{"tokenizer", "byte"}}, {}) == Names{"tokenizer"});
  CHECK(differing("validation_loss", {{"validation_fraction", "0.3"}, {"validation_tokens", "50"}}, {}) ==
        Names{"validation_fraction", "validation_tokens"});
  CHECK(differing("validation_loss", {{"validation_data", "v.txt"}}, {}) == Names{"validation_data"});
  CHECK(differing("validation_loss", {{"data", "b.txt"}}, {}) == Names{"data"});
  CHECK(differing("validation_loss", {{"documents", "yes"}}, {}) == Names{"documents"});
  CHECK(differing("validation_loss", {{"seed", "2"}, {"width", "8"}, {"label_smoothing", "0.1"}}, {}).empty());
  CHECK(differing("validation_loss", {{"model", "stream-char-small"}}, {{"model", "gpt-char-small"}}).empty());
  const Assignments images = {{"model", "vit-s16"}, {"data", "images"}};
  CHECK(differing("validation_loss", {{"loss", "sigmoid"}}, {}, images) == Names{"loss"});
  CHECK(differing("accuracy", {{"loss", "sigmoid"}}, {}, images).empty());
  const Assignments problems = {{"task", "algorithmic"}};
  CHECK(differing("accuracy", {{"problem", "recall"}, {"validation_sequences", "8"}}, {}, problems) ==
        Names{"problem", "validation_sequences"});
}

TEST_CASE("meaning: other training data do not change the meaning of the loss on separate data") {
  const Assignments separate = {{"validation_data", "v.txt"}};
  CHECK(differing("validation_loss", {{"data", "a.txt"}}, {{"data", "b.txt"}}, separate).empty());
  CHECK(differing("validation_loss", {{"data", "a.txt"}, {"validation_fraction", "0.3"}}, {{"data", "b.txt"}}, separate)
            .empty());
  const Assignments trained = {{"validation_data", "v.txt"}, {"tokenizer", "byte_pair(vocabulary=300)"}};
  CHECK(differing("validation_loss", {{"data", "a.txt"}}, {{"data", "b.txt"}}, trained) == Names{"data"});
  CHECK(differing("bits_per_character", {{"data", "a.txt"}}, {{"data", "b.txt"}}, trained).empty());
  CHECK(differing("training_loss", {{"data", "a.txt"}}, {{"data", "b.txt"}}, separate) == Names{"data"});
}

TEST_CASE("meaning: data and tokenizers are compared by their fingerprints if both are known") {
  const Assignments a = {{"data", "a.txt"}}, same = {{"data", "./a.txt"}};
  CHECK(differing("validation_loss", a, {{"data", "1"}}, same, {{"data", "1"}}).empty());
  CHECK(differing("validation_loss", a, {{"data", "1"}}, a, {{"data", "2"}}) == Names{"data"});
  CHECK(differing("validation_loss", a, {{"data", "1"}}, same, {}) == Names{"data"});
  CHECK(differing("validation_loss", a, {{"data", "1"}}, a, {}).empty());
  CHECK(differing("validation_loss", a, {{"data", "1"}}, a, {{"data", "1"}, {"data (files)", "2"}}) == Names{"data"});
  const Assignments apart = {{"data", "a.txt"}, {"validation_data", "v.txt"}};
  CHECK(differing("validation_loss", apart, {{"validation_data", "1"}}, apart, {{"validation_data", "2"}}) ==
        Names{"validation_data"});

  // One setting trains other vocabularies on other texts, or takes them over by init_from.
  const Assignments trained = {{"data", "a.txt"}, {"tokenizer", "byte_pair(vocabulary=300)"}};
  const Prints one = {{"data", "1"}, {"tokenizer", "3"}}, other = {{"data", "1"}, {"tokenizer", "4"}};
  CHECK(differing("validation_loss", trained, one, trained, one).empty());
  CHECK(differing("validation_loss", trained, one, trained, other) == Names{"tokenizer"});
  CHECK(differing("bits_per_character", trained, one, trained, other).empty());
  // With the vocabularies known, other data to train on leave the loss on separate data as it is.
  const Assignments b = {{"data", "b.txt"}, {"validation_data", "v.txt"}, {"tokenizer", "byte_pair(vocabulary=300)"}};
  Assignments c = b;
  c[0].second = "c.txt";
  CHECK(differing("validation_loss", b, one, c, {{"data", "2"}, {"tokenizer", "3"}}).empty());
  CHECK(differing("validation_loss", b, one, c, {{"data", "2"}, {"tokenizer", "4"}}) == Names{"tokenizer"});

  // Pairs have the fingerprint of the part that trains: it is not compared where that part differs.
  const Assignments pairs = {{"model", "translation-small"}, {"data", "p.de"}, {"translations", "p.en"}};
  Assignments moved = pairs, divided = pairs;
  moved[1].second = "./p.de", moved[2].second = "./p.en", divided.emplace_back("validation_fraction", "0.2");
  CHECK(differing("loss", pairs, {{"data", "1"}}, moved, {{"data", "1"}}).empty());
  CHECK(differing("loss", pairs, {{"data", "1"}}, divided, {{"data", "2"}}).empty());
  CHECK(differing("loss", pairs, {{"data", "1"}}, pairs, {{"data", "2"}}) == Names{"data"});
}

TEST_CASE("meaning: a pattern stands for the metrics that it matches") {
  CHECK(metrics_with_meaning("validation_los?") == Names{"validation_loss"});
  CHECK(metrics_with_meaning("[vt]*_loss") == Names{"validation_loss", "training_loss"});
  CHECK(metrics_with_meaning("gradient_*").empty());
}

TEST_CASE("meaning: a run's checkpoint has the fingerprints of its inputs") {
  const Run run, other("other");
  const std::string text = run.folder / "second.txt";
  write(text, "www: " + read_file(run.text));
  run.train();
  other.train({{"data", text}});
  const auto meaning = [](const Run& each, const std::string& data) {
    return loss_meaning(each.settings({{"data", data}}), read_state(each.checkpoint(6)));
  };
  const LossMeaning first = meaning(run, run.text);
  CHECK(differing_loss_settings("validation_loss", std::vector{first, meaning(run, "moved.txt")}).empty());
  // Equal settings; the other text has further characters.
  const std::vector<LossMeaning> runs = {first, meaning(other, run.text)};
  CHECK(differing_loss_settings("validation_loss", runs) == Names{"data", "tokenizer"});
  Message(comparability_note("validation_loss", runs))
      .names("data (equal settings, other contents)")
      .offers("--validation_data")
      .offers("bits_per_character");
}

TEST_CASE("meaning: each metric has its own settings") {
  CHECK(differing("bits_per_character", {{"tokenizer", "byte"}}, {}).empty());
  const Assignments some = {{"data", "a.txt"}, {"validation_tokens", "50"}};  // 50 tokens have another text
  CHECK(differing("bits_per_character", {{"tokenizer", "byte"}}, {}, some) == Names{"tokenizer"});
  CHECK(differing("training_loss", {{"training_loss_tokens", "5"}}, {}) == Names{"training_loss_tokens"});
  CHECK(differing("training_loss", {{"validation_tokens", "5"}}, {}).empty());
  CHECK(differing("loss", {{"label_smoothing", "0.1"}}, {}) == Names{"label_smoothing"});
  CHECK(differing("span_mean", {{"tokenizer", "byte"}}, {}).empty());
}

TEST_CASE("meaning: a note names the settings and a way out") {
  const auto note = [](const Assignments& first, const Assignments& common) {
    return comparability_note("validation_loss", two_runs(first, {}, common));
  };
  Message(note({{"tokenizer", "byte"}}, {{"data", "a.txt"}}))
      .names("validation_loss")
      .names("tokenizer")
      .offers("bits_per_character");
  Message(note({{"data", "b.txt"}}, {{"data", "a.txt"}})).names("data").offers("--validation_data");
  const std::string both = note({{"tokenizer", "byte"}}, {{"data", "a.txt"}, {"validation_tokens", "50"}});
  Message(both).names("tokenizer").offers("bits_per_character").offers("--validation_tokens=0");
  Message(note({{"documents", "yes"}}, {{"data", "a.txt"}})).names("documents").offers("same value");
  CHECK(note({{"seed", "2"}}, {{"data", "a.txt"}}).empty());
  const auto notes = comparability_notes(two_runs({{"tokenizer", "byte"}, {"label_smoothing", "0.1"}}, {}, {}));
  REQUIRE(notes.size() == 2);
  Message(notes[1]).names("loss").names("label_smoothing");
}

TEST_CASE("meaning: a resumed run may not change what gives a loss its meaning") {
  const Run run;
  run.train();
  for (const auto& [key, value] : Assignments{{"tokenizer", "byte"},
                                              {"documents", "yes"},
                                              {"label_smoothing", "0.1"},
                                              {"validation_fraction", "0.2"},
                                              {"validation_tokens", "20"}}) {
    const std::string captured = key;  // clang 14 captures no structured binding
    CAPTURE(captured);
    CHECK(defines_loss(key));
    CHECK_THROWS_AS(run.resume({{key, value}}), Error);
  }
  for (const char* const key : {"learning_rate", "dropout", "batch_size", "seed", "width"}) CHECK(!defines_loss(key));
}
