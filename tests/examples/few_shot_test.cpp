// orrery evaluate --few_shot: the output and the errors that a user gets.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/tensor/safetensors.h"
#include "tests/examples/program.h"
#include "tests/support/message.h"

using namespace orrery;
using orrery::testing::expect_error;
using orrery::testing::finds;
using orrery::testing::Message;

namespace {

using Words = std::vector<std::string>;
const std::string scraps = ORRERY_SOURCE_DIR "/tests/models/images";

// Trains a small model of the ten classes of Fashion-MNIST and returns its folder.
std::string trained_vit(const Folder& folder) {
  const Outcome trained = run_orrery({"train", "--out=" + (folder / "run"), "--evaluate_every=0", "--model=vit",
                                      "--layers=1", "--heads=2", "--width=16", "--patch=7", "--steps=100",
                                      "--batch_size=12", "--learning_rate=1e-2", "--data=" + scraps + "/fashion"});
  REQUIRE_MESSAGE(is_complete(trained), trained.err);
  return folder / "run";
}

nlohmann::ordered_json json_of(const Outcome& outcome) {
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  return nlohmann::ordered_json::parse(outcome.out);
}

}  // namespace

TEST_CASE("few-shot: a probe of the training classes is better than a guess, and repeats exactly") {
  const Folder folder;
  const std::string run = trained_vit(folder);
  const Words words = {"evaluate", run, "--few_shot=5", "--seeds=2"};
  const auto found = json_of(run_orrery(words + Words{"--json"}))["few_shot"];
  CHECK(found["shots"] == 5);
  CHECK(found["classes"] == 10);
  CHECK(found["test_examples"] == 20);
  CHECK(found["layer"] == "head.input");
  CHECK(found["features"] == 16);
  CHECK(found["accuracy"] > 0.2);  // a guess: 0.1
  REQUIRE(found["seeds"].size() == 2);
  CHECK(json_of(run_orrery(words + Words{"--json"}))["few_shot"] == found);
  const Outcome text = run_orrery(words);
  REQUIRE_MESSAGE(text.code == 0, text.err);
  CHECK(finds(text.out, "^5 shots of each of 10 classes, 20 test examples\n16 features from head.input\n"));
  CHECK(finds(text.out, "accuracy 0\\.\\d{4}, deviation 0\\.\\d{4}\n"));
  CHECK(finds(text.out, " 2 +0\\.\\d{4} +2\\^-?\\d+\n"));
}

TEST_CASE("few-shot: other data, with classes that the model does not know, and test data elsewhere") {
  const Folder folder;
  const std::string run = trained_vit(folder);
  const auto found = json_of(run_orrery({"evaluate", run, "--few_shot=3", "--json", "--features=blocks.0",
                                         "--data=" + scraps + "/shapes"}))["few_shot"];
  CHECK(found["classes"] == 2);
  CHECK(found["test_examples"] == 4);
  CHECK(found["layer"] == "blocks.0");
  CHECK(found["seeds"].size() == 3);
  const auto elsewhere = json_of(run_orrery({"evaluate", run, "--few_shot=3", "--json", "--data=" + scraps + "/shapes",
                                             "--validation_data=" + scraps + "/shapes/train"}))["few_shot"];
  CHECK(elsewhere["test_examples"] == 8);
  expect_error(run_orrery({"evaluate", run, "--few_shot=3", "--data=" + scraps + "/shapes", "--edits=blocks.0@500*0"}))
      .names("edits")
      .value("blocks.0@500*0");
  // A value after the one that is read; before it, the same edit is applied.
  const Words late = {"evaluate", run, "--few_shot=3", "--data=" + scraps + "/shapes", "--edits=blocks.0*0"};
  const Outcome refused = run_orrery(late + Words{"--features=blocks.0.attention"});
  CHECK(refused.code == 2);
  expect_error(refused)
      .names("edits")
      .value("blocks.0*0")
      .names("blocks.0.attention.output")
      .offers("a later one");
  CHECK(run_orrery(late).code == 0);
}

TEST_CASE("few-shot: --out writes features and weights, and replaces only its own files") {
  const Folder folder;
  const std::string run = trained_vit(folder), out = folder / "features.safetensors";
  const Words words = {"evaluate", run, "--few_shot=2", "--seeds=2", "--out=" + out};
  const Outcome written = run_orrery(words);
  REQUIRE_MESSAGE(written.code == 0, written.err);
  std::map<std::string, Tensor> tensors;
  for (const NamedTensor& each : read_safetensors(out).tensors) tensors[each.name] = each.tensor;
  const int64_t examples = tensors.at("train.labels").size(0);
  CHECK(examples >= 20);
  CHECK(tensors.at("train.features").shape() == Shape{examples, 16});
  CHECK(tensors.at("test.features").shape() == Shape{20, 16});
  CHECK(tensors.at("seed.2.shots").shape() == Shape{20});
  CHECK(tensors.at("seed.2.weights").shape() == Shape{17, 10});
  CHECK(tensors.at("accuracies").shape() == Shape{2});
  CHECK(run_orrery(words).code == 0);
  const std::string other = folder.write("other.safetensors", "mine");
  expect_error(run_orrery({"evaluate", run, "--few_shot=2", "--out=" + other})).names("evaluate").value(other);
  expect_error(run_orrery({"evaluate", run, "--few_shot=2", "--out=" + (folder / "features.png")}))
      .names("--out")
      .value(".png")
      .offers(".safetensors");
  // Before the features are computed, which this layer would refuse.
  const std::string nowhere = folder / "nowhere/features.safetensors";
  expect_error(run_orrery({"evaluate", run, "--few_shot=2", "--features=blocks.9", "--out=" + nowhere}))
      .value(nowhere)
      .names(folder / "nowhere")
      .offers("another --out");
}

TEST_CASE("few-shot: errors name the class, the layer and the setting") {
  const Folder folder;
  const std::string run = trained_vit(folder);
  const auto refused = [&](const Words& more) { return expect_error(run_orrery(Words{"evaluate", run} + more)); };
  refused({"--few_shot=7"}).names("fashion").value(6).value("few_shot").value(7).offers("--few_shot=6");
  refused({"--few_shot=2", "--features=blocks.1"}).value("blocks.1").offers("blocks.0").offers("norm");
  refused({"--few_shot=-1"}).names("few_shot").value(-1);
  refused({"--few_shot=2", "--seeds=0"}).names("seeds").value(0);
  refused({"--seeds=2"}).names("--seeds").offers("--few_shot=10");
  refused({"--features=blocks.0"}).names("--features").offers("--few_shot=10");
  const Message missing = refused({"--few_shot=2", "--data=" + (folder / "none")});
  Message(missing).value(folder / "none").names("given with --data").offers("the path of the data");
  CHECK(!finds(missing.message(), "the run's|--validation_data"));
  refused({"--validation_data=" + (folder / "none")}).value(folder / "none").names("given with --validation_data");
}

TEST_CASE("few-shot: texts of a language model, by the state of their last token") {
  const Folder folder;
  const std::string run = folder / "run";
  const Outcome trained = run_orrery(Words{"train", "--model=gpt", "--data=" + folder.write("t", tiny_text()),
                                           "--tokenizer=byte", "--out=" + run, "--evaluate_every=0"} +
                                     tiny);
  REQUIRE_MESSAGE(is_complete(trained), trained.err);
  std::string table = "sentence,kind\n";
  for (int i = 0; i < 20; ++i)  // the last letter is the class
    for (const std::string end : {"a", "q", "z"})
      table += std::string(static_cast<size_t>(1 + i % 12), static_cast<char>('b' + i % 7)) + end + "," + end + "\n";
  const std::string csv = folder.write("texts.csv", table), out = folder / "texts.safetensors";
  const Words words = {"evaluate", run, "--few_shot=8", "--data=" + csv, "--out=" + out, "--json",
                       "--text_column=sentence", "--label_column=kind"};
  const Outcome outcome = run_orrery(words + Words{"--validation_fraction=0.25"});
  const auto found = json_of(outcome)["few_shot"];
  CHECK(found["classes"] == 3);
  CHECK(found["test_examples"] == 15);
  CHECK(found["layer"] == "norm.output");
  CHECK(found["accuracy"] > 0.6);  // a guess: 1/3; the embeddings of last letters differ even without training
  Message(outcome.err).names(csv).value(8);  // texts of more than 8 tokens, the context
  const Outcome same = run_orrery(words + Words{"--validation_data=" + csv});
  CHECK(json_of(same)["few_shot"]["test_examples"] == 60);
  Message(same.err).names(csv).value("60 of 60").value("seen");
  const auto refused = [&](const Words& more) {
    return expect_error(run_orrery(Words{"evaluate", run, "--few_shot=2"} + more));
  };
  refused({"--data=" + csv}).names(csv).value("text").names("text_column").offers("sentence, kind");
  refused({"--data=" + (folder / "t")}).names(folder / "t").offers(".csv");
  refused({"--data=" + csv, "--text_column=sentence", "--label_column=kind", "--few_shot=19"})
      .names(csv)
      .value(18)
      .value("few_shot")
      .value(19)
      .offers("--few_shot=18");
  expect_error(run_orrery({"evaluate", run, "--among=" + csv}), 2).names("--among");
}
