// orrery train: settings, names, plug-ins, profiles, and errors.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <sstream>

#include "engine/types/format.h"
#include "models/training/checkpoint.h"
#include "tests/examples/training.h"
#include "tests/support/logged_rows.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using orrery::testing::expect_error;
using orrery::testing::finds;
using orrery::testing::logged_rows;
using orrery::testing::matches;
using orrery::testing::Message;
using Words = std::vector<std::string>;

TEST_CASE("train: settings, steps, files and the validation loss are printed in plain lines") {
  const Folder folder;
  const Outcome outcome = run_orrery(train_tiny(folder, "run"));
  INFO(outcome.out, outcome.err);
  REQUIRE(outcome.code == 0);
  // Only settings that differ from the preset's, besides model, data, out and steps.
  CHECK(contains(outcome.err, "settings: model=gpt-char-small layers=1 heads=2 width=16 context=8"));
  CHECK(contains(outcome.err, " data=" + (folder / "text.txt")));
  for (const char* usual : {"task=", "learning_rate=", "seed="}) CHECK(!contains(outcome.err, usual));
  CHECK(finds(outcome.err, "model: [\\d,]+ parameters"));
  Message(outcome.err).names("parameters").value("900 training tokens").value(100).names("validation");
  CHECK(finds(outcome.err,
              "step 1/4  loss \\d+\\.\\d{4}  gradient +\\d+\\.\\d{3}  lr \\d\\.\\de-\\d\\d  +[\\d.]+ ms"
              "  +[\\d,]+ tokens/s  MFU n/a  +\\d+ MB  \\d+:\\d\\d left\n"));
  for (const char* code : {"\r", "\x1b"}) CHECK(!contains(outcome.out + outcome.err, code));
  Message(outcome.err).names("checkpoint").value((folder / "run/step_000004") + "\n");
  for (const char* file : {"settings.toml", "metrics.jsonl", "step_000004/weights.safetensors",
                           "step_000004/optimizer.safetensors", "step_000004/state.json"}) {
    CAPTURE(file);
    CHECK(contains(outcome.out, "  " + (folder / "run/") + file + "\n"));
    CHECK(fs::exists(folder / "run/" + file));
  }
  CHECK(matches(last_line(outcome.out),
                "validation loss \\d+\\.\\d{4}, bits per character \\d+\\.\\d{4}, training loss \\d+\\.\\d{4}"));
  CHECK(outcome.out.back() == '\n');
  CHECK(outcome.out.starts_with("files:\n"));
  CHECK(last_line(outcome.err) ==
        "next: orrery report " + (folder / "run") + "   or   orrery generate " + (folder / "run"));
}

TEST_CASE("train: a warm-up that is not shorter than the run is noted in one line, also by --plan") {
  const Folder folder;
  const auto run = [&](const Words& more) { return run_orrery(train_tiny(folder, "run", more)); };
  const std::string expected =
      "\nnote: the warm-up takes 100 steps and the run 4, so the learning rate ends at 4.0e-05, below its peak of "
      "1.0e-03; use a lower --warmup_steps, or 0 for none\n";
  const Outcome planned = run({"--warmup_steps=100", "--plan"}), trained = run({"--warmup_steps=100"});
  CHECK_MESSAGE(contains("\n" + planned.err, expected), planned.err);
  CHECK_MESSAGE(contains(trained.err, expected), trained.err);
  CHECK(trained.err.find(expected) < trained.err.find("step 1/4"));
  Message(run({"--warmup_steps=4", "--plan"}).err).names("note").value("4 steps").offers("--warmup_steps");
  CHECK(!contains(run({"--warmup_steps=3", "--plan"}).err, "warm-up"));
}

TEST_CASE("train: arguments override a settings file, and later arguments override earlier ones") {
  const Folder folder;
  const std::string config =
      folder.write("run.toml",
                   "layers = 1\nheads = 2\nwidth = 16\ncontext = 8\nbatch_size = 2\nsteps = 9\nwarmup_steps = 1\n"
                   "data = \"" +
                       folder.write("text.txt", tiny_text()) + "\"\n");
  const Outcome outcome =
      run_orrery({"train", "--steps=8", "--config=" + config, "--steps", "3", "--out=" + (folder / "run")});
  INFO(outcome.out, outcome.err);
  CHECK(outcome.code == 0);
  CHECK(contains(outcome.err, " steps=3 "));
  CHECK(fs::exists(folder / "run/step_000003"));

  const Outcome wrong = run_orrery({"train", "--config=" + folder.write("wrong.toml", "steps = 3\ndataset = 4\n")});
  expect_error(wrong).names("wrong.toml:2").value("'dataset'").offers("'data'").offers("text file");
  // The written settings reproduce the run.
  const Outcome again =
      run_orrery({"train", "--config=" + (folder / "run/settings.toml"), "--out=" + (folder / "again")});
  CHECK(again.code == 0);
  CHECK(weights(folder / "run/step_000003") == weights(folder / "again/step_000003"));
}

TEST_CASE("train: a settings file packed by gzip is refused") {
  const Folder folder;
  const std::string config = folder.write("run.toml", "layers = 1\n");
  REQUIRE(run_shell("gzip '" + config + "'").code == 0);
  const Outcome packed = run_orrery({"train", "--config=" + config + ".gz"});
  expect_error(packed).names(config + ".gz").value("gzip").offers("unpack");
}

TEST_CASE("train: a settings file with nanoGPT's names trains the same model and is recorded with orrery's names") {
  const Folder folder;
  REQUIRE(
      run_orrery(train_tiny(folder, "ours",
                            {"--dropout=0.1", "--learning_rate=2e-3", "--optimizer.beta2=0.9", "--evaluate_every=2"}))
          .code == 0);
  const std::string config = folder.write(
      "theirs.toml",
      "n_layer = 1\nn_head = 2\nn_embd = 16\nblock_size = 8\nbatch_size = 2\nmax_iters = 4\nlr_decay_iters = 4\n"
      "learning_rate = 2e-3\nmin_lr = 1e-4\nwarmup_iters = 1\nweight_decay = 0.1\nbeta1 = 0.9\nbeta2 = 0.9\n"
      "grad_clip = 1.0\neval_interval = 2\ngradient_accumulation_steps = 1\ndropout = 0.1\nbias = false\n");
  const Outcome outcome = run_orrery(
      {"train", "--config=" + config, "--data=" + (folder / "text.txt"), "--out_dir=" + (folder / "theirs")});
  INFO(outcome.out, outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(weights(folder / "ours/step_000004") == weights(folder / "theirs/step_000004"));
  std::string ours = read_file(folder / "ours/settings.toml");
  const std::string theirs = read_file(folder / "theirs/settings.toml");
  ours.replace(ours.find(folder / "ours"), (folder / "ours").size(), folder / "theirs");
  CHECK(ours == theirs);
}

TEST_CASE("train: a run with former names of settings can be resumed and can generate") {
  const Folder folder;
  const std::string old = ORRERY_SOURCE_DIR "/tests/models/old_checkpoint/";
  fs::copy(old + "run", folder / "run", fs::copy_options::recursive);
  const Outcome written =
      run_orrery({"generate", "--checkpoint=" + (folder / "run"), "--prompt=We", "--tokens=40", "--temperature=1"});
  CHECK(written.out == read_file(old + "generated.txt"));
  const Outcome resumed = run_orrery({"train", "--config=" + old + "run/settings.toml", "--data=" + old + "text.txt",
                                      "--out=" + (folder / "run"), "--resume"});
  INFO(resumed.out, resumed.err);
  CHECK(resumed.code == 0);
  Message(resumed.err).names("resumed").value("step 2");
  CHECK(last_line(resumed.out).starts_with("validation loss 3.7608, "));
}

TEST_CASE("train: the loss of a plug-in has a weight setting, like the losses of the library") {
  const Folder folder;
  const Outcome tried = run_orrery({"try", ORRERY_SOURCE_DIR "/tests/examples/plugins/extra_loss.cpp",
                                    "--out=" + (folder / "plugins"), "--steps=10"});
  INFO(tried.out, tried.err);
  REQUIRE(tried.code == 0);
  for (const char* expected :
       {"output_power: passed", "attention priced_softmax: passed", "weight: losses.", " --losses.output_power=1\n"})
    CHECK_MESSAGE(contains(tried.out, expected), expected);
  const Words plugin = {"--plugin=" + (folder / "plugins/extra_loss.so")};
  const Words priced = plugin + Words{"--attention=priced_softmax"};
  CHECK(contains(run_orrery(Words{"train", "--help=all"} + plugin).out, "weight of mean y^2 of priced_softmax"));

  const Outcome weighted = run_orrery(train_tiny(folder, "weighted", priced + Words{"--losses.output_power=0.5"}));
  INFO(weighted.out, weighted.err);
  REQUIRE(weighted.code == 0);
  REQUIRE(run_orrery(train_tiny(folder, "plain", priced)).code == 0);
  const auto first_row = [&](const std::string& run) { return logged_rows(folder / run).at(0); };
  CHECK(first_row("weighted").at("output_power") > 0);
  CHECK(!first_row("plain").contains("output_power"));
  CHECK(first_row("weighted").at("loss") == first_row("plain").at("loss"));
  CHECK(first_row("weighted").at("gradient_norm") != first_row("plain").at("gradient_norm"));
  CHECK(contains(read_file(folder / "weighted/settings.toml"), "\"losses.output_power\" = 0.5\n"));
  CHECK(contains(read_file(folder / "weighted/step_000004/state.json"), "\"losses.output_power\": \"0.5\""));

  const auto refusal = [&](const Words& more) { return expect_error(run_orrery(train_tiny(folder, "refused", more))); };
  refusal(priced + Words{"--losses.output_powr=1"}).value("'losses.output_powr'").offers("'losses.output_power'");
  const Words weight = {"--losses.output_power=1"};
  refusal(weight).names("train").value("'losses.output_power'").offers("losses.entropy_margin_loss");
  refusal(plugin + weight).names("losses.output_power").value("weight").names("model");
}

TEST_CASE("train: a model from a plug-in works with try, train, --resume and generate") {
  const Folder folder;
  const Outcome tried = run_orrery(
      {"try", ORRERY_SOURCE_DIR "/tests/examples/plugins/bigram.cpp", "--out=" + (folder / "plugins"), "--steps=30"});
  INFO(tried.out, tried.err);
  REQUIRE(tried.code == 0);
  for (const char* expected : {"model:\n  bigram\n", "settings: context=32, vocabulary=0", "model = bigram"})
    CHECK_MESSAGE(contains(tried.out, expected), expected);
  const Words plugin = {"--plugin=" + (folder / "plugins/bigram.so")};
  const std::string text = folder.write("text.txt", tiny_text()), run = folder / "run";
  const Words train = {"train",     "--model=bigram", "--data=" + text,       "--out=" + run,
                       "--steps=4", "--batch_size=2", "--checkpoint_every=2", "--keep_checkpoints=0"};
  CHECK(contains(run_orrery(Words{"train", "--help", "--model=bigram"} + plugin).out, "tokens of a row"));
  const Outcome trained = run_orrery(train + plugin);
  INFO(trained.out, trained.err);
  REQUIRE(trained.code == 0);
  CHECK(contains(trained.err, "settings: model=bigram "));
  Message(last_line(trained.err)).offers("orrery --plugin=").offers(" generate " + run);
  const std::string last = read_file(run + "/step_000004/weights.safetensors");
  fs::remove_all(run + "/step_000004");
  REQUIRE(run_orrery(train + plugin + Words{"--resume"}).code == 0);
  CHECK(read_file(run + "/step_000004/weights.safetensors") == last);
  CHECK(run_orrery(Words{"generate", "--checkpoint=" + run, "--tokens=60"} + plugin).code == 0);

  expect_error(run_orrery({"generate", "--checkpoint=" + run})).names("model").value("'bigram'");
  expect_error(run_orrery(train + plugin + Words{"--layers=2"})).names("train").value("'layers'");
}

TEST_CASE("train: an attention with invalid settings is refused with an error message before training") {
  const Folder folder;
  const auto refusal = [&](const Words& more) {
    const Outcome refused = run_orrery(train_tiny(folder, "run", more));
    CHECK(!contains(refused.err, "step 1/"));
    CHECK(!fs::exists(folder / "run"));
    return expect_error(refused);
  };
  const std::string capped = "pointwise(relu, soft_cap=30)", wide = "softmax(span=fixed(9))";
  refusal({"--attention=" + capped}).names(capped).value("soft_cap=30").names("softmax").offers("pointwise takes");
  refusal({"--attention=" + wide}).names(wide + ": span").value("9 tokens").value(8).offers("[1, 8]");
  refusal({"--attention=softmax(persistent=-3)"}).names("persistent").value("N (-3)").offers("at least 1");
  refusal({"--attention=pointwise(relu, alpha=two)"}).names("pointwise").names("alpha").value("'two'").offers("number");
  refusal({"--position=rotary", "--width=18"}).names("head size (9)").value(9).offers("even");
  const Words alibi = {"--attention=linear(relu)", "--position=alibi"};
  refusal(alibi).names("linear").names("position").offers("position=learned");
}

TEST_CASE("train: --profile prints a table of the operations") {
  const Folder folder;
  const Outcome outcome = run_orrery(train_tiny(folder, "run", {"--profile"}));
  INFO(outcome.out, outcome.err);
  CHECK(outcome.code == 0);
  for (const char* expected : {"operation", "saved (MB)", "fraction of peak", "multiply-adds (G)", "GFLOP/s",
                               "attention", "cross_entropy", "forward", "backward", "measured peak: "})
    CHECK(contains(outcome.err, expected));
  CHECK(last_line(outcome.out).starts_with("validation loss "));
}

TEST_CASE("train: --profile reports the multiply-adds that an attention span saves") {
  const Folder folder;
  const auto work_of = [&](const std::string& attention) {
    const Outcome outcome =
        run_orrery(train_tiny(folder, "run-" + attention.substr(0, 9),
                              {"--profile", "--data=" ORRERY_SOURCE_DIR "/examples/data/tinyshakespeare.txt",
                               "--context=512", "--batch_size=1", "--layers=1", "--attention=" + attention}));
    INFO(outcome.out, outcome.err);
    REQUIRE(outcome.code == 0);
    double billions = 0;
    std::istringstream text(outcome.err);
    for (std::string line; std::getline(text, line);) {
      std::istringstream words(line);
      std::string name, direction, calls, milliseconds, fraction, percent, rate, unit;
      double work = 0;
      if (words >> name >> direction >> calls >> milliseconds >> fraction >> percent >> rate >> unit >> work)
        billions += name == "attention" ? work : 0;
    }
    return billions;
  };
  const double whole = work_of("softmax"), narrow = work_of("softmax(span=fixed(32))");
  CHECK(narrow > 0);
  CHECK(narrow < 0.3 * whole);
}

TEST_CASE("train: a loss that the model lacks and a model other than that of init_from are refused without files") {
  const Folder folder;
  const Outcome lacks = run_orrery(train_tiny(folder, "lacks", {"--losses.normalization_loss=0.1"}));
  expect_error(lacks).names("train").names("losses.normalization_loss").value("weight").names("model");
  CHECK(!fs::exists(folder / "lacks"));
  REQUIRE(run_orrery(train_tiny(folder, "first")).code == 0);
  const std::string first = "--init_from=" + (folder / "first");
  const Words from = {"train", "--data=" + (folder / "text.txt"), first, "--steps=1", "--out=" + (folder / "second")};
  const Outcome other = run_orrery(from + Words{"--model=stream"});
  expect_error(other).names(first).value("gpt").value("--model=stream").offers("--model").offers("--init_from");
  CHECK(!fs::exists(folder / "second"));
  CHECK(run_orrery(from).code == 0);
}

TEST_CASE("train: invalid data and settings are refused before anything is written") {
  const Folder folder;
  const auto refusal = [&](const Words& words) {
    const Outcome outcome = run_orrery(Words{"train"} + words + Words{"--out=" + (folder / "none")});
    CHECK(!fs::exists(folder / "none"));
    return expect_error(outcome);
  };
  const std::string data = "--data=" + folder.write("text.txt", tiny_text());
  refusal({}).names("train").names("text").offers("--data=FILE");
  refusal({"--data=/nowhere.txt"}).names("/nowhere.txt");
  refusal({"--data=" + folder.write("short.txt", "To be")}).names("short.txt");
  refusal({data, "--heads=3"}).names("heads").value(3);
  refusal({data, "--attention=sofmax"}).value("'sofmax'").offers("'softmax'");
  refusal({data, "--feed_forward=dense(gleu)"}).value("'gleu'").offers("'gelu'");
  refusal({data, "--optimizer=adamw(beta3=1)"}).value("'beta3'");
  refusal({data, "--feed_forward=dense("}).value("'dense('").offers("name").offers("number");
#if !defined(ORRERY_CUDA)
  refusal({data, "--device=cuda"}).names("device").value("'cuda'").offers("-DORRERY_CUDA=ON").offers("nvcc");
#endif
  refusal({data, "--cuda_graph=yes"}).names("--cuda_graph").offers("--device=cuda");
}

TEST_CASE("train: settings inherited through --init_from are recorded, and conflicting ones are refused") {
  const Folder folder;
  const std::string first = folder / "first";
  REQUIRE(run_orrery(train_tiny(folder, "first", {"--tokenizer=byte"})).code == 0);
  const Words begin = {"train", "--init_from=" + first, "--data=" + (folder / "text.txt"),
                       "--out=" + (folder / "second"), "--steps=2"};
  const auto refused = [&](const std::string& word, const std::string& key, const std::string& its) {
    const Outcome outcome = run_orrery(begin + Words{"--" + key + "=" + word});
    expect_error(outcome).names(first).value(key + "=" + its).value(key + "=" + word).offers(key + " or init_from");
  };
  refused("character", "tokenizer", "byte");
  refused("gpt2-124m", "model", "gpt-char-small");
  const Outcome begun = run_orrery(begin);
  REQUIRE_MESSAGE(begun.code == 0, begun.err);
  CHECK(contains(read_file(folder / "second/settings.toml"), "tokenizer = \"byte\""));
}

TEST_CASE("train: --init_from also sets the task and its problem, unless others are given") {
  const Folder folder;
  REQUIRE(is_complete(run_orrery(Words{"train", "--task=algorithmic", "--problem=copy(length=3)"} + tiny +
                                 Words{"--out=" + (folder / "first")})));
  const auto inherited_settings = [&](const std::string& out, const Words& more) {
    const Outcome begun =
        run_orrery(Words{"train", "--init_from=" + (folder / "first"), "--steps=1", "--out=" + (folder / out)} + more);
    REQUIRE_MESSAGE(is_complete(begun), begun.err);
    return read_file(folder / (out + "/settings.toml"));
  };
  Message(inherited_settings("its", {})).names("task").value("\"algorithmic\"").names("problem").value("length=3");
  Message(inherited_settings("given", {"--problem=copy(length=2)"})).names("problem").value("length=2");
  expect_error(run_orrery({"train", "--init_from=" + (folder / "first"), "--task=language_modeling",
                           "--data=" + folder.write("text.txt", tiny_text()), "--out=" + (folder / "text")}))
      .names("tokenizer")
      .value("generated")
      .offers("trained on a text");
}

TEST_CASE("train: --init_from also sets the columns of a translation, except for two files") {
  const Folder folder;
  const std::string data = ORRERY_SOURCE_DIR "/tests/models/translation/bible.tsv";
  REQUIRE(is_complete(
      run_orrery({"train", "--model=translation-small", "--layers=1", "--heads=2", "--width=16", "--data=" + data,
                  "--source_column=4", "--target_column=3", "--tokenizer=sentence_piece(vocabulary=200)",
                  "--batch_tokens=200", "--steps=1", "--out=" + (folder / "first")})));
  const auto inherited_settings = [&](const std::string& out, const Words& more) {
    const Outcome begun = run_orrery(Words{"train", "--init_from=" + (folder / "first"), "--batch_tokens=200",
                                           "--steps=1", "--out=" + (folder / out)} +
                                     more);
    REQUIRE_MESSAGE(is_complete(begun), begun.err);
    return read_file(folder / (out + "/settings.toml"));
  };
  Message(inherited_settings("its", {"--data=" + data})).value("source_column = 4").value("target_column = 3");
  Message(inherited_settings("given", {"--data=" + data, "--source_column=3", "--target_column=4"}))
      .value("source_column = 3")
      .value("target_column = 4");
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += "in the beginning\n";
  const std::string file = folder.write("lines.txt", lines);
  CHECK(!contains(inherited_settings("lines", {"--data=" + file, "--translations=" + file}), "source_column = 4"));
}

TEST_CASE("train: a run that ends worse than a uniform guess is complete, with a message and exit code 3") {
  const Folder folder;
  const std::string scraps = ORRERY_SOURCE_DIR "/tests/models/";
  const Words diverging = {"--learning_rate=10", "--schedule=constant", "--evaluate_every=0",
                           "--out=" + (folder / "run")};
  struct Case {
    Words words;
    std::string size;  // the setting with the number of classes
  };
  for (const Case& each : {Case{train_tiny(folder, "run"), "vocabulary"},
                           Case{Words{"train", "--task=algorithmic", "--problem=copy(length=3)"} + tiny, "vocabulary"},
                           Case{Words{"train", "--model=translation-small", "--layers=1", "--heads=2", "--width=16",
                                      "--data=" + scraps + "translation/bible.tsv", "--tokenizer=character",
                                      "--steps=4", "--warmup_steps=1"},
                                "vocabulary"},
                           Case{Words{"train", "--model=resnet", "--width=4", "--data=" + scraps + "images/shapes",
                                      "--batch_size=8", "--steps=4", "--warmup_steps=1"},
                                "classes"}}) {
    fs::remove_all(folder / "run");
    const Outcome outcome = run_orrery(each.words + diverging);
    INFO(outcome.out, outcome.err);
    REQUIRE(outcome.code == 3);
    CHECK(last_line(outcome.out).starts_with("validation loss "));
    const auto state = orrery::models::read_state(folder / "run/step_000004");
    const std::map<std::string, std::string> settings(state.settings.begin(), state.settings.end());
    const std::string classes = settings.at(each.size);
    expect_error(outcome, 3)
        .names("validation loss")
        .names("ln " + classes)
        .value(orrery::fixed(std::log(std::stod(classes)), 4))
        .offers("--learning_rate");
  }
  // A task without a uniform guess has no exit code 3.
  fs::remove_all(folder / "run");
  const Outcome without = run_orrery(Words{"train", "--model=resnet", "--width=4", "--data=" + scraps + "images/shapes",
                                           "--batch_size=8", "--steps=4", "--warmup_steps=1", "--loss=sigmoid"} +
                                     diverging);
  CHECK_MESSAGE(without.code == 0, without.err);
  CHECK(!contains(without.err, "guessing"));
  // A sweep accepts it as a completed run with its loss; so does a study (study_test.cpp).
  const Words sweep = {"sweep",        "--runs=" + (folder / "pool"), "--data=" + (folder / "text.txt"),
                       "--seed={1,2}", "--learning_rate=10",          "--schedule=constant"};
  const Outcome swept = run_orrery(sweep + tiny + Words{"--out=" + (folder / "sweep")});
  INFO(swept.out, swept.err);
  CHECK(swept.code == 0);
  CHECK(!contains(swept.out + swept.err, "failed"));
  std::istringstream runs(read_file(folder / "sweep/runs.csv"));
  std::string row;
  REQUIRE(std::getline(runs, row));
  REQUIRE(row.ends_with(",validation_loss"));
  for (int seed = 1; seed <= 2; ++seed) {
    REQUIRE(std::getline(runs, row));
    CHECK(contains(row, ",diverged,"));
    CHECK(std::stod(row.substr(row.rfind(',') + 1)) > std::log(15));  // 15 characters
  }
  const std::string table = read_file(folder / "sweep/table.csv");
  const size_t found = table.find("\nall,2,");
  REQUIRE(found != std::string::npos);
  CHECK(std::stod(table.substr(found + 7)) > std::log(15));
  CHECK(table.ends_with(",2,0\n"));  // two diverged, none failed
}
