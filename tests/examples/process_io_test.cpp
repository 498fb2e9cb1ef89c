// Process I/O: pipes, full disks, files that are not regular, incomplete plug-ins. A command
// succeeds or ends with an error message, and training saves its state first.
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/examples/process_io.h"
#include "tests/support/message.h"
#include "tests/support/sanitizers.h"

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using orrery::testing::expect_error;
using orrery::testing::Message;

namespace {

// Runs a command while descriptor 4 is a pipe whose reader has ended.
Outcome without_reader(const Folder& folder, const Words& words, const std::string& streams) {
  return run_shell("mkfifo " + (folder / "pipe") + "; ( exec 3< " + (folder / "pipe") + "; exec 3<&-; touch " +
                   (folder / "gone") + " ) & exec 4> " + (folder / "pipe") + "; while [ ! -e " + (folder / "gone") +
                   " ]; do sleep 0.02; done; " + command_of(words) + streams + "; code=$?; rm " + (folder / "pipe") +
                   " " + (folder / "gone") + "; exit $code");
}

// Returns state.json without format and hashes, as an older version: changes are not detected.
std::string without_hashes(const std::string& path) {
  auto state = nlohmann::ordered_json::parse(read_file(path));
  for (const char* key : {"format", "files", "text", "sha256"}) state.erase(key);
  return state.dump(2);
}

// Expects an error message of one line at the end.
Message expect_sentence(const Outcome& outcome) {
  CHECK(last_line(outcome.err).starts_with("orrery: "));
  CHECK(last_line(outcome.err).size() < 4000);
  return expect_error(outcome);
}
Message expect_refusal(const Words& words) {
  CAPTURE(words);
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = run_shell("timeout -s KILL 20 " + command_of(words));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
  return expect_sentence(outcome);
}

}  // namespace

TEST_CASE("process I/O: a run continues after the reader of its output has gone") {
  const Folder folder;
  const Outcome outcome = without_reader(folder, train_tiny(folder, {"--steps=2"}), " >&4 2>&4");
  CHECK(outcome.code == 128 + SIGPIPE);  // it could not print its result
  CHECK(checkpoints_in(folder / "run") == 1);
  const Outcome resumed = run_orrery(train_tiny(folder, {"--steps=3", "--resume"}));
  INFO(resumed.err);
  CHECK(is_complete(resumed));
}

TEST_CASE("process I/O: a command ends silently if the reader of its output has gone, like cat") {
  const Folder folder;
  const std::string text = folder.write("text.txt", tiny_text());
  REQUIRE(run_orrery(train_tiny(folder)).code == 0);
  const std::string run = folder / "run";
  for (const Words& words :
       {Words{"list"}, Words{"--help"}, Words{"train", "--help"}, Words{"list", "--markdown"}, Words{"metrics", run},
        Words{"show", run}, Words{"generate", "--checkpoint=" + run, "--tokens=20"}, Words{"--version"},
        Words{"sweep", "--data=" + text, "--out=" + (folder / "sweep"), "--runs=" + (folder / "pool")} + tiny}) {
    CAPTURE(words[0]);
    const Outcome outcome = without_reader(folder, words, " >&4");
    CHECK(!contains(outcome.err, "orrery: "));
    CHECK(outcome.code == 128 + SIGPIPE);
  }
}

TEST_CASE("process I/O: a full or closed standard output gives an error message") {
  for (const char* words : {"list", "--help", "--version", "", "train --help", "gradcheck relu", "list relu",
                            "list --markdown", "bench rows --only dyt --seconds 0.001"})
    for (const char* where : {"> /dev/full", ">&-"}) {
      CAPTURE(words);
      CAPTURE(where);
      const Outcome outcome = run_shell(std::string("\"$ORRERY\" ") + words + " " + where);
      expect_sentence(outcome)
          .names("standard output")
          .value(where[1] == '&' ? "Bad file descriptor" : "No space left on device");
    }
  // Other errors are still printed, and run files get no descriptor of a closed stream.
  expect_sentence(run_shell("\"$ORRERY\" list nonsense > /dev/full"))
      .names("list")
      .value("nonsense")
      .offers("orrery list");
  const Folder folder;
  CHECK(run_shell(command_of(train_tiny(folder)) + " 2>&- <&-").code == 0);
  CHECK(checkpoints_in(folder / "run") == 1);
  const Folder closed;
  expect_sentence(run_shell(command_of(train_tiny(closed)) + " >&-")).names("standard output");
  CHECK(run_shell(command_of(train_tiny(closed)) + " >&- 2>&-").code == 1);
}

TEST_CASE("process I/O: a file size limit gives an error message, and the weights are saved if they fit") {
  const Folder folder;
  const Words long_run = train_tiny(folder, {"--steps=3000", "--evaluate_every=0", "--checkpoint_every=0"});
  const Outcome log = run_shell("ulimit -f 160; " + command_of(long_run));  // 80 KB: log larger, weights smaller
  expect_error(log)
      .names("metrics.jsonl")
      .value("File too large")
      .names("step")
      .offers("orrery train --resume=" + (folder / "run"));
  CHECK(checkpoints_in(folder / "run") == 1);
  const Outcome resumed = run_orrery(long_run + Words{"--resume"});
  CAPTURE(resumed.err);
  CHECK(resumed.code == 0);

  const Folder smaller;
  const Outcome none = run_shell("ulimit -f 16; " + command_of(train_tiny(smaller)));
  expect_error(none).names(smaller / "run/step_000004").value("File too large");
  CHECK(checkpoints_in(smaller / "run") == 0);
}

TEST_CASE("process I/O: only regular files are read") {
  const Folder folder;
  const std::string pipe = folder / "pipe";
  REQUIRE(run_shell("mkfifo " + pipe).code == 0);
  REQUIRE(run_orrery(train_tiny(folder)).code == 0);
  const std::string run = folder / "run", step = run + "/step_000004";
  const std::pair<std::string, std::string> odd[] = {
      {pipe, "pipe"}, {"/dev/zero", "device"}, {folder.path(), "folder"}};
  for (const auto& [path, kind] : odd) {
    const bool all = path == folder.path();  // a folder means all its files
    expect_refusal(Words{"train", "--data=" + path, "--out=" + (folder / "other")} + tiny)
        .names(all ? pipe : path)
        .value(all ? "pipe" : kind)
        .offers("regular files");
    for (const Words& words : {Words{"train", "--config=" + path}, Words{"list", "--plugin=" + path},
                               Words{"try", path, "--out=" + (folder / "plugins")}})
      expect_refusal(words).names(path).value(kind).offers("regular files");
    if (path != pipe)  // a text may come from a pipe
      expect_refusal({"generate", run, "--start=FILE:" + path}).names(path).value(kind).offers("regular files");
    expect_refusal({"try", folder.write("large.cpp", std::string(2'000'000, ' '))})
        .names("large.cpp")
        .value(2000000)
        .offers(1048576);
    for (const char* name : {"weights.safetensors", "state.json"}) {
      const std::string file = step + "/" + name, kept = folder / "kept";
      fs::rename(file, kept);
      fs::create_symlink(path, file);
      expect_refusal({"generate", "--checkpoint=" + step}).names(name).value(kind).offers("regular files");
      fs::remove(file);
      fs::rename(kept, file);
    }
  }
}

TEST_CASE("process I/O: huge numbers in a file are printed in full") {
  const Folder folder;
  REQUIRE(run_orrery(train_tiny(folder)).code == 0);
  const std::string path = folder / "run/step_000004/state.json";
  std::string state = without_hashes(path);
  const size_t begin = state.find("\"validation_loss\": ") + 19;
  state.replace(begin, state.find_first_of(",\n", begin) - begin, "1e300");
  std::ofstream(path, std::ios::binary) << state;
  const Outcome outcome = run_orrery(train_tiny(folder, {"--resume"}));
  INFO(outcome.out, outcome.err);
  CHECK(outcome.code == 3);  // worse than a uniform guess
  const std::string line = last_line(outcome.out),
                    start = "validation loss 1000000000000000052504760255204420248704468";
  CHECK(line.starts_with(start));
  CHECK(line.size() == std::string("validation loss ").size() + 301 + 5);
  CHECK(line.ends_with(".0000"));
}

TEST_CASE("process I/O: texts with too much nesting, length or items are refused before they are parsed") {
  const auto repeated = [](const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  const Folder folder;
  const auto config = [&](const std::string& toml) {
    return expect_refusal({"train", "--config=" + folder.write("odd.toml", toml)});
  };
  config("a" + repeated(".a", 40'000) + " = 1\n").names("odd.toml:1").names("key").offers("16 dots");
  config("\n[a" + repeated(" . 'a'", 40'000) + "]\n").names("odd.toml:2").names("key").offers("16 dots");
  config("steps = " + repeated("[", 100'000)).names("odd.toml:1").names("brackets").offers(16);
  config("attention = " + repeated("{ name = ", 100'000)).names("odd.toml:1").names("brackets").offers(16);
  std::string items = "[attention]\nname = \"softmax\"\n";
  for (int i = 0; i < 100'000; ++i) items += "k" + std::to_string(i) + " = 1\n";
  config(items.substr(0, 1'000'000)).names("odd.toml:2001").offers("2000 items");
  config("# " + repeated("x", 2'000'000)).names("odd.toml").value("2000002 bytes").offers(1048576);
  config("steps = " + repeated("9", 5'000)).names("odd.toml:1").names("value").offers("100 characters");
  config("steps = \x01").names("odd.toml:1").value("control character");
  config("out = \"a\x1b[31mb\"").names("odd.toml:1").value("control character");
  config("attention = \"" + repeated("softmax(", 10'000) + "\"").names("attention").value(80000).offers(65536);
  config("attention = \"" + repeated("x", 100'000) + "\"").names("attention").value(100000).offers(65536);
  config("attention = \"softmax(1" + repeated(", 1", 20'000) + ")\"").names("softmax").offers("1000 items");
  expect_refusal({"train", "--attention=softmax(" + repeated("a(", 20'000)})
      .names("attention")
      .value("softmax(a(a(")
      .offers(32);
  expect_refusal({"train", "--" + repeated("a.", 40'000) + "=1"}).names("train").value("a.a.a.");

  REQUIRE(run_orrery(train_tiny(folder)).code == 0);
  const std::string path = folder / "run/step_000004/state.json", whole = without_hashes(path);
  const auto state = [&](const std::string& tokenizer) {
    std::string changed = whole;
    const size_t begin = changed.find("\"tokenizer\": ") + 13, end = changed.find('}', begin) + 1;
    changed.replace(begin, end - begin, tokenizer);
    std::ofstream(path, std::ios::binary) << changed;
    return expect_refusal({"generate", "--checkpoint=" + (folder / "run"), "--tokens=1"});
  };
  state(repeated("[", 100'000) + repeated("]", 100'000)).names("state.json").offers("64 levels");
  state(repeated("{\"a\":", 100'000) + "1" + repeated("}", 100'000)).names("state.json").offers("64 levels");
  state("{\"name\": 1e999}").names("state.json").value("number");
  state("{\"name\": 7}").names("tokenizer").names("'name'").offers("text");
  state("{\"name\": \"character\"}").names("tokenizer").names("'characters'").value("missing");
  state("{\"name\": \"character\", \"characters\": [1]}").names("tokenizer").names("'characters'").offers("text");
  state("[]").names("state.json").names("'tokenizer'").offers("{...}");
  state("{\"name\": ").names("state.json").value("JSON");
  std::ofstream(path, std::ios::binary) << std::string(65 << 20, ' ');
  expect_refusal({"generate", "--checkpoint=" + (folder / "run")})
      .names("state.json")
      .value("68157440 bytes")
      .offers(67108864);
}

TEST_CASE("process I/O: errors of the file system are reported with the path") {
  const Folder folder;
  const std::string text = folder.write("text.txt", tiny_text()), long_name(300, 'x');
  const Words train = Words{"train", "--data=" + text} + tiny;
  expect_refusal(train + Words{"--out=" + text + "/run"}).names(text + "/run").value("Not a directory");
  for (const Words& words :
       {train + Words{"--out=" + (folder / long_name)}, Words{"generate", "--checkpoint=" + (folder / long_name)},
        Words{"list", "--plugin=" + (folder / long_name)}, Words{"try", folder / long_name}})
    expect_refusal(words).names(long_name).value("File name too long");
  expect_refusal({"try", text, "--out=" + text + "/p"}).names("folder").names(text + "/p").value("Not a directory");
  // A name with terminal escapes is printed escaped.
  expect_refusal({"list", "a\x1b[2Jb\nc"}).names("list").value("a\\x1b[2Jb\\x0ac");
}

TEST_CASE("process I/O: too little address space gives an error message, even before main begins" *
          doctest::skip(orrery::address_sanitizer)) {
  const Folder folder;
  const std::string command = command_of(train_tiny(folder));
  for (int megabytes = 20; megabytes <= 400; megabytes += 20) {
    CAPTURE(megabytes);
    const Outcome outcome =
        run_shell("ulimit -v " + std::to_string(megabytes * 1024) + "; timeout -s KILL 20 " + command);
    CAPTURE(outcome.err);
    CHECK((outcome.code == 0 || outcome.code == 1 || outcome.code == 127));  // 127: the loader lacks memory
    if (outcome.code != 0) CHECK(outcome.err.size() > 10);
    fs::remove_all(folder / "run");
  }
}

TEST_CASE("process I/O: a plug-in that differs from the compiled file is refused before it is loaded") {
  const Folder folder;
  // A comment may have any length.
  const std::string formula =
      "/*" + std::string(500'000, 'x') + "*/\n" + read_file(ORRERY_SOURCE_DIR "/examples/03_new_activation.cpp");
  const Outcome tried = run_orrery({"try", folder.write("smelu.cpp", formula), "--out=" + (folder / "p"), "--steps=0"});
  INFO(tried.out, tried.err);
  REQUIRE(tried.code == 0);
  const std::string plugin = folder / "p/smelu.so", checksum = plugin + ".sha256", bytes = read_file(plugin);
  CHECK(read_file(checksum).starts_with("# " + std::to_string(bytes.size()) + " bytes\n"));
  CHECK(run_shell("cd " + (folder / "p") + " && sha256sum -c smelu.so.sha256").code == 0);
  CHECK(run_orrery({"list", "--plugin=" + plugin}).code == 0);

  // A plug-in of the same name can have another formula.
  const std::string text = folder.write(
      "text.txt", read_file(ORRERY_SOURCE_DIR "/examples/data/tinyshakespeare.txt").substr(0, 20'000));
  const Words more = {"--plugin=" + plugin,  "--model=gpt", "--layers=1",     "--heads=2",
                      "--width=8",           "--context=8", "--batch_size=2", "--feed_forward=dense(smelu)",
                      "--learning_rate=0.01"};
  REQUIRE(run_orrery(Words{"train", "--data=" + text, "--out=" + (folder / "run"), "--steps=60"} + more).code == 0);
  CHECK(run_orrery({"train", "--resume=" + (folder / "run"), "--plugin=" + plugin, "--steps=61"}).code == 0);
  fs::create_directory(folder / "q");
  const std::string other = folder.write("q/smelu.cpp", formula + "\nint of_another_formula = 1;\n");
  REQUIRE(run_orrery({"try", other, "--out=" + (folder / "q"), "--steps=0"}).code == 0);
  const std::string changed_file = folder / "q/smelu.so";
  expect_error(run_orrery({"train", "--resume=" + (folder / "run"), "--plugin=" + changed_file, "--steps=62"}))
      .names("smelu.so")
      .value(folder / "run")
      .offers("--init_from");
  const Outcome evaluated = run_orrery({"evaluate", "--checkpoint=" + (folder / "run"), "--plugin=" + changed_file});
  CHECK(evaluated.code == 0);
  CHECK(contains(evaluated.err, "smelu.so"));

  const auto refused = [&](const std::string& changed) {
    std::ofstream(plugin, std::ios::binary) << changed;
    const Outcome outcome = run_orrery({"list", "--plugin=" + plugin});
    expect_error(outcome).names("plugin").value(plugin).offers("orrery try");
    CHECK(outcome.out.empty());
  };
  for (size_t size = 0; size < bytes.size(); size += bytes.size() / 12) refused(bytes.substr(0, size));
  refused(bytes.substr(0, bytes.size() - 1));
  refused(bytes + "x");
  for (size_t at = 100; at < bytes.size(); at += bytes.size() / 12) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    refused(changed);
  }
  std::ofstream(plugin, std::ios::binary) << bytes;
  fs::remove(checksum);
  expect_refusal({"list", "--plugin=" + plugin}).names(plugin).names(checksum).offers("copy both").offers("orrery try");
  folder.write("p/smelu.so.sha256", "");
  expect_refusal({"list", "--plugin=" + plugin}).names(plugin).value("SHA-256").names(checksum).offers("orrery try");

  Message(run_orrery({"--help"}).out)
      .names("--plugin=FILE.so")
      .value("code")
      .offers("your rights")
      .names("checkpoint")
      .offers("never");
}
