// orrery import, export, show, evaluate and translate on small models: the user's output.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "tests/examples/training.h"
#include "tests/support/message.h"

using orrery::testing::expect_error;
using orrery::testing::finds;
using orrery::testing::matches;
using orrery::testing::Message;

namespace {

using Words = std::vector<std::string>;
const std::string golden = ORRERY_SOURCE_DIR "/tests/golden/hugging_face";
const std::string pairs = ORRERY_SOURCE_DIR "/tests/models/translation/bible.tsv";

}  // namespace

TEST_CASE("import, export: tensors are counted and listed, and an exported folder imports to the same logits") {
  for (const std::string name : {"gpt2", "llama", "vit"}) {
    CAPTURE(name);
    const Folder folder;
    const Outcome in = run_orrery({"import", golden + "/" + name, "--out=" + (folder / "run")});
    REQUIRE_MESSAGE(in.code == 0, in.err);
    CHECK(contains(in.out, "blocks.1.attention.query_key_value.weight"));
    Message(in.out).names("format").value(name).names("tensors").value(0);
    CHECK(finds(last_line(in.out), "logits.* \\d\\.\\de-0[6-9]"));
    const Outcome out = run_orrery({"export", folder / "run", "--out=" + (folder / "theirs/")});
    REQUIRE_MESSAGE(out.code == 0, out.err);
    const Outcome again = run_orrery({"import", folder / "theirs", "--out=" + (folder / "again"),
                                      "--reference_logits=" + golden + "/" + name + "/logits.safetensors"});
    REQUIRE_MESSAGE(again.code == 0, again.err);
    CHECK(last_line(again.out) == last_line(in.out));
    expect_error(run_orrery({"import", golden + "/" + name, "--out=" + (folder / "run")}))
        .names("import")
        .names(folder / "run")
        .value("checkpoints")
        .offers("--out");
  }
}

TEST_CASE("import: a tokenizer that needs training data is refused by name; its path is required") {
  const Folder folder;
  const std::string theirs = ORRERY_SOURCE_DIR "/tests/golden/hugging_face/gpt2";
  expect_error(run_orrery({"import", theirs, "--out=" + (folder / "run"), "--tokenizer=character"}))
      .names("--tokenizer")
      .value("character")
      .offers("path");
  CHECK(!std::filesystem::exists(folder / "run"));
}

TEST_CASE("import: a failed import leaves no files, with a damaged tokenizer or a full disk") {
  const Folder folder;
  REQUIRE(run_shell("cp -r '" + golden + "/gpt2' '" + (folder / "theirs") + "'").code == 0);
  folder.write("theirs/tokenizer.json", "{\"version\": \"1.0\", \"model\": {");
  expect_error(run_orrery({"import", folder / "theirs", "--out=" + (folder / "run")}))
      .names("import")
      .names(folder / "theirs/tokenizer.json")
      .offers("--tokenizer=FOLDER");
  CHECK(run_shell("test -e '" + (folder / "run") + "'").code == 1);
  const Outcome full = run_shell("( trap '' XFSZ; ulimit -f 8; \"$ORRERY\" import '" + golden + "/gpt2' --out='" +
                                 (folder / "run") + "' )");
  expect_error(full).names("write").names(folder / "run");
  CHECK(run_shell("test -e '" + (folder / "run") + "'").code == 1);
}

TEST_CASE("import: an imported model can be shown, generate and begin a run, but cannot be resumed") {
  const Folder folder;
  REQUIRE(run_orrery({"import", golden + "/gpt2", "--out=" + (folder / "run")}).code == 0);
  const Outcome shown = run_orrery({"show", folder / "run"});
  CHECK(shown.code == 0);
  CHECK(finds(shown.out, "token_embedding\\.weight +F32 +\\(61, 16\\) +-\\d"));
  const Outcome array = run_orrery({"show", folder / "run", "--tensor=norm.weight", "--out=" + (folder / "norm.npy")});
  REQUIRE_MESSAGE(array.code == 0, array.err);
  CHECK(read_file(folder / "norm.npy").substr(1, 5) == "NUMPY");
  expect_error(run_orrery({"show", folder / "run", "--tensor=norm.wieght"}))
      .names("show")
      .value("norm.wieght")
      .offers("norm.weight");
  const Outcome generated =
      run_orrery({"generate", "--checkpoint=" + (folder / "run"), "--prompt=1 2 3", "--tokens=5"});
  CHECK_MESSAGE(generated.code == 0, generated.err);
}

TEST_CASE("evaluate: a checkpoint is evaluated on held-out text and on another text") {
  const Folder folder;
  const std::string text = folder.write("text.txt", tiny_text()), run = folder / "run";
  const Outcome trained = run_orrery(Words{"train", "--data=" + text, "--out=" + run} + tiny);
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  const std::string line = last_line(trained.out), loss = line.substr(16, 6);
  CHECK(matches(line,
                "validation loss \\d\\.\\d{4}, bits per character \\d\\.\\d{4}, "
                "training loss \\d\\.\\d{4}"));
  const Outcome evaluated = run_orrery({"evaluate", run});
  REQUIRE_MESSAGE(evaluated.code == 0, evaluated.err);
  CHECK(evaluated.out == run_orrery({"evaluate", "--checkpoint=" + run}).out);
  CHECK(contains(evaluated.out, "100 tokens\nloss " + loss + " nats, perplexity "));
  CHECK(contains(evaluated.out, "\nbits per character "));
  const Outcome other = run_orrery({"evaluate", "--checkpoint=" + run, "--validation_data=" + text});
  REQUIRE_MESSAGE(other.code == 0, other.err);
  CHECK(contains(other.out, "1,000 tokens\nloss "));
  expect_error(run_orrery({"evaluate", "--checkpoint=" + run, "--batch_size=3"})).names("evaluate").value("batch_size");
  expect_error(run_orrery({"evaluate", "--checkpoint=" + run, "--tokenizer=byte"}))
      .names("evaluate")
      .names("tokenizer")
      .offers("--tokenizer=byte");
  CHECK(!contains(run_orrery({"evaluate", "--checkpoint=" + run, "--help"}).out, "--tokenizer"));
  expect_error(run_orrery({"evaluate"})).names("evaluate").names("model").offers("orrery evaluate runs/latest");
}

TEST_CASE("evaluate: a warning reports how much of the validation data is training data of the run") {
  const Folder folder;
  const std::string text = folder.write("text.txt", tiny_text()), run = folder / "run",
                    other = folder.write("other.txt", tiny_text().substr(0, 999));
  REQUIRE(run_orrery(Words{"train", "--data=" + text, "--out=" + run} + tiny).code == 0);
  const auto evaluated = [&](const Words& more) {
    const Outcome outcome = run_orrery(Words{"evaluate", "--checkpoint=" + run} + more);
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    return outcome.err;
  };
  // 900 of the 1,000 tokens are for training, so tokens 500 to 899 of the second half are.
  Message(evaluated({"--validation_fraction=0.5"}))
      .names("warning")
      .value("400 of the 500 tokens")
      .value("80.0 %")
      .offers("--validation_fraction=0.1");
  Message(evaluated({"--validation_fraction=0.5", "--validation_tokens=50"}))
      .value("50 of the 50 tokens")
      .value("100.0 %");
  Message(evaluated({"--validation_data=" + text}))
      .value("900 of the 1,000 tokens")
      .value("90.0 %")
      .offers("--validation_data=PATH");
  for (const Words& clean : {Words{}, {"--validation_fraction=0.05"}, {"--validation_data=" + other}})
    CHECK(!contains(evaluated(clean), "warning"));

  const auto trained = [&](const std::string& out, const Words& more) {
    const Outcome outcome = run_orrery(Words{"train", "--data=" + text, "--out=" + (folder / out)} + tiny + more);
    CHECK_MESSAGE(is_complete(outcome), outcome.err);
    return outcome.out + outcome.err;
  };
  const std::string begin = "--init_from=" + run;
  CHECK(!contains(trained("same", {begin}), "warning"));
  Message(trained("more", {begin, "--validation_fraction=0.5"})).value("400 of the 500 tokens").names("init_from");
  Message(trained("apart", {"--validation_data=" + text})).names("warning").value("1,000 of the 1,000 tokens");
  // Such a run trains on all of `data`, of which a validation then takes the end.
  Message(run_orrery({"evaluate", "--checkpoint=" + (folder / "apart"), "--validation_data="}).err)
      .value("100 of the 100 tokens")
      .offers("--validation_data=PATH");
}

TEST_CASE("evaluate: the warning counts earlier training data, that of init_from, files of a folder, and tokens") {
  const Folder folder;
  const std::string content = tiny_text(), text = folder.write("text.txt", content),
                    other = folder.write("other.txt", std::string(content.rbegin(), content.rend()));
  const auto run = [&](const Words& words) {
    const Outcome outcome = run_orrery(words);
    REQUIRE_MESSAGE(is_complete(outcome), outcome.err);
    return outcome.err;
  };
  const auto trained = [&](const std::string& out, const std::string& data, const Words& more = {}) {
    run(Words{"train", "--data=" + data, "--out=" + (folder / out)} + tiny + more);
  };
  const auto evaluated = [&](const std::string& out, const Words& more) {
    return run(Words{"evaluate", "--checkpoint=" + (folder / out)} + more);
  };
  const std::string on_text = "--validation_data=" + text;
  const Words changed = {"--allow_new_text=yes", "--steps=40"};

  // Each run trains on 900 of the 1,000 tokens.
  trained("first", text);
  run(Words{"train", "--resume=" + (folder / "first"), "--validation_fraction=0.4"} + changed);
  Message(evaluated("first", {})).names("warning").value("300 of the 400 tokens").offers("--validation_fraction=0.1");
  trained("second", text);
  run(Words{"train", "--resume=" + (folder / "second"), "--data=" + other} + changed);
  CHECK(!contains(evaluated("second", {}), "warning"));
  Message(evaluated("second", {on_text})).value("900 of the 1,000 tokens").offers("--validation_data=PATH");

  trained("begun", other, {"--init_from=" + (folder / "second")});
  trained("chained", other, {"--init_from=" + (folder / "begun")});
  run({"train", "--resume=" + (folder / "chained"), "--steps=40"});
  Message(evaluated("chained", {on_text})).value("900 of the 1,000 tokens").names("run of init_from");

  const std::string pieces = folder / "pieces";
  folder.write("pieces/a.txt", content.substr(0, 400)), folder.write("pieces/b.txt", content.substr(400, 300));
  folder.write("pieces/c.txt", content.substr(700));
  trained("folder", pieces);
  Message(evaluated("folder", {"--validation_data=" + pieces + "/b.txt"})).value("300 of the 300 tokens");
  Message(evaluated("folder", {"--validation_data=" + pieces + "/c.txt"})).value("200 of the 300 tokens");
  folder.write("mixed/a.txt", content.substr(1, 300)), folder.write("mixed/b.txt", content.substr(400, 300));
  Message(evaluated("folder", {"--validation_data=" + (folder / "mixed")})).value("300 of the 600 tokens");
  trained("file", pieces + "/b.txt");
  Message(evaluated("file", {"--validation_data=" + pieces + "/b.txt"})).value("270 of the 300 tokens");

  const std::string tokens = folder / "tokens", halves = folder / "halves";
  run({"prepare", "--input=" + text, "--out=" + tokens, "--tokenizer=character"});
  run({"prepare", "--input=" + text, "--out=" + halves, "--tokenizer=character", "--validation_fraction=0.3"});
  trained("tokens_run", tokens);
  Message(evaluated("tokens_run", {"--validation_data=" + tokens + "/train.bin"})).value("900 of the 900 tokens");
  Message(evaluated("tokens_run", {on_text})).value("900 of the 1,000 tokens");
  for (const std::string& clean : {tokens, tokens + "/val.bin"})
    CHECK(!contains(evaluated("tokens_run", {"--validation_data=" + clean}), "warning"));
  trained("text_run", text);
  Message(evaluated("text_run", {"--validation_data=" + halves})).value("200 of the 300 tokens");
  Message(evaluated("text_run", {"--validation_data=" + halves + "/val.bin"})).value("200 of the 300 tokens");
  Message(evaluated("text_run", {"--validation_data=" + halves + "/train.bin"})).value("700 of the 700 tokens");
}

TEST_CASE("evaluate: held-out data suffice for a run without its training data and for an imported model") {
  const Folder folder;
  const std::string text = folder.write("text.txt", tiny_text()), run = folder / "run", other = folder / "other.txt";
  const Outcome trained = run_orrery(Words{"train", "--data=" + text, "--out=" + run} + tiny);
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  std::filesystem::rename(text, other);
  expect_error(run_orrery({"evaluate", "--checkpoint=" + run}))
      .names("evaluate")
      .value(text)
      .offers("--data=PATH")
      .offers("--validation_data=PATH");
  const Outcome evaluated = run_orrery({"evaluate", "--checkpoint=" + run, "--validation_data=" + other});
  REQUIRE_MESSAGE(evaluated.code == 0, evaluated.err);
  CHECK(contains(evaluated.out, "1,000 tokens\nloss "));
  CHECK(!contains(evaluated.out, "training loss"));
  const Outcome both = run_orrery({"evaluate", "--checkpoint=" + run, "--validation_data=" + other, "--data=" + other});
  CHECK(contains(both.out, "training loss"));

  const std::string imported = folder / "imported", numbers = folder.write("numbers.txt", "1 2 3 4 5 6 7 8 9 10 11 12");
  REQUIRE(run_orrery({"import", golden + "/gpt2", "--out=" + imported}).code == 0);
  expect_error(run_orrery({"evaluate", "--checkpoint=" + imported})).names("evaluate").offers("--validation_data=FILE");
  const Outcome alone = run_orrery({"evaluate", "--checkpoint=" + imported, "--validation_data=" + numbers});
  REQUIRE_MESSAGE(alone.code == 0, alone.err);
  CHECK(contains(alone.out, "12 tokens\nloss "));
}

TEST_CASE("translate: each input sentence gives one output line, and BLEU is printed at the end") {
  const Folder folder;
  const std::string run = folder / "run";
  const Outcome trained =
      run_orrery(Words{"train", "--model=translation-small", "--layers=1", "--width=16", "--heads=2", "--data=" + pairs,
                       "--source_column=4", "--target_column=3", "--tokenizer=sentence_piece(vocabulary=200)",
                       "--batch_tokens=200", "--steps=3", "--out=" + run});
  REQUIRE_MESSAGE(is_complete(trained), trained.err);
  const std::string input = folder.write("in.txt", "Am Anfang schuf Gott Himmel und Erde.\nUnd es ward Licht.\n"),
                    reference = folder.write("out.txt", "In the beginning.\nAnd there was light.\n"),
                    nothing = folder.write("nothing.txt", "\n\n");
  CHECK(run_orrery({"translate", "--checkpoint=" + run, "--input=" + nothing, "--beam=2"}).out == "\n\n");
  const Outcome found =
      run_orrery({"translate", run, "--input=" + input, "--reference=" + reference, "--beam=2", "--max_tokens=8"});
  REQUIRE_MESSAGE(found.code == 0, found.err);
  CHECK(std::count(found.out.begin(), found.out.end(), '\n') >= 2);
  CHECK(finds(found.out + found.err, "BLEU *[=:]? *\\d"));
  expect_error(run_orrery({"train", "--resume=" + run, "--steps=100000", "--exchanged_sources=yes"}))
      .names("exchanged_sources")
      .value("yes");
  expect_error(run_orrery({"evaluate", "--checkpoint=" + run, "--validation_translations=" + reference}))
      .names("--validation_translations")
      .value(reference)
      .offers("--validation_data");
  const Outcome evaluated = run_orrery({"evaluate", "--checkpoint=" + run}),
                exchanged = run_orrery({"evaluate", "--checkpoint=" + run, "--exchanged_sources=yes"});
  REQUIRE_MESSAGE(evaluated.code == 0, evaluated.err);
  REQUIRE_MESSAGE(exchanged.code == 0, exchanged.err);
  CHECK(contains(evaluated.out, "nats, perplexity "));
  CHECK(evaluated.out != exchanged.out);
  for (const Outcome& each : {evaluated, exchanged}) CHECK(finds(each.out, "\nBLEU \\d"));
  const Outcome of_loss = run_orrery({"evaluate", "--checkpoint=" + run, "--bleu=no"});
  CHECK(contains(evaluated.out, of_loss.out.substr(0, of_loss.out.find("training loss"))));
  CHECK(!contains(of_loss.out, "BLEU"));
  const Outcome elsewhere =  // does not read the training data
      run_orrery({"evaluate", "--checkpoint=" + run, "--validation_data=" + pairs});
  REQUIRE_MESSAGE(elsewhere.code == 0, elsewhere.err);
  CHECK(!contains(elsewhere.out, "training loss"));
  CHECK(!contains(of_loss.err, "warning"));
  Message(elsewhere.err).names("warning").value("46 of the 48 pairs").value("95.8 %");
  Message(run_orrery({"evaluate", "--checkpoint=" + run, "--bleu=no", "--validation_fraction=0.5"}).err)
      .names("warning")
      .value("22 of the 24 pairs")
      .value("91.7 %")
      .offers("--validation_fraction=0.05");
  std::string endless = "Am Anfang";
  for (int i = 0; i < 200; ++i) endless += " schuf Gott Himmel und Erde";
  const std::string mixed = folder.write("mixed.txt", "Und es ward Licht.\n" + endless + "\nUnd es ward Licht.\n");
  const Words limits = {"--beam=2", "--max_tokens=8"};
  const Outcome rest = run_orrery(Words{"translate", "--checkpoint=" + run, "--input=" + mixed} + limits),
                plain = run_orrery(Words{"translate", "--checkpoint=" + run, "--input=" + input} + limits);
  expect_error(rest).names("translate").names("line 2").names("context").value(128);
  const std::string second = plain.out.substr(plain.out.find('\n') + 1);  // Und es ward Licht.
  CHECK(rest.out == second + "\n" + second);
  const std::string json = folder.write("pairs.jsonl", "{\"source\": \"Es ward Licht.\", \"target\": \"Light\"}\n");
  expect_error(run_orrery({"translate", run, "--input=" + json})).names(json).offers("one sentence per line");
  expect_error(run_orrery({"translate", run, "--input=" + input, "--reference=" + json})).names(json);
  const std::string one = folder.write("one.txt", "In the beginning.\n");
  const Outcome unequal = run_orrery({"translate", "--checkpoint=" + run, "--input=" + input, "--reference=" + one});
  expect_error(unequal).names("translate").value(2).value(1).names(one);
}
