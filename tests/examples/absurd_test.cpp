// Numbers that nobody means, and machines that have too little: a sentence and exit 1, at once.
#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <regex>
#include <sstream>

#include "tests/examples/program.h"

namespace {

using Words = std::vector<std::string>;

Words train(const Folder& folder) {
  return Words{"train", "--data=" + folder.write("text.txt", tiny_text()), "--out=" + (folder / "run")} + tiny;
}
bool one_sentence(const Outcome& outcome) {
  return outcome.err.starts_with("orrery: ") && outcome.err.find('\n') == outcome.err.size() - 1;
}

}  // namespace

TEST_CASE("absurd: sizes and counts are refused at once, by name, and leave nothing behind") {
  const Folder folder;
  const Words base = train(folder);
  for (const auto& each : std::vector<std::pair<std::string, std::string>>{
           {"--gradient_accumulation_steps=4611686018427387904",
            "gradient_accumulation_steps: 4611686018427387904 must"},
           {"--accumulate=9223372036854775807",
            "gradient_accumulation_steps: 9223372036854775807 must be at most 4096"},
           {"--width=2305843009213693952", "width: 2305843009213693952 must be at most"},
           {"--layers=1e9", "layers: 1000000000 must be at most"},
           {"--layers=2147483648", "layers: 2147483648 must be at most"},
           {"--steps=9223372036854775807", "steps: 9223372036854775807 must be at most"},
           {"--context=9223372036854775807", "context: 9223372036854775807 must be at most"},
           {"--batch=1e18", "batch: 1e18 must be at most"},
           {"--vocabulary=4611686018427387904", "vocabulary: 4611686018427387904 must be at most"},
           {"--d_ff=1e300", "d_ff: 1e300 must be at most"},
           {"--threads=4294967297", "threads: 4294967297 must be at most"},
           {"--warmup_steps=9223372036854775807", "warmup_steps: 9223372036854775807 must be at most"},
           {"--optimizer=muon(iterations=1e10)", "muon: iterations: 10000000000 must be at most 20"},
           {"--attention=gau(size=2305843009213693952)", "gau: size: 2305843009213693952 must be at most"},
           {"--attention=softmax(persistent=slots(4611686018427387904))", "slots: N: 4611686018427387904 must be at"},
           {"--position=relative(9223372036854775807)", "S is the largest distance and must be at most"},
           {"--layers=4096 --width=65536", "the run cannot fit into memory"},
           {"--d_ff=262144 --width=65536", "the run cannot fit into memory"},
           {"--layers=4096 --width=64 --context=32 --steps=1000000000", "train: the run would take about "},
           {"--steps=1000000000 --accumulate=4096", "steps 1000000000 with gradient_accumulation_steps 4096"}}) {
    const auto& word = each.first;
    const auto& sentence = each.second;
    CAPTURE(word);
    Words words = base;
    std::istringstream apart(word);
    for (std::string one; apart >> one;) words.push_back(one);
    const auto began = std::chrono::steady_clock::now();
    const Outcome outcome = run_orrery(words);
    CAPTURE(outcome.err);
    CHECK(outcome.code == 1);
    CHECK(one_sentence(outcome));
    CHECK(contains(outcome.err, sentence));
    CHECK(!std::filesystem::exists(folder / "run"));
    CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(5));
  }
}

TEST_CASE("memory: train says before the first step what it will hold") {
  const Folder folder;
  const Outcome outcome = run_orrery(train(folder));
  REQUIRE(outcome.code == 0);
  CHECK(std::regex_search(outcome.out, std::regex("\nmemory: about [\\d,]+ MB \\(weights \\d+, gradients \\d+, "
                                                  "optimizer \\d+, activations \\d+, data \\d+, program \\d+\\), "
                                                  "[\\d,]+ MB are free\nepoch: 900 tokens, 57 steps of 16\n"
                                                  "time: about [\\d.,]+ ms a step, \\d:\\d\\d for 4 steps\nstep 1/4")));
}

TEST_CASE("memory: whatever ulimit -v leaves, train ends in exit 0 or in a sentence") {
  const Folder folder;
  std::string command = "exec \"$ORRERY\"";
  for (const std::string& word : train(folder)) command += " '" + word + "'";
  int refused = 0;
  for (int megabytes = 50; megabytes <= 170; megabytes += 10) {
    CAPTURE(megabytes);
    const auto limited = [&](const std::string& words) {
      return run_shell("( ulimit -v " + std::to_string(megabytes) + "000; timeout -s KILL 60 " + words + " )");
    };
    const Outcome outcome = limited(command.substr(5));
    CAPTURE(outcome.err);
    // The system could not even start it.  Within some hundred kilobytes libgfortran, which OpenBLAS brings, calls
    // itself without end before main, and then not even this runs.
    const bool not_loaded = outcome.code == 127 || (outcome.code == 139 && limited("\"$ORRERY\" --help").code == 139);
    CHECK((outcome.code == 0 || outcome.code == 1 || not_loaded));
    CHECK((outcome.code != 1 || one_sentence(outcome)));
    refused += outcome.code == 1;
    std::filesystem::remove_all(folder / "run");
  }
  CHECK(refused > 0);
}

TEST_CASE("program: every number of every command shows its range") {
  for (const char* command : {"train", "prepare", "generate", "gradcheck", "try", "bench"}) {
    const Outcome outcome = run_orrery({command, "--help"});
    REQUIRE(outcome.code == 0);
    CAPTURE(command);
    CHECK(!contains(outcome.out, "inf"));
    CHECK(std::regex_search(outcome.out, std::regex("[\\[(]-?[\\d.e-]+, [\\d.e]+[\\])]\n")));
  }
}

TEST_CASE("settings at random: 500 combinations train or are refused in a sentence") {
  const Outcome outcome = run_shell("'" SETTINGS_AT_RANDOM "' 500 1");
  INFO(outcome.out, outcome.err);
  CHECK(outcome.code == 0);
  std::smatch counts;
  const std::string last = last_line(outcome.out);
  REQUIRE(std::regex_match(last, counts, std::regex("500 draws: (\\d+) trained, (\\d+) refused, 0 others")));
  CHECK(std::stoi(counts[1]) >= 100);  // or the draws would test refusals alone
  CHECK(std::stoi(counts[2]) >= 100);
}
