// orrery prepare and orrery generate: from a text to a sample.
#include <doctest/doctest.h>

#include <filesystem>

#include "tests/examples/training.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using orrery::testing::expect_error;
using orrery::testing::Message;

TEST_CASE("prepare: train reads the prepared tokens of a text, and generate uses their tokenizer") {
  const Folder folder;
  const std::string text = folder.write("text.txt", tiny_text()), out = folder / "tokens";
  const Words tokenizer = {std::string("--tokenizer=") + ORRERY_SOURCE_DIR + "/tests/models/byte_pair/gpt2"};
  const Outcome prepared = run_orrery(Words{"prepare", "--input=" + text, "--out=" + out} + tokenizer);
  INFO(prepared.out, prepared.err);
  REQUIRE(prepared.code == 0);
  Message(prepared.out).names("tokens").names("validation").value(420).names(out + "/train.bin\n");
  expect_error(run_orrery(Words{"prepare", "--input=" + text, "--out=" + out} + tokenizer))
      .names("train.bin")
      .offers("another --out");
  const std::string run = "--out=" + (folder / "run");
  const Outcome trained = run_orrery({"train", "--data=" + out, run, "--steps=2", "--context=16", "--width=16"});
  INFO(trained.out, trained.err);
  CHECK(is_complete(trained));
  CHECK(run_orrery({"generate", "--checkpoint=" + (folder / "run"), "--prompt=a", "--tokens=5"}).code == 0);
}

TEST_CASE("prepare, train: a tokenizer that differs from that of the tokens is refused, as is the folder of a run") {
  const Folder folder;
  const std::string text = folder.write("text.txt", tiny_text()), out = folder / "tokens", run = folder / "run";
  REQUIRE(run_orrery({"prepare", "--input=" + text, "--out=" + out, "--tokenizer=byte"}).code == 0);
  const Words train = {"train", "--data=" + out, "--out=" + run, "--steps=2", "--context=16", "--width=16"};
  expect_error(run_orrery(train + Words{"--tokenizer=character"})).names(out).value("byte").value("character");
  CHECK(!fs::exists(run));
  const Outcome trained = run_orrery(train);
  CHECK_MESSAGE(is_complete(trained), trained.err);
  CHECK(contains(trained.err, "tokenizer=byte"));
  for (const std::string& taken : {run, run + "/", run + "/step_000002"})
    expect_error(run_orrery({"prepare", "--input=" + text, "--out=" + taken})).names("--out").offers("another --out");
  CHECK(!fs::exists(run + "/train.bin"));
  CHECK(run_orrery({"prepare", "--input=" + text, "--out=" + run + "/prepare"}).code == 0);
}

TEST_CASE("generate: the name of a run's folder may contain bytes that are not UTF-8") {
  const Folder folder;
  REQUIRE(run_orrery(train_tiny(folder, "run")).code == 0);
  fs::rename(folder / "run", folder / "lat\xe9");
  const Outcome written = run_orrery({"generate", "--prompt=ae", "--tokens=5", "--checkpoint=" + (folder / "lat\xe9")});
  CHECK_MESSAGE(written.code == 0, written.err);
}

TEST_CASE("generate: a run and its checkpoint give the same text for the same seed") {
  const Folder folder;
  REQUIRE(run_orrery(train_tiny(folder, "run")).code == 0);
  const auto generate = [&](const Words& more) {
    const Outcome outcome = run_orrery(Words{"generate", "--tokens=30"} + more);
    INFO(outcome.err);
    CHECK(outcome.code == 0);
    return outcome.out;
  };
  const std::string run = "--checkpoint=" + (folder / "run"), checkpoint = run + "/step_000004";
  const std::string text = generate({run, "--prompt=ae"});
  CHECK(text.size() == 2 + 30 + 1);
  CHECK(text.starts_with("ae"));
  CHECK(generate({checkpoint, "--prompt=ae"}) == text);
  CHECK(generate({run, "--start=FILE:" + folder.write("prompt.txt", "ae")}) == text);
  REQUIRE(run_shell("gzip '" + (folder / "prompt.txt") + "'").code == 0);
  CHECK(generate({run, "--start=FILE:" + (folder / "prompt.txt.gz")}) == text);
  CHECK(generate({run, "--start=FILE:" + folder.write("marked.txt", "\xEF\xBB\xBF" "ae")}) == text);
  CHECK(generate({run, "--prompt=ae", "--seed=2"}) != text);
  CHECK(generate({run, "--prompt=ae", "--temperature=0"}) ==
        generate({run, "--prompt=ae", "--temperature=0", "--seed=9"}));
  CHECK(generate({run}).size() == 30 + 1);
  const std::string two = generate({run, "--prompt=ae", "--samples=2"});
  CHECK(two.starts_with(text.substr(0, text.size() - 1) + "\n---------------\nae"));
  CHECK(two.ends_with(generate({run, "--prompt=ae", "--seed=2"})));
}

TEST_CASE("generate: SentencePiece text contains spaces, and the prompt is optional") {
  const Folder folder;
  std::string words;
  for (int i = 0; i < 300; ++i) words += "to be or not to be and\n";
  const std::string run = folder / "run";
  const Outcome trained = run_orrery(Words{"train", "--data=" + folder.write("text.txt", words), "--out=" + run,
                                           "--tokenizer=sentence_piece(vocabulary=20)"} +
                                     tiny);
  INFO(trained.err);
  REQUIRE(is_complete(trained));
  const Outcome written = run_orrery({"generate", "--checkpoint=" + run, "--prompt=to be", "--tokens=60"});
  INFO(written.out, written.err);
  CHECK(written.code == 0);
  CHECK(written.out.find(' ', 6) != std::string::npos);
  CHECK(run_orrery({"generate", "--checkpoint=" + run, "--tokens=5"}).code == 0);
}

TEST_CASE("generate, evaluate: a model of an algorithmic problem continues numbers; only answers are evaluated") {
  const Folder folder;
  const std::string run = folder / "run";
  REQUIRE(is_complete(run_orrery({"train", "--task=algorithmic", "--problem=copy(length=3)", "--context=16",
                                  "--layers=1", "--heads=2", "--width=16", "--steps=1", "--out=" + run})));
  const Outcome written = run_orrery({"generate", "--checkpoint=" + run, "--prompt=1 2 3", "--tokens=2"});
  INFO(written.out, written.err);
  CHECK(written.code == 0);
  CHECK(written.out.starts_with("1 2 3 "));
  expect_error(run_orrery({"generate", "--checkpoint=" + run, "--prompt=a"})).value("'a'").offers("numbers");
  CHECK(run_orrery({"generate", "--checkpoint=" + run, "--tokens=2"}).code == 0);
  CHECK(run_orrery({"evaluate", "--checkpoint=" + run}).out.starts_with("1,536 targets in 3,072 tokens\nloss "));
}

TEST_CASE("generate: the number of generated tokens and the speed go to standard error") {
  const Folder folder;
  REQUIRE(run_orrery(train_tiny(folder, "run")).code == 0);
  const Words words = {"generate", "--checkpoint=" + (folder / "run"), "--prompt=aea"};
  const Outcome written = run_orrery(words + Words{"--tokens=9", "--samples=2"});
  Message(written.err).names("generated").value("18 tokens; prompt: 6 tokens in").value("tokens/s; after each first");
  Message(written.err).names("after each first token").value("16 tokens in").value("tokens/s\n");
  CHECK(!contains(written.out, "tokens/s"));
  CHECK(run_orrery(words + Words{"--tokens=0"}).err.empty());
  Message(run_orrery(words + Words{"--tokens=2"}).err).names("generated").value("2 tokens").value("1 token");
  CHECK(run_orrery(words + Words{"--tokens=1"}).err.starts_with("generated 1 token; prompt: 3 tokens in "));
}

TEST_CASE("generate: damaged checkpoints and unknown characters give one error message") {
  const Folder folder;
  REQUIRE(run_orrery(train_tiny(folder, "run")).code == 0);
  const std::string run = "--checkpoint=" + (folder / "run"), checkpoint = folder / "run/step_000004";
  const auto error = [&](const Words& words) {
    const Outcome outcome = run_orrery(Words{"generate", run} + words);
    CHECK(outcome.out.empty());
    CHECK(outcome.err.find('\n') == outcome.err.size() - 1);
    return expect_error(outcome);
  };
  error({"--prompt=A?"}).names("vocabulary").value("'A'");
  error({"--prompt=a", "--start=FILE:x"}).names("generate").names("--prompt").names("--start").offers("one");
  error({"--start=FILE:/nowhere"}).names("/nowhere").value("No such file");
  error({"--temperature=-1"}).names("generate").names("temperature").value(-1).offers(0);
  error({"--checkpoint=" + folder.path()}).names(folder.path()).value("checkpoint").offers("folder of a run");

  const std::string whole = weights(checkpoint);
  fs::resize_file(checkpoint + "/weights.safetensors", whole.size() / 2);
  error({}).names("weights.safetensors").value("damaged").value(whole.size() / 2).offers(whole.size());
  fs::remove(checkpoint + "/weights.safetensors");
  error({}).names("weights.safetensors").value("missing").offers("no checkpoint");
  folder.write("run/step_000004/weights.safetensors", whole);
  folder.write("run/step_000004/state.json", "{\"step\": 4");
  error({}).names("state.json").value("damaged").names("line 1, column 11");
}
