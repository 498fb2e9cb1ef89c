// orrery train: settings, names, plug-ins, profiles, and what is refused.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "engine/types/wording.h"
#include "tests/examples/training.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

TEST_CASE("train: settings, steps, files and the validation loss, in plain lines") {
  const Folder folder;
  const Outcome outcome = run_orrery(train_tiny(folder, "run"));
  INFO(outcome.out, outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(outcome.err.empty());
  CHECK(contains(outcome.out, "settings: model=gpt-char-small task=language_modeling layers=1 heads=2 width=16"));
  CHECK(std::regex_search(outcome.out,
                          std::regex("model: [\\d,]+ parameters; text: 900 tokens to learn, 100 for validation")));
  CHECK(std::regex_search(
      outcome.out, std::regex("step 1/4  loss \\d+\\.\\d{4}  gradient +\\d+\\.\\d{3}  lr \\d\\.\\de-\\d\\d  +[\\d.]+ ms"
                              "  +[\\d,]+ tokens/s  MFU n/a  +\\d+ MB  \\d+:\\d\\d left\n")));
  CHECK(outcome.out.find('\r') == std::string::npos);
  CHECK(outcome.out.find('\x1b') == std::string::npos);
  CHECK(contains(outcome.out, "checkpoint: " + (folder / "run/step_000004") + "\n"));
  for (const char* file : {"settings.toml", "metrics.jsonl", "step_000004/weights.safetensors",
                           "step_000004/optimizer.safetensors", "step_000004/state.json"}) {
    CAPTURE(file);
    CHECK(contains(outcome.out, "  " + (folder / "run/") + file + "\n"));
    CHECK(fs::exists(folder / "run/" + file));
  }
  CHECK(std::regex_match(
      last_line(outcome.out),
      std::regex("validation loss \\d+\\.\\d{4}, bits per character \\d+\\.\\d{4}, training loss \\d+\\.\\d{4}")));
  CHECK(outcome.out.back() == '\n');
}

TEST_CASE("train: a file of settings first, then the keys, later ones win") {
  const Folder folder;
  const std::string config =
      folder.write("run.toml",
                   "layers = 1\nheads = 2\nwidth = 16\ncontext = 8\nbatch = 2\nsteps = 9\nwarmup_steps = 1\n"
                   "data = \"" +
                       folder.write("text.txt", tiny_text()) + "\"\n");
  const Outcome outcome =
      run_orrery({"train", "--steps=8", "--config=" + config, "--steps", "3", "--out=" + (folder / "run")});
  INFO(outcome.out, outcome.err);
  CHECK(outcome.code == 0);
  CHECK(contains(outcome.out, " steps=3 "));
  CHECK(fs::exists(folder / "run/step_000003"));

  const Outcome wrong = run_orrery({"train", "--config=" + folder.write("wrong.toml", "steps = 3\ndataset = 4\n")});
  CHECK(wrong.code == 1);
  CHECK(contains(wrong.err, "wrong.toml:2: unknown key 'dataset'; did you mean 'data', the path of a text file?"));
  // The written settings repeat the run.
  const Outcome again =
      run_orrery({"train", "--config=" + (folder / "run/settings.toml"), "--out=" + (folder / "again")});
  CHECK(again.code == 0);
  CHECK(weights(folder / "run/step_000003") == weights(folder / "again/step_000003"));
}

TEST_CASE("train: a file of settings that gzip has packed is refused") {
  const Folder folder;
  const std::string config = folder.write("run.toml", "layers = 1\n");
  REQUIRE(run_shell("gzip '" + config + "'").code == 0);
  CHECK(contains(run_orrery({"train", "--config=" + config + ".gz"}).err, config + ".gz is packed by gzip"));
}

TEST_CASE("train: a file in nanoGPT's words trains the same model, and is recorded in ours") {
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

TEST_CASE("train: a run of the time when settings had their former names goes on, and generates") {
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
  CHECK(contains(resumed.out, "resumed after step 2"));
  CHECK(last_line(resumed.out).starts_with("validation loss 3.7608, "));
}

TEST_CASE("train: a plug-in's loss is weighted by its name, like those of the library") {
  const Folder folder;
  const Outcome tried = run_orrery({"try", ORRERY_SOURCE_DIR "/tests/examples/plugins/extra_loss.cpp",
                                    "--out=" + (folder / "plugins"), "--steps=10"});
  INFO(tried.out, tried.err);
  REQUIRE(tried.code == 0);
  for (const char* part :
       {"loss output_power: passed", "attention priced_softmax: passed", "weight losses.output_power"})
    CHECK_MESSAGE(contains(tried.out, part), part);
  const Words plugin = {"--plugin=" + (folder / "plugins/extra_loss.so")};
  const Words priced = plugin + Words{"--attention=priced_softmax"};
  CHECK(contains(run_orrery(Words{"train", "--help"} + plugin).out, "weight of mean y^2 of priced_softmax"));

  const Outcome weighted = run_orrery(train_tiny(folder, "weighted", priced + Words{"--losses.output_power=0.5"}));
  INFO(weighted.out, weighted.err);
  REQUIRE(weighted.code == 0);
  REQUIRE(run_orrery(train_tiny(folder, "plain", priced)).code == 0);
  const auto first_row = [&](const std::string& run) { return nlohmann::json::parse(metrics(folder / run)[0]); };
  CHECK(first_row("weighted")["output_power"] > 0);
  CHECK(!first_row("plain").contains("output_power"));
  CHECK(first_row("weighted")["loss"] == first_row("plain")["loss"]);
  CHECK(first_row("weighted")["gradient_norm"] != first_row("plain")["gradient_norm"]);
  CHECK(contains(read_file(folder / "weighted/settings.toml"), "\"losses.output_power\" = 0.5\n"));
  CHECK(contains(read_file(folder / "weighted/step_000004/state.json"), "\"losses.output_power\": \"0.5\""));

  const auto refusal = [&](const Words& more) {
    const Outcome refused = run_orrery(train_tiny(folder, "refused", more));
    CHECK(refused.code == 1);
    return refused.err;
  };
  CHECK(contains(refusal(priced + Words{"--losses.output_powr=1"}), "did you mean 'losses.output_power'?"));
  CHECK(contains(refusal({"--losses.output_power=1"}),
                 "train: unknown key 'losses.output_power'; there are losses.entropy_margin_loss, "));
  CHECK(contains(refusal(plugin + Words{"--losses.output_power=1"}),
                 "losses.output_power has a weight, but nothing in this model has that loss"));
}

TEST_CASE("train: a model from a plug-in is tried, trained, gone on with and asked by the same commands") {
  const Folder folder;
  const Outcome tried = run_orrery(
      {"try", ORRERY_SOURCE_DIR "/tests/examples/plugins/bigram.cpp", "--out=" + (folder / "plugins"), "--steps=30"});
  INFO(tried.out, tried.err);
  REQUIRE(tried.code == 0);
  for (const char* part : {"model:\n  bigram\n", "settings: context=32, vocabulary=0", "model = bigram"})
    CHECK_MESSAGE(contains(tried.out, part), part);
  const Words plugin = {"--plugin=" + (folder / "plugins/bigram.so")};
  const std::string text = folder.write("text.txt", tiny_text()), run = folder / "run";
  const Words train = {"train",     "--model=bigram", "--data=" + text,       "--out=" + run,
                       "--steps=4", "--batch=2",      "--checkpoint_every=2", "--keep_checkpoints=0"};
  CHECK(contains(run_orrery(Words{"train", "--help", "--model=bigram"} + plugin).out, "tokens of a row"));
  const Outcome trained = run_orrery(train + plugin);
  INFO(trained.out, trained.err);
  REQUIRE(trained.code == 0);
  CHECK(contains(trained.out, "settings: model=bigram task=language_modeling context=32"));
  const std::string last = read_file(run + "/step_000004/weights.safetensors");
  fs::remove_all(run + "/step_000004");
  REQUIRE(run_orrery(train + plugin + Words{"--resume"}).code == 0);
  CHECK(read_file(run + "/step_000004/weights.safetensors") == last);
  CHECK(run_orrery(Words{"generate", "--checkpoint=" + run, "--tokens=60"} + plugin).code == 0);

  const Outcome without = run_orrery({"generate", "--checkpoint=" + run});
  CHECK(without.code == 1);
  CHECK(contains(without.err, "model: no 'bigram'"));
  const Outcome other = run_orrery(train + plugin + Words{"--layers=2"});
  CHECK(other.code == 1);
  CHECK(contains(other.err, "unknown key 'layers'"));
}

TEST_CASE("train: an attention that cannot work is refused with a sentence, before any training") {
  const Folder folder;
  const auto error_of = [&](const Words& more) {
    const Outcome refused = run_orrery(train_tiny(folder, "run", more));
    CHECK(refused.code == 1);
    CHECK(!contains(refused.out, "step 1/"));
    CHECK(!fs::exists(folder / "run"));
    return refused.err;
  };
  CHECK(contains(
      error_of({"--attention=pointwise(relu, soft_cap=30)"}),
      "pointwise(relu, soft_cap=30): soft_cap=30 is an option of softmax, not of pointwise; pointwise takes "));
  CHECK(
      contains(error_of({"--attention=softmax(span=fixed(9))"}),
               "softmax(span=fixed(9)): span: fixed(9) reaches back 9 tokens, the context has 8; S must be in [1, 8]"));
  CHECK(contains(error_of({"--attention=softmax(persistent=-3)"}), "persistent: N = -3; at least 1 is needed"));
  CHECK(contains(error_of({"--attention=pointwise(relu, alpha=two)"}), "pointwise: alpha: 'two' is neither a number"));
  CHECK(contains(error_of({"--position=rotary", "--width=18"}), "times the head size (9) is 9; it must be an even"));
  CHECK(contains(error_of({"--attention=linear(relu)", "--position=alibi"}), "linear: has no scores for a position"));
}

TEST_CASE("train: --profile prints a table of the operations") {
  const Folder folder;
  const Outcome outcome = run_orrery(train_tiny(folder, "run", {"--profile"}));
  INFO(outcome.out, outcome.err);
  CHECK(outcome.code == 0);
  for (const char* part : {"operation", "kept MB", "of peak", "G multiply-adds", "GFLOP/s", "attention",
                           "cross_entropy", "forward", "backward", "measured peak: "})
    CHECK(contains(outcome.out, part));
  CHECK(last_line(outcome.out).starts_with("validation loss "));
}

TEST_CASE("train: --profile reports the multiply-adds that a span saves") {
  const Folder folder;
  const auto work_of = [&](const std::string& attention) {
    const Outcome outcome =
        run_orrery(train_tiny(folder, "run-" + attention.substr(0, 9),
                              {"--profile", "--data=" ORRERY_SOURCE_DIR "/examples/data/tinyshakespeare.txt",
                               "--context=512", "--batch=1", "--layers=1", "--attention=" + attention}));
    INFO(outcome.out, outcome.err);
    REQUIRE(outcome.code == 0);
    double billions = 0;
    std::istringstream text(outcome.out);
    for (std::string line; std::getline(text, line);) {
      std::istringstream words(line);
      std::string name, direction, calls, milliseconds, share, percent, rate, unit;
      double work = 0;
      if (words >> name >> direction >> calls >> milliseconds >> share >> percent >> rate >> unit >> work)
        billions += name == "attention" ? work : 0;
    }
    return billions;
  };
  const double whole = work_of("softmax"), narrow = work_of("softmax(span=fixed(32))");
  CHECK(narrow > 0);
  CHECK(narrow < 0.3 * whole);
}

TEST_CASE("train: a loss that the model lacks and another model than init_from's are refused, and nothing is made") {
  const Folder folder;
  const Outcome lacks = run_orrery(train_tiny(folder, "lacks", {"--losses.normalization_loss=0.1"}));
  CHECK(lacks.code == 1);
  CHECK(lacks.err ==
        "orrery: train: losses.normalization_loss has a weight, but nothing in this model has that loss\n");
  CHECK(!fs::exists(folder / "lacks"));
  REQUIRE(run_orrery(train_tiny(folder, "first")).code == 0);
  const Words from = {"train", "--data=" + (folder / "text.txt"), "--init_from=" + (folder / "first"), "--steps=1",
                      "--out=" + (folder / "second")};
  const Outcome other = run_orrery(from + Words{"--model=stream"});
  CHECK(other.code == 1);
  CHECK(other.err == "orrery: train: --init_from=" + (folder / "first") +
                         " holds a model of the class gpt, and --model=stream is of the class stream; leave --model "
                         "out, or begin without --init_from\n");
  CHECK(!fs::exists(folder / "second"));
  CHECK(run_orrery(from).code == 0);
}

TEST_CASE("train: what cannot be trained is said before anything is written") {
  const Folder folder;
  const auto check_error = [&](const Words& words, const std::string& sentence) {
    const Outcome outcome = run_orrery(words + Words{"--out=" + (folder / "none")});
    INFO(outcome.out, outcome.err);
    CHECK(outcome.code == 1);
    CHECK(contains(outcome.err, sentence));
    CHECK(!fs::exists(folder / "none"));
  };
  const std::string text = folder.write("text.txt", tiny_text());
  check_error({"train"}, "train: no text to learn; give one with --data=FILE");
  check_error({"train", "--data=/nowhere.txt"}, "/nowhere.txt");
  check_error({"train", "--data=" + folder.write("short.txt", "To be")}, "short.txt");
  check_error({"train", "--data=" + text, "--heads=3"}, "heads");
  check_error({"train", "--data=" + text, "--attention=sofmax"}, "did you mean 'softmax'?");
  check_error({"train", "--data=" + text, "--feed_forward=dense(gleu)"}, "did you mean 'gelu'?");
  check_error({"train", "--data=" + text, "--optimizer=adamw(beta3=1)"}, "unknown key 'beta3'");
  check_error({"train", "--data=" + text, "--feed_forward=dense("}, "where a name or a number should stand");
#if !defined(ORRERY_CUDA)
  const std::string without =
      "device 'cuda': this orrery was built without CUDA; configure with -DORRERY_CUDA=ON (needs nvcc)";
  check_error({"train", "--data=" + text, "--device=cuda"}, without);
#endif
  check_error({"train", "--data=" + text, "--graph=yes"}, "train: --graph replays a step on a GPU; it needs");
}

TEST_CASE("train: what --init_from brings along is said in the settings, and no other is taken in silence") {
  const Folder folder;
  const std::string first = folder / "first";
  REQUIRE(run_orrery(train_tiny(folder, "first", {"--tokenizer=byte"})).code == 0);
  const Words begin = {"train", "--init_from=" + first, "--data=" + (folder / "text.txt"),
                       "--out=" + (folder / "second"), "--steps=2"};
  const auto refused = [&](const std::string& word, const std::string& key, const std::string& its) {
    const Outcome outcome = run_orrery(begin + Words{"--" + key + "=" + word});
    CHECK(outcome.code == 1);
    CHECK(contains(outcome.err, "train: " + first + " has " + key + "=" + its +
                                    ", with which its weights are taken over, and not " + key + "=" + word +
                                    "; leave " + key + " or init_from out"));
  };
  refused("character", "tokenizer", "byte");
  refused("gpt2-124m", "model", "gpt-char-small");
  const Outcome begun = run_orrery(begin);
  REQUIRE_MESSAGE(begun.code == 0, begun.err);
  CHECK(contains(read_file(folder / "second/settings.toml"), "tokenizer = \"byte\""));
}

TEST_CASE("train: a run that ends worse than a uniform guess is complete, with a message and exit code 3") {
  const Folder folder;
  const std::string scraps = ORRERY_SOURCE_DIR "/tests/models/";
  const Words diverging = {"--learning_rate=10", "--schedule=constant", "--evaluate_every=0",
                           "--out=" + (folder / "run")};
  struct Case {
    Words words;
    std::string size;  // the setting that has the number of answers
  };
  for (const Case& each : {Case{train_tiny(folder, "run"), "vocabulary"},
                           Case{Words{"train", "--task=algorithmic", "--problem=copy(length=3)"} + tiny, "vocabulary"},
                           Case{Words{"train", "--model=translation-small", "--layers=1", "--heads=2", "--width=16",
                                      "--data=" + scraps + "translation/bible.tsv", "--tokenizer=character",
                                      "--steps=4", "--warmup_steps=1"},
                                "vocabulary"},
                           Case{Words{"train", "--model=resnet", "--width=4", "--data=" + scraps + "images/shapes",
                                      "--batch=8", "--steps=4", "--warmup_steps=1"},
                                "classes"}}) {
    fs::remove_all(folder / "run");
    const Outcome outcome = run_orrery(each.words + diverging);
    INFO(outcome.out, outcome.err);
    REQUIRE(outcome.code == 3);
    CHECK(last_line(outcome.out).starts_with("validation loss "));
    const auto state = nlohmann::json::parse(read_file(folder / "run/step_000004/state.json"));
    const std::string answers = state["settings"][each.size];
    orrery::testing::expect_error(outcome, 3)
        .names("validation loss")
        .names("ln " + answers)
        .value(orrery::fixed(std::log(std::stod(answers)), 4))
        .offers("--learning_rate");
  }
  // A sweep and a study take it as a run that is done, with its loss.
  const Words sweep = {"sweep",        "--runs=" + (folder / "pool"), "--data=" + (folder / "text.txt"),
                       "--seed={1,2}", "--learning_rate=10",          "--schedule=constant"};
  const Outcome swept = run_orrery(sweep + tiny + Words{"--out=" + (folder / "sweep")});
  INFO(swept.out, swept.err);
  CHECK(swept.code == 0);
  CHECK(!contains(swept.out, "failed"));
  const std::string runs = read_file(folder / "sweep/runs.csv");
  CHECK(contains(runs, ",diverged,"));
  CHECK(contains(runs, "validation_loss"));
}
