// A run's folder: one owner at a time, and only files that are verified as its own are touched.
#include "models/training/run_folder.h"

#include <doctest/doctest.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "models/settings/settings_file.h"
#include "models/training/metrics_log.h"
#include "tests/support/gpt_settings.h"
#include "tests/support/message.h"
#include "tests/support/small_run.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;
namespace fs = std::filesystem;

TEST_CASE("run folder: one run at a time, also in a folder that does not exist yet; the lock ends with its process") {
  const Run run;
  {
    const Trainer first(run.settings());
    CHECK(names_in(run.out) == std::set<std::string>{".orrery.lock"});
    expect_error([&] { run.train(); }).names("train").value(run.out).value(::getpid()).offers("--out");
    CHECK(names_in(run.out) == std::set<std::string>{".orrery.lock"});
  }
  CHECK(!fs::exists(run.out));  // no file was written, so the folder is removed
  run.train();
  CHECK(names_in(run.out) == std::set<std::string>{"metrics.jsonl", "settings.toml", "step_000004", "step_000006"});
  write(run.out + "/.orrery.lock", "1\n");  // a killed process holds no lock
  CHECK(run.resume().steps_done == 8);
}

TEST_CASE("run folder: a run does not write into a folder that was replaced, and creates a deleted one again") {
  const Run run;
  const auto disturbed = [&](const auto& disturb) {
    TrainingEvents events;
    events.step = [&](const StepReport& r) {
      if (r.step == 3) disturb();
    };
    run.train({}, events);
  };
  expect_error([&] {
    disturbed([&] {
      fs::rename(run.out, run.out + "-moved");
      write(run.out + "/settings.toml", "of another run");
    });
  })
      .names("train")
      .names(run.out)
      .value("replaced");
  CHECK(names_in(run.out) == std::set<std::string>{"settings.toml"});
  fs::remove_all(run.out);
  disturbed([&] { fs::remove_all(run.out); });
  CHECK(fs::exists(run.checkpoint(6)));
}

TEST_CASE("run folder: a log whose rows have many metrics is accepted") {
  const Run run;
  std::string row = "{\"step\":1";
  for (int i = 0; i < 5000; ++i) row += ",\"entropy/blocks." + std::to_string(i) + ".attention.0\":1.25";
  REQUIRE(row.size() > 100'000);
  write(run.out + "/metrics.jsonl", row + "}\n{\"step\":2}\n");
  CHECK(is_metrics_file(run.out + "/metrics.jsonl"));
  run.train();
  write(run.out + "/other", row + "\n");
  CHECK(!is_metrics_file(run.out + "/other"));
  write(run.out + "/other", std::string(20'000'000, 'x'));
  CHECK(!is_metrics_file(run.out + "/other"));
  // Logs of other programs.
  for (const char* theirs :
       {"{\"step\": 1, \"loss\": 2.5}\n", "{\"loss\":2.5,\"step\":1}\n", "{\"step\":1,\"run\":\"a\"}\n"}) {
    write(run.out + "/other", theirs);
    CHECK(!is_metrics_file(run.out + "/other"));
  }
  write(run.out + "/other", "{\"step\":1,\"loss\":2.5,\"rate\":null}\n");
  CHECK(is_metrics_file(run.out + "/other"));
}

TEST_CASE("run folder: if every name of a checkpoint is in use, the error asks to move the last one away") {
  const Run run;
  std::string taken;
  TrainingEvents events;
  events.step = [&](const StepReport&) {
    for (size_t zeros = 5; zeros <= 17; ++zeros)
      write((taken = run.out + "/step_" + std::string(zeros, '0') + "2") + "/x", "");
  };
  expect_error([&] { run.train({}, events); }).names("checkpoint").names(taken).value("exists").offers("move it away");
}

TEST_CASE("run folder: foreign settings and metrics are kept; those of a run without checkpoints are replaced") {
  for (const std::string name : {"settings.toml", "metrics.jsonl"}) {
    const Run run;
    const std::string file = run.out + "/" + name;
    write(file, "steps = 5\n");
    expect_error([&] { run.train(); }).names("train").value(file).offers("--out");
    CHECK(names_in(run.out) == std::set<std::string>{name});
    CHECK(read_file(file) == "steps = 5\n");
  }
  const Run run;
  run.train();
  for (const std::string& path : files_in(run.out))
    if (contains(path, "step_")) fs::remove_all(path);
  for (const char* partial : {"/settings.toml.12.partial", "/metrics.jsonl.9.partial", "/settings.toml.1a.partial"})
    write(run.out + partial, "");
  run.train();
  CHECK(names_in(run.out) == std::set<std::string>{"metrics.jsonl", "settings.toml", "settings.toml.1a.partial",
                                                   "step_000004", "step_000006"});
}

TEST_CASE("run folder: a run that was killed after its last checkpoint removes older ones when it is resumed") {
  const Run ended;
  ended.train({{"keep_checkpoints", "0"}});
  const std::set<std::string> files = {"metrics.jsonl", "settings.toml", "step_000006"};
  ended.resume({{"steps", "6"}, {"keep_checkpoints", "1"}});
  CHECK(names_in(ended.out) == files);

  const Run stopped;  // its last checkpoint was unverified when it was resumed
  TrainingEvents events;
  events.stop = [] { return true; };
  stopped.train({{"steps", "2"}});
  stopped.resume({{"keep_checkpoints", "0"}}, events);
  CHECK(names_in(stopped.out).contains("step_000003"));
  stopped.resume({{"steps", "3"}, {"keep_checkpoints", "1"}});
  const std::set<std::string> the_last = {"metrics.jsonl", "settings.toml", "step_000003"};
  CHECK(names_in(stopped.out) == the_last);

  const Run at_the_end;  // stopped after its last step, before the validation
  const std::vector<std::pair<std::string, std::string>> three = {{"steps", "3"}, {"keep_checkpoints", "1"}};
  at_the_end.train({{"steps", "2"}});
  at_the_end.resume(three, events);
  CHECK(read_state(at_the_end.out + "/step_000003").validated == 2);
  CHECK(names_in(at_the_end.out).contains("step_000002"));
  at_the_end.resume(three);
  const Run undisturbed;
  undisturbed.train(three);
  CHECK(names_in(at_the_end.out) == the_last);
  CHECK(read_state(at_the_end.out + "/step_000003").validated == 3);
  CHECK(read_state(at_the_end.out + "/step_000003").validation_loss ==
        read_state(undisturbed.out + "/step_000003").validation_loss);
}

TEST_CASE("run folder: the checkpoint of the lowest validation loss is kept, also if the run is resumed") {
  const Run run;
  const Assignments often = {{"evaluate_every", "1"}, {"checkpoint_every", "0"}, {"keep_checkpoints", "1"}};
  std::vector<double> losses;
  TrainingEvents events;
  events.validation = [&](int64_t, const Validation& found) { losses.push_back(found.loss); };
  const auto steep = [&](Assignments more) {  // the loss falls, then rises
    more.insert(more.end(), often.begin(), often.end());
    more.insert(more.end(), {{"learning_rate", "1"}, {"warmup_steps", "4"}, {"grad_clip", "0"}});
    return more;
  };
  run.train(steep({}), events);
  const auto best = std::min_element(losses.begin(), losses.end()) - losses.begin() + 1;
  REQUIRE(best < 6);
  CHECK(best_checkpoint(run.out) == run.checkpoint(static_cast<int>(best)));
  CHECK(latest_checkpoint(run.out) == run.checkpoint(6));
  CHECK(names_in(run.out) ==
        std::set<std::string>{"metrics.jsonl", "settings.toml", "step_00000" + std::to_string(best), "step_000006"});
  run.resume(steep({}), events);
  REQUIRE(std::min_element(losses.begin(), losses.end()) - losses.begin() + 1 == best);
  CHECK(names_in(run.out) ==
        std::set<std::string>{"metrics.jsonl", "settings.toml", "step_00000" + std::to_string(best), "step_000008"});
  run.resume(steep({{"keep_best", "no"}, {"steps", "9"}}), events);
  CHECK(names_in(run.out) == std::set<std::string>{"metrics.jsonl", "settings.toml", "step_000009"});
}

TEST_CASE("run folder: after a change of data, only validation losses on the new data count for the lowest") {
  const Run run;
  const std::string other = run.folder / "other.txt";
  std::string words;  // of letters that are rare in the first text
  for (int i = 0; i < 200; ++i) words += "zzq7k9 ";
  write(other, words);
  std::vector<double> losses;  // step 1 is losses[0]
  TrainingEvents events;
  events.validation = [&](int64_t, const Validation& found) { losses.push_back(found.loss); };
  const auto with = [](Assignments more) {
    more.insert(more.begin(), {{"evaluate_every", "1"},
                               {"checkpoint_every", "0"},
                               {"keep_checkpoints", "1"},
                               {"warmup_steps", "1"},
                               {"min_learning_rate", "0"}});
    return more;
  };
  const auto kept = [&] {
    std::set<std::string> names = names_in(run.out);
    names.erase("metrics.jsonl"), names.erase("settings.toml");
    return names;
  };
  run.train(with({{"learning_rate", "0.03"}}), events);
  CHECK(kept() == std::set<std::string>{"step_000006"});
  const double lowest_of_first = losses[5];
  run.resume(with({{"data", other}, {"allow_new_text", "yes"}, {"learning_rate", "1e-5"}}), events);
  REQUIRE(losses.size() == 8);
  REQUIRE(losses[7] < losses[6]);
  REQUIRE(losses[7] > lowest_of_first);
  CHECK(kept() == std::set<std::string>{"step_000008"});
  CHECK(best_checkpoint(run.out) == run.checkpoint(8));
  CHECK(read_state(run.checkpoint(8)).data_since == 6);
  CHECK(read_state(run.checkpoint(8)).earlier.size() == 1);

  run.resume(with({{"data", other}, {"learning_rate", "1e-30"}, {"steps", "9"}, {"keep_checkpoints", "0"}}), events);
  CHECK(read_state(run.checkpoint(9)).data_since == 6);
  // The other data are refused where no step would train on them.
  expect_error([&] {
    run.resume({{"allow_new_text", "yes"}, {"steps", "9"}});
  })
      .names("steps")
      .value(9)
      .names(run.out)
      .value(9)
      .offers("--steps")
      .offers("--validation_data");
  // Checkpoint 9 keeps its loss on the former data, and checkpoint 10 has none on the new data yet.
  run.resume(with({{"allow_new_text", "yes"},
                   {"steps", "11"},
                   {"evaluate_every", "3"},
                   {"checkpoint_every", "1"},
                   {"keep_checkpoints", "0"}}));
  CHECK(read_state(run.checkpoint(9)).validation_loss == losses[8]);
  CHECK(read_state(run.out + "/step_000010").data_since == 9);
  CHECK(read_state(run.out + "/step_000010").earlier.size() == 2);
  CHECK(read_state(run.out + "/step_000010").validated == -1);
  CHECK(best_checkpoint(run.out) == run.out + "/step_000011");
}

TEST_CASE("run folder: a folder that is not verified as the run's checkpoint is never removed") {
  const Run run;
  write(run.out + "/step_1/thesis", "x");
  write(run.out + "/step_000001/thesis", "x");
  write(run.out + "/step_000002/thesis", "x");  // at the path of a checkpoint
  write(run.out + "/step_000003.partial/thesis", "x");
  write(run.out + "/step_000004.partial/being_written", "x");
  write(run.out + "/step_000005", "a file");
  write(run.folder / "elsewhere/thesis", "x");
  fs::create_symlink(run.folder / "elsewhere", run.out + "/step_000000");
  fs::create_symlink("nowhere", run.out + "/step_000004");
  fs::create_directories(run.out + "/step_000100");
  const std::set<std::string> before = names_in(run.out);
  run.train({{"checkpoint_every", "1"}, {"keep", "1"}});
  std::set<std::string> after = before;
  after.insert({"metrics.jsonl", "settings.toml", "step_000006"});
  CHECK(names_in(run.out) == after);
  for (const char* kept : {"/step_1/thesis", "/step_000001/thesis", "/step_000002/thesis",
                           "/step_000003.partial/thesis", "/step_000000/thesis", "/step_000005"})
    CHECK(fs::exists(run.out + kept));
}

TEST_CASE("run folder: if a checkpoint's name is in use by other files, the checkpoint gets another name") {
  const Run run;
  write(run.out + "/step_000006/thesis", "x");
  const TrainingResult result = run.train();
  CHECK(result.checkpoint == run.out + "/step_0000006");
  CHECK(latest_checkpoint(run.out) == result.checkpoint);
  CHECK(run.resume().steps_done == 8);
  CHECK(read_file(run.out + "/step_000006/thesis") == "x");
}

TEST_CASE("run folder: a checkpoint with files of the user is kept, and a renamed copy of another step, too") {
  const Run run;
  run.train();
  write(run.checkpoint(4) + "/notes.txt", "x");
  fs::copy(run.checkpoint(6), run.checkpoint(3));  // its state names step 6
  run.resume({{"keep", "1"}});
  CHECK(fs::exists(run.checkpoint(4) + "/notes.txt"));
  CHECK(fs::exists(run.checkpoint(4) + "/weights.safetensors"));
  CHECK(fs::exists(run.checkpoint(3)));
  CHECK(!fs::exists(run.checkpoint(6)));
  CHECK(fs::exists(run.checkpoint(8)));
}

TEST_CASE("run folder: neither an empty newer folder nor unreadable checkpoints count for keep") {
  const Run run;
  run.train();
  fs::create_directories(run.out + "/step_000100");
  run.resume({{"keep", "1"}});
  CHECK(fs::exists(run.checkpoint(8) + "/weights.safetensors"));
  CHECK(fs::exists(run.out + "/step_000100"));

  const Run other;
  other.train({{"keep", "0"}});
  fs::resize_file(other.checkpoint(4) + "/optimizer.safetensors", 100);
  TrainingEvents events;
  int64_t step = 0;
  events.step = [&](const StepReport& r) { step = r.step; };
  events.stop = [&] { return step == 7; };
  other.resume({{"keep", "3"}}, events);  // keeps 7, 6 and 2; 4 is damaged
  CHECK(names_in(other.out) == std::set<std::string>{"metrics.jsonl", "settings.toml", "step_000002", "step_000004",
                                                     "step_000006", "step_000007"});
  other.resume({{"keep", "2"}});
  CHECK(names_in(other.out) == std::set<std::string>{"metrics.jsonl", "settings.toml", "step_000007", "step_000008"});
}

TEST_CASE("run folder: an old checkpoint that cannot be removed is a warning") {
  const Unprivileged user;
  const Run run;
  run.train();
  fs::permissions(run.checkpoint(4), fs::perms::owner_read | fs::perms::owner_exec);
  std::vector<std::string> warnings;
  TrainingEvents events;
  events.warning = [&](const std::string& sentence) { warnings.push_back(sentence); };
  CHECK(run.resume({{"keep", "1"}}, events).steps_done == 8);
  REQUIRE(!warnings.empty());
  Message(warnings[0]).names("old checkpoint").names("remove").value(run.out);
  for (const auto& entry : fs::directory_iterator(run.out)) fs::permissions(entry.path(), fs::perms::owner_all);
}

TEST_CASE("run folder: the partial checkpoint of a killed run is removed with the next checkpoint") {
  const Run run;
  run.train();
  const std::string begun = run.out + "/step_000007.partial";
  write(begun + "/being_written", "orrery checkpoint 2, step 7, is being written\n");
  write(begun + "/weights.safetensors.123.partial", "half");
  fs::copy(run.checkpoint(4), run.out + "/step_000004.2.partial");  // was being removed
  fs::create_directories(run.out + "/step_000003.partial");         // had just been made
  write(run.out + "/step_000002.partial/being_written", "orrery check");
  fs::copy(run.checkpoint(4), run.out + "/step_000005.partial");  // its state names another step: not its own
  write(run.out + "/step_000009.partial/state.json", read_file(run.checkpoint(4) + "/state.json"));
  const std::string temporary = run.checkpoint(6) + "/state.json.77.partial",
                    foreign = run.checkpoint(6) + "/a.77.partial";
  for (const std::string& path : {temporary, foreign}) write(path, "half");
  run.resume({{"keep", "0"}});
  CHECK(!fs::exists(temporary));
  CHECK(fs::exists(foreign));
  std::set<std::string> partial;
  for (const std::string& name : names_in(run.out))
    if (name.ends_with(".partial")) partial.insert(name);
  CHECK(partial == std::set<std::string>{"step_000005.partial", "step_000009.partial"});
}

TEST_CASE("run folder: paths outside UTF-8 are errors at the start, and are read from older checkpoints") {
  const Run run("lat\xe9");
  expect_error([&] { run.train(); }).names("train").names("--out").value(run.out).names("UTF-8").offers("rename");
  CHECK(!fs::exists(run.out));
  const Run other;
  const std::string text = other.folder / "te\xff\xfext";
  fs::rename(other.text, text);
  expect_error([&] { other.train({{"data", text}}); }).names("--data").value(text).names("UTF-8").offers("rename");
  fs::rename(text, other.text);
  other.train();
  const std::string file = other.checkpoint(6) + "/state.json";
  auto state = nlohmann::ordered_json::parse(read_file(file));
  const auto whole = state;
  state["format"] = "orrery checkpoint 9";
  write(file, state.dump());
  expect_error([&] { read_state(other.checkpoint(6)); })
      .names("state.json")
      .value("orrery checkpoint 9")
      .offers("orrery checkpoint 2");
  state = whole;
  for (const char* key : {"format", "files", "text", "sha256"}) state.erase(key);  // older files have none of these
  state["settings"]["data"] = {{"bytes", "746578fffe74"}};
  write(file, state.dump());
  for (const auto& [key, value] : read_state(other.checkpoint(6)).settings)
    if (key == "data") CHECK(value == "tex\xff\xfet");
}

TEST_CASE("run folder: settings.toml of a resumed run repeats the run") {
  const Run run;
  run.train();
  run.resume({{"keep", "0"}});
  CHECK(!contains(read_file(run.out + "/settings.toml"), "resume = true"));
  CHECK(!contains(read_file(run.checkpoint(8) + "/state.json"), "\"resume\": \"yes\""));
  TrainSettings known;
  auto again = read_settings_file(run.out + "/settings.toml", settings_of(known));
  again.emplace_back("out", run.folder / "again");
  Trainer(make_settings(again)).run();
  CHECK(read_file(run.checkpoint(8) + "/weights.safetensors") ==
        read_file(run.folder / "again/step_000008/weights.safetensors"));
}

TEST_CASE("run folder: an error while a checkpoint is written names the last good checkpoint") {
  const Unprivileged user;
  const Run run;
  const auto spoiled_at = [&](int64_t step, const Assignments& more) {
    TrainingEvents events;
    events.step = [&](const StepReport& r) {
      if (r.step == step) fs::permissions(run.out, fs::perms::owner_read | fs::perms::owner_exec);
    };
    Message message = expect_error([&] { run.train(more, events); });
    fs::permissions(run.out, fs::perms::owner_all);
    const std::string spoiled = run.checkpoint(static_cast<int>(step) + 1);
    message.names("checkpoint").names(spoiled).names(spoiled + ".partial").value("Permission denied");
    return message;
  };
  spoiled_at(1, {}).offers("no checkpoint before");
  for (const Assignments& more : {Assignments(), Assignments{{"resume", "yes"}}})
    spoiled_at(5, more).offers(run.checkpoint(4));
  CHECK(latest_checkpoint(run.out) == run.checkpoint(4));
}
