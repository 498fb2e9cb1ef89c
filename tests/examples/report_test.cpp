// orrery report: pages of a run, several runs, a sweep, an unfinished run; and errors.
#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/examples/report_data.h"
#include "tests/examples/training.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using Json = nlohmann::json;
using orrery::testing::expect_error;
using orrery::testing::Message;

namespace {

struct Page {
  std::string html;
  Json data;
  std::set<std::string> kinds() const {
    std::set<std::string> all;
    for (const Json& section : data["sections"]) all.insert(section["kind"].get<std::string>());
    return all;
  }
  Json section(const std::string& title) const { return report_section(data, title); }
};
Page report_of(const Folder& folder, const Words& words) {
  const std::string path = folder / "page.html";
  const Outcome outcome = run_orrery(Words{"report"} + words + Words{"--out=" + path});
  INFO(outcome.out, outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(last_line(outcome.out) == path);
  const std::string html = read_file(path);
  return {html, report_data(html)};
}
std::map<std::string, size_t> rows_in_log(const std::string& run) {
  std::map<std::string, size_t> counts;
  std::istringstream in(read_file(run + "/metrics.jsonl"));
  for (std::string line; std::getline(in, line);) {
    const Json row = Json::parse(line);
    for (const auto& [key, value] : row.items())
      if (key != "step") ++counts[key];
  }
  return counts;
}

}  // namespace

TEST_CASE("report: one page shows the curves, samples, settings and analyses of a run") {
  const Folder folder;
  const std::string run =
      trained_run(folder, "run", {"--steps=30", "--evaluate_every=10", "--attention=softmax(qk_norm=rms)"});
  const Page page = report_of(folder, {run, "--samples=3", "--sample_tokens=40"});
  CHECK(page.html.size() < 500'000);
  for (const char* outside : {"src=", "href=\"http", "@import", "url(\"", "fetch(", "{{"})
    CHECK_MESSAGE(!contains(page.html, outside), outside);
  CHECK(page.kinds() ==
        std::set<std::string>{"values", "curves", "text", "table", "formula", "matrices", "matrix", "bars", "tokens",
                              "choices", "lens", "components"});
  // Every row of the log; curves with their own axis come from analyses.
  std::map<std::string, size_t> counts;
  for (const Json& section : page.data["sections"])
    if (section["kind"] == "curves" && !section["data"].contains("axis"))
      for (const Json& series : section["data"]["series"]) {
        counts[series["key"].get<std::string>()] = series["rows"];
        CHECK(series["values"].size() == series["rows"]);
      }
  CHECK(counts == rows_in_log(run));
  CHECK(counts.at("loss") == 30);
  // Samples are the output of generate without the prompt.
  const Json samples = page.section("Generated samples")["items"];
  REQUIRE(samples.size() == 3);
  CHECK(samples[1]["text"].get<std::string>().size() == 40);
  CHECK(samples[0]["text"] != samples[1]["text"]);
  CHECK(contains(page.section("Settings that differ from the preset")["rows"].dump(), "qk_norm=rms"));
  CHECK(contains(page.section("Data and checkpoint files")["rows"].dump(), "text.txt"));
  std::map<std::string, std::string> derivations;
  const Json entries = page.section("Components named in the settings")["entries"];
  for (const Json& entry : entries) derivations[entry["name"].get<std::string>()] = entry["derivation"];
  for (const Json& entry : entries)
    if (entry["name"] == "adamw") CHECK(entry["file"] == "nn/optimizers/adamw.cpp");
  CHECK(contains(derivations.at("softmax"), "ds_ij = w_ij (g_ij"));
  CHECK(contains(derivations.at("gelu_tanh"), "f'(x)"));
  CHECK(contains(derivations.at("adamw"), "c1 = 1 - beta1^t"));
  CHECK(contains(derivations.at("cross_entropy"), "dz_v"));
  CHECK(contains(derivations.at("rms"), "arXiv:1910.07467"));
  // The commands run.
  const Json commands = page.section("Commands to train and use the model")["items"];
  CHECK(commands.size() == 4);  // train, resume, generate, evaluate
  for (const Json& item : commands) {
    const std::string command = item["text"];
    REQUIRE(command.starts_with("orrery "));
    const Outcome outcome = run_shell("\"$ORRERY\" " + command.substr(7));
    INFO(command, outcome.err);
    CHECK(outcome.code == 0);
  }
}

TEST_CASE("report: the same run gives the same samples, and --samples=0 gives none") {
  const Folder folder;
  const std::string run = trained_run(folder, "run");
  const Json once = report_of(folder, {run}).section("Generated samples");
  CHECK(once == report_of(folder, {run, "--threads=1"}).section("Generated samples"));
  CHECK(once != report_of(folder, {run, "--seed=7"}).section("Generated samples"));
  const Page without = report_of(folder, {run, "--samples=0"});
  for (const Json& section : without.data["sections"]) CHECK(section["title"] != "Generated samples");
  CHECK(run_orrery({"report", run}).out.find(run + "/report.html") != std::string::npos);
  CHECK(fs::exists(run + "/report.html"));
}

TEST_CASE("report: several runs share their plots, and settings that differ are marked") {
  const Folder folder;
  const std::string a = trained_run(folder, "a"), b = trained_run(folder, "b", {"--normalization=dyt", "--seed=3"});
  const Page page = report_of(folder, {a, b, "--title=a </script> & b"});
  CHECK(page.data["title"] == "a </script> & b");
  CHECK(contains(page.html, "<title>a &lt;/script&gt; &amp; b</title>"));
  CHECK(report_of(folder, {a, "--title=b\xff\x1b[1m"}).data["title"] == "b\\xff\\x1b[1m");
  CHECK(page.section("loss")["runs"].size() == 2);
  const Json different = page.section("Settings that differ");
  std::set<std::string> keys;
  for (const Json& row : different["marked"]) keys.insert(different["rows"][row.get<size_t>()][0].get<std::string>());
  CHECK(keys == std::set<std::string>{"normalization", "out", "seed"});
  CHECK(!contains(page.html, "Losses of different meaning"));
  const Page other = report_of(folder, {a, trained_run(folder, "c", {"--validation_fraction=0.2"})});
  Message(other.section("Losses of different meaning")["items"][0]["text"].get<std::string>())
      .names("validation_loss")
      .names("validation_fraction")
      .offers("--validation_data");
}

TEST_CASE("report: runs are analyzed on one held-out example, or on one text, or a sentence states that they are not") {
  const Folder folder;
  const auto captions = [&](const Words& runs) {
    const Page page = report_of(folder, runs);
    std::vector<std::string> all;
    for (const Json& section : page.data["sections"])
      if (section["kind"] == "tokens" || section["kind"] == "image") all.push_back(section["text"]);
    REQUIRE(all.size() == 2);
    return std::pair(page, all[1]);
  };
  const auto tokens = [](const Page& page, const std::string& run) { return page.section(run + ": Input")["tokens"]; };
  const std::string a = trained_run(folder, "a");
  // Another context, the same held-out text: the windows have the shorter one.
  const auto [same, same_example] = captions({a, trained_run(folder, "short", {"--context=4"}, false)});
  CHECK(contains(same_example, "held_out:0 of the run's held-out data, the same as of a."));
  CHECK(tokens(same, "a").size() == 4);
  CHECK(tokens(same, "a") == tokens(same, "short"));
  for (const Json& section : same.data["sections"])
    if (section.contains("view"))
      CHECK(section["title"] == (section["run"] == 0 ? "a: " : "short: ") + section["view"].get<std::string>());
  // Other held-out data: the text of the first.
  const auto [text, text_example] = captions({a, trained_run(folder, "part", {"--validation_fraction=0.4"}, false)});
  CHECK(contains(text_example, "the text of a (held_out:0 of the run's held-out data) in the tokens of this run, "
                               "which may have trained on it: its held-out example of this number is another."));
  CHECK(tokens(text, "a") == tokens(text, "part"));
  // Another tokenizer, which has the same tokens of this text.
  const auto [bytes, byte_example] = captions({a, trained_run(folder, "bytes", {"--tokenizer=byte"}, false)});
  CHECK(contains(byte_example, "the same as of a."));
  CHECK(tokens(bytes, "a") == tokens(bytes, "bytes"));
  // No text in common.
  const Outcome sums =
      run_orrery({"train", "--task=algorithmic", "--problem=copy(length=4)", "--layers=1", "--heads=2", "--width=16",
                  "--batch_size=2", "--steps=4", "--warmup_steps=1", "--out=" + (folder / "sums")});
  REQUIRE(is_complete(sums));
  const auto [other, other_example] = captions({a, folder / "sums"});
  CHECK(contains(other_example, "Example: held_out:0 of the run's held-out data, another than that of a."));
}

TEST_CASE("report: formulas have the files that state them, with links where these lead to a file") {
  const Folder folder;
  const std::string run = trained_run(folder, "run", {"--attention=softmax(qk_norm=rms, span=adaptive_span(8))"});
  const auto entries = [](const Page& page) {
    std::map<std::string, Json> all;
    const Json named = page.section("Components named in the settings"), tree = page.section("Components of the model");
    const auto name_of = [](const Json& each) {
      return each["family"].get<std::string>() + " " + each["name"].get<std::string>();
    };
    for (const Json& each : named["entries"]) all[name_of(each)] = each;
    for (const Json& each : tree["formulas"]) all["tree: " + name_of(each)] = each;
    return all;
  };
  const auto made = entries(report_of(folder, {run}));
  for (const auto& each : made) {
    CAPTURE(each.first);
    CHECK(each.second["link"] == "");
    if (each.first.starts_with("model preset")) continue;
    CHECK(fs::is_regular_file(ORRERY_SOURCE_DIR "/" + each.second["file"].get<std::string>()));
  }
  CHECK(made.at("attention setting adaptive_span")["file"] == "nn/attentions/base/span.h");
  CHECK(made.at("tree: layer linear")["file"] == "nn/layers/linear.cpp");
  CHECK(made.at("tree:  block")["file"] == "models/architectures/block.h");
  CHECK(made.at("tree:  gpt")["file"] == "models/architectures/gpt.h");
  const auto linked = entries(report_of(folder, {run, "--source_url=https://host.example/orrery/blob/main"}));
  CHECK(linked.at("attention softmax")["link"] ==
        "https://host.example/orrery/blob/main/nn/attentions/softmax.cpp");
  // A page in a folder of a source tree.
  fs::create_directories(folder / "nn/attentions");
  folder.write("nn/attentions/softmax.cpp", "");
  const std::string inside = folder / "runs/deep/page.html";
  fs::create_directories(folder / "runs/deep");
  REQUIRE(run_orrery({"report", run, "--out=" + inside}).code == 0);
  const auto relative = entries({"", report_data(read_file(inside))});
  CHECK(relative.at("attention softmax")["link"] == "../../nn/attentions/softmax.cpp");
  CHECK(relative.at("tree: attention softmax")["link"] == "../../nn/attentions/softmax.cpp");
  CHECK(relative.at("optimizer adamw")["link"] == "");
  const Outcome script = run_orrery({"report", run, "--source_url=javascript:alert(1)"});
  expect_error(script).names("report: --source_url=javascript:alert(1)").offers("https://");
  expect_error(run_orrery({"inspect", run, "--source_url=https://x"})).names("--source_url").offers("--html=FILE.html");
}

TEST_CASE("report: an unfinished run or a run without a checkpoint is shown as far as possible") {
  const Folder folder;
  const std::string run = trained_run(folder, "run");
  const std::string log = read_file(run + "/metrics.jsonl");
  for (const auto& entry : fs::directory_iterator(run))
    if (entry.is_directory()) fs::remove_all(entry.path());
  folder.write("run/metrics.jsonl", log.substr(0, log.size() / 2));  // cut within a row
  const Page page = report_of(folder, {run});
  CHECK(page.kinds().contains("curves"));
  CHECK(page.kinds().contains("table"));  // from settings.toml
  for (const Json& section : page.data["sections"]) CHECK(section["title"] != "Generated samples");
  Message(page.section("run").dump()).names("steps").value("of 4");  // fewer than 4
  fs::remove(run + "/metrics.jsonl");
  CHECK(!report_of(folder, {run}).kinds().contains("curves"));
}

TEST_CASE("report: the page lists a damaged checkpoint") {
  const Folder folder;
  const std::string run = trained_run(folder, "run");
  folder.write("run/step_000004/weights.safetensors", "no weights");
  const Page page = report_of(folder, {run});
  CHECK(page.kinds().contains("curves"));
  Message(page.section("Read errors").dump()).names("weights.safetensors").value("10 bytes");
}

TEST_CASE("report: the page of a translator shows held-out sentences") {
  const Folder folder;
  std::string source, target;
  for (int i = 0; i < 60; ++i) {
    source += "ein haus und " + std::to_string(i) + " hunde\n";
    target += "a house and " + std::to_string(i) + " dogs\n";
  }
  const Outcome outcome =
      run_orrery({"train", "--model=translation-small", "--data=" + folder.write("de", source),
                  "--translations=" + folder.write("en", target), "--width=16", "--heads=2", "--tokenizer=character",
                  "--steps=3", "--context=64", "--validation_fraction=0.2", "--out=" + (folder / "run")});
  INFO(outcome.err);
  REQUIRE(is_complete(outcome));
  const Page page = report_of(folder, {folder / "run", "--samples=1"});
  const Json items = page.section("Generated samples")["items"];
  REQUIRE(items.size() == 1);
  CHECK(contains(items[0]["text"].get<std::string>(),
                 "source     ein haus und 59 hunde\nreference  a house and 59 dogs\nmodel      "));
  // A held-out pair is analyzed, also next to a text model that has its own example.
  CHECK(page.section("encoder.attention.layer")["rows"].size() > 20);
  CHECK(page.section("encoder.attention.layer")["columns"][4] == "h");
  CHECK(page.section("decoder.cross_attention.layer")["shape"] == Json({3, 2}));  // all three decoder positions
  const Page two = report_of(folder, {folder / "run", trained_run(folder, "writes"), "--text=abeabe"});
  CHECK(two.section("run: encoder.attention.layer")["rows"].size() > 20);
  CHECK(two.section("writes: blocks.attention")["rows"] == Json::parse(R"(["a","b","e","a","b","e"])"));
}

TEST_CASE("report: the page of a model without texts has no samples") {
  const Folder folder;
  const Outcome outcome =
      run_orrery({"train", "--task=algorithmic", "--problem=copy(length=4)", "--layers=1", "--heads=2", "--width=16",
                  "--batch_size=2", "--steps=4", "--warmup_steps=1", "--out=" + (folder / "run")});
  INFO(outcome.err);
  REQUIRE(is_complete(outcome));
  const Page page = report_of(folder, {folder / "run"});
  CHECK(page.section("accuracy")["series"][0]["key"] == "accuracy");
  for (const Json& section : page.data["sections"]) CHECK(section["title"] != "Generated samples");
}

TEST_CASE("report: the page of a sweep shows paired differences, runs and curves") {
  const Folder folder;
  const Outcome swept = run_orrery(Words{"sweep", "--data=" + folder.write("text.txt", tiny_text()),
                                         "--out=" + (folder / "sweep"), "--runs=" + (folder / "pool"),
                                         "--attention={softmax,pointwise(relu, alpha=1)}", "--seed={1..3}"} +
                                   tiny);
  REQUIRE(swept.code == 0);
  const Page page = report_of(folder, {folder / "sweep"});
  CHECK(page.kinds() == std::set<std::string>{"bars", "table", "curves", "text"});
  const Json bars = page.section("Difference of validation loss, seed by seed")["rows"];
  REQUIRE(bars.size() == 2);
  CHECK(bars[0]["note"] == "baseline");
  const std::string table = read_file(folder / "sweep/table.csv");
  std::istringstream last(last_line(table).substr(last_line(table).rfind('"') + 1));  // after the row's name
  std::vector<double> fields;
  for (std::string field; std::getline(last, field, ',');) fields.push_back(field.empty() ? 0 : std::stod(field));
  REQUIRE(fields.size() == 9);  // empty, seeds, mean, deviation, difference, low, high, diverged, failed
  CHECK(bars[1]["value"] == fields[4]);
  CHECK(bars[1]["low"] == fields[5]);
  CHECK(bars[1]["high"] == fields[6]);
  CHECK(page.section("Every run")["rows"].size() == 6);
  CHECK(page.section("loss")["runs"].size() == 6);
  CHECK(contains(page.section("The command that repeats the sweep").dump(),
                 "'--attention={softmax,pointwise(relu, alpha=1)}'"));
}

TEST_CASE("report: the plot of differences contains the rows of a sweep that diverged") {
  const Folder folder;
  fs::create_directory(folder / "sweep");
  folder.write("sweep/table.csv",
               "row,seeds,mean,deviation,difference,low,high,diverged,failed\na,3,2.5,0.1,,,,0,0\n"
               "b,3,2.25,0.1,-0.25,-0.5,-0.1,0,0\nc,0,,,,,,2,1\n");
  folder.write("sweep/runs.csv", "row,seed,run,outcome,step,seconds,why,validation_loss\na,1,,ended,4,1,,2.5\n");
  const Page page = report_of(folder, {folder / "sweep"});
  const Json bars = page.section("Difference of validation loss, seed by seed")["rows"];
  REQUIRE(bars.size() == 3);
  CHECK(bars[0]["note"] == "baseline");
  CHECK(bars[2]["name"] == "c");
  CHECK(bars[2]["value"].is_null());
  CHECK(bars[2]["note"] == "2 diverged, 1 failed");
}

TEST_CASE("report: a path that is not a run and a page that cannot be written are refused") {
  const Folder folder;
  const auto refusal = [](const Words& words) { return expect_error(run_orrery(Words{"report"} + words)); };
  refusal({}).names("report").offers("orrery report runs/latest");
  refusal({folder / "none"}).names("report").names(folder / "none").offers("orrery train --out=DIR");
  refusal({folder.path()}).names("report").names(folder.path()).value("sweep").offers("orrery train");
  const std::string run = trained_run(folder, "run");
  refusal({run, "--samlpes=1"}).names("report").value("samlpes").offers("samples");
  refusal({run, "--out=" + (folder / "text.txt/page.html")}).names("write").names(folder / "text.txt/page.html");
  CHECK(!fs::exists(folder / "page.html"));
  folder.write("run/metrics.jsonl", "{\"step\":1,\"loss\":2}\nno row\n");
  refusal({run}).names(run + "/metrics.jsonl").names("line 2");
}
