// Files of a build of 2facf9c (tests/models/old_names/make.sh) are read, resumed and reported. Only
// numbers are compared, not their names: a name may change, a number may not.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/examples/program.h"

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

namespace {

const std::string tests_of_models = ORRERY_SOURCE_DIR "/tests/models";
const Words runs = {"gpt", "dyt", "stream", "translation", "vit", "copy"};

// A copy of the old folder in a folder of this test; its paths lead to the same data.
class OldFolder {
 public:
  OldFolder() {
    fs::copy(tests_of_models + "/old_names", path(), fs::copy_options::recursive);
    fs::create_directory_symlink(tests_of_models + "/images", folder_ / "images");
  }
  std::string path() const { return folder_ / "old_names"; }
  std::string operator/(const std::string& name) const { return path() + "/" + name; }
  // Runs the program in this folder.
  Outcome run(const Words& words) const {
    std::string command = "cd '" + path() + "' && $ORRERY";
    for (const std::string& word : words) command += " '" + word + "'";
    Outcome outcome = run_shell(command);
    INFO(command, "\n", outcome.out, outcome.err);
    CHECK(is_complete(outcome));
    return outcome;
  }

 private:
  Folder folder_;
};

using Numbers = std::vector<double>;
void check_alike(Numbers found, Numbers then, double tolerance = 1e-3) {
  std::sort(found.begin(), found.end());
  std::sort(then.begin(), then.end());
  REQUIRE(found.size() == then.size());
  for (size_t i = 0; i < found.size(); ++i) CHECK(found[i] == doctest::Approx(then[i]).epsilon(tolerance));
}

bool is_time(const std::string& name) {
  return name == "milliseconds" || name == "step_ms" || name == "mfu" || name.ends_with("_per_second");
}
// Counts of the multiply-adds that were done: kernels round sizes up to the processor's vectors.
bool is_count(const std::string& name) { return contains(name, "multiply_adds"); }
// Returns the last row of each step of a log without times: its counts, or its other numbers.
std::map<int64_t, Numbers> rows_of(const std::string& path, bool counts) {
  std::map<int64_t, Numbers> rows;
  std::istringstream in(read_file(path));
  for (std::string line; std::getline(in, line);) {
    const auto row = nlohmann::json::parse(line);
    Numbers numbers;
    for (const auto& [name, value] : row.items())
      if (value.is_number() && !is_time(name) && is_count(name) == counts) numbers.push_back(value);
    rows[row["step"]] = numbers;
  }
  return rows;
}
// Returns the last column of a table with a header line.
Numbers numbers_in(const std::string& csv) {
  Numbers numbers;
  std::istringstream in(csv);
  std::string line;
  for (std::getline(in, line); std::getline(in, line);) numbers.push_back(std::stod(line.substr(line.rfind(',') + 1)));
  return numbers;
}
// Returns each column's cells as one text, sorted.
Words columns_of(const std::string& csv) {
  Words columns;
  std::istringstream in(csv);
  std::string line;
  for (std::getline(in, line); std::getline(in, line);) {
    std::istringstream cells(line + ",");
    size_t column = 0;
    for (std::string cell; std::getline(cells, cell, ','); ++column) {
      if (column == columns.size()) columns.emplace_back();
      columns[column] += cell + "\n";
    }
  }
  std::sort(columns.begin(), columns.end());
  return columns;
}

}  // namespace

TEST_CASE("old names: each run resumes to the recorded metrics") {
  const OldFolder old;
  for (const std::string& run : runs) {
    CAPTURE(run);
    old.run({"train", "--config=" + run + "/settings.toml", "--out=" + run, "--steps=6", "--resume=yes"});
    for (const bool counts : {false, true}) {
      const auto found = rows_of(old / run + "/metrics.jsonl", counts), then = rows_of(old / run + "_on.jsonl", counts);
      REQUIRE(found.size() == 6);
      for (const auto& [step, numbers] : then) check_alike(found.at(step), numbers, counts ? 0.15 : 1e-3);
    }
    CHECK(fs::exists(old / run + "/step_000006"));
  }
}

TEST_CASE("old names: metrics of a log, of analyses and of hooks keep their values") {
  const OldFolder old;
  CHECK(columns_of(old.run({"metrics", "gpt"}).out) == columns_of(read_file(old / "figures.csv")));
  fs::rename(old / "seen.csv", old / "then.csv");
  old.run({"inspect", "gpt", "--text=The ", "--look=attention,heads,curves,depth,memories,causes", "--out=seen.csv"});
  std::string seen;  // without the metrics that then did not exist
  std::istringstream in(read_file(old / "seen.csv"));
  for (std::string line; std::getline(in, line);)
    if (!line.starts_with("logit_lens/lens_accuracy/")) seen += line + "\n";
  check_alike(numbers_in(seen), numbers_in(read_file(old / "then.csv")));
  const std::string shown = old.run({"inspect", "gpt", "--text=The ", "--look=heads", "--hooks=*"}).out;
  const auto lines = [](const std::string& text) {  // without the values that then did not exist
    int64_t count = 0;
    std::istringstream of_text(text);
    for (std::string line; std::getline(of_text, line);)
      count += line.find(".attention.score_") == line.npos && line.find(".attention.weight_") == line.npos;
    return count;
  };
  CHECK(lines(shown) == lines(read_file(old / "hooks.txt")));
  for (const char* of_then : {"*.read", "*.hidden_before", "*.row_zero_share", "*.row_maximum"}) {
    CAPTURE(of_then);
    old.run({"inspect", "gpt", "--text=The ", "--look=heads", std::string("--hooks=") + of_then});
  }
}

TEST_CASE("old names: a sweep and a study find their runs and give the same table and verdict") {
  const OldFolder old;
  const std::string table = read_file(old / "sweep/table.csv"), verdict = read_file(old / "study/verdict.json");
  const Words sweep = {"sweep",
                       "--data=text.txt",
                       "--model=gpt",
                       "--heads=2",
                       "--width=16",
                       "--batch=2",
                       "--layers=1",
                       "--context=16",
                       "--steps=2",
                       "--warmup_steps=1",
                       "--evaluate_every=0",
                       "--save_optimizer=no",
                       "--attention={softmax,pointwise(relu)}",
                       "--seed={1,2}",
                       "--against=attention=softmax",
                       "--out=sweep",
                       "--runs=pool",
                       "--jobs=1"};
  const auto outcomes = [&] {
    return std::count_if(fs::directory_iterator(old / "pool"), fs::directory_iterator(),
                         [](const fs::directory_entry& entry) { return entry.path().extension() == ".json"; });
  };
  const auto before = outcomes();
  old.run(sweep);
  old.run({"study", "claim.toml", "--out=study", "--runs=pool", "--jobs=1"});
  CHECK(outcomes() == before);  // no run was trained
  CHECK(read_file(old / "sweep/table.csv") == table);
  const auto now = nlohmann::json::parse(read_file(old / "study/verdict.json")), then = nlohmann::json::parse(verdict);
  CHECK(now["verdict"] == then["verdict"]);
  CHECK(fs::exists(old / "study/samples.svg"));
  CHECK(!fs::exists(old / "study/picture.svg"));  // the plot's former name
}

TEST_CASE("old names: report, compare, generate and show accept the runs") {
  const OldFolder old;
  old.run(Words{"report"} + runs + Words{"--out=page.html"});
  old.run(Words{"compare"} + Words{"gpt", "dyt"});
  CHECK(!old.run({"generate", "--checkpoint=gpt", "--prompt=The ", "--tokens=8"}).out.empty());
  for (const std::string& run : runs) old.run({"show", run});
  old.run({"report", "study", "--out=study.html"});
  const std::string page = read_file(old / "study.html");
  for (const std::string present : {"attention_zero_fraction", "attention zero fraction", "max_score", "max score"})
    CHECK_MESSAGE(contains(page, present + "/*"), present);
  for (const std::string former : {"attention_zeros", "attention zeros", "largest_score", "largest score"})
    CHECK_MESSAGE(!contains(page, former), former);
}
