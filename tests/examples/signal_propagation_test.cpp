// orrery train --signal_propagation=yes: its table, file, report section, and plug-in components.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/examples/report_data.h"

using Words = std::vector<std::string>;
using Json = nlohmann::json;
using orrery::testing::finds;

namespace {

const std::string golden = ORRERY_SOURCE_DIR "/tests/golden/hugging_face";

Words probing(const Folder& folder, const Words& more = {}) {
  return Words{"train", "--data=" + folder.write("text.txt", tiny_text()), "--out=" + (folder / "run"),
               "--signal_propagation=yes"} +
         tiny + more;
}
bool has_line(const std::string& text, const std::string& expression) { return finds(text, "\n" + expression + "\n"); }
const std::string number = " +-?\\d\\.\\d\\de[+-]\\d\\d";

}  // namespace

TEST_CASE("signal propagation: a table is printed before the first step, and stored in the run and its report") {
  const Folder folder;
  const Outcome run = run_orrery(probing(folder));
  INFO(run.out, run.err);
  REQUIRE(run.code == 0);
  CHECK(has_line(run.err, ".*\\bresidual stream\\b.*"));
  CHECK(has_line(run.err, "  embedding +- +-" + number + " +- +-" + number));
  for (const char* sublayer : {"attention", "feed_forward"})
    CHECK(has_line(run.err,
                   std::string("  blocks\\.0\\.") + sublayer + number + number + number + number + number + number));
  CHECK(has_line(run.err, "  blocks\\.0\\.attention +head_output / value" + number + number +
                              " +\\d\\S* +exp\\(v\\) / n" + number));
  CHECK(has_line(run.err,
                 "  norm +gradient of input / of output" + number + number + " +\\S+ +\\(1 - 2/C\\) / v" + number));
  CHECK(run.err.find("residual stream") < run.err.find("step 1/4"));
  CHECK(contains(run.out, "\n  " + (folder / "run/signal_propagation.json") + "\n"));
  const Json file = Json::parse(read_file(folder / "run/signal_propagation.json"));
  CHECK(file["format"] == "orrery probe 1");

  REQUIRE(run_orrery({"report", folder / "run"}).code == 0);
  const Json report = report_data(read_file(folder / "run/report.html"));
  size_t tables = 0, bars = 0;
  for (const Json& section : report["sections"]) {
    if (section["group"] != "Before the first step") continue;
    tables += section["kind"] == "table";
    if (section["kind"] != "bars") continue;
    ++bars;
    for (const Json& row : section["data"]["rows"])
      for (const Json& value : file["values"])
        if (value["name"] == row["name"].get<std::string>() + ".residual" || value["name"] == row["name"])
          CHECK(std::abs(row["value"].get<double>() - std::sqrt(value["mean_square"].get<double>())) < 1e-12);
    CHECK(section["data"]["rows"].size() == 3);  // the embedding and two sublayers
  }
  CHECK(tables == 2);
  CHECK(bars == 1);

  // A run without --signal_propagation prints nothing about it.
  std::filesystem::remove_all(folder / "run");
  const Outcome plain = run_orrery(probing(folder, {"--signal_propagation=no"}));
  CHECK(!contains(plain.err, "residual stream"));
  CHECK(!std::filesystem::exists(folder / "run/signal_propagation.json"));
  CHECK(contains(run_orrery({"train", "--help=all"}).out, "\n  --signal_propagation=no "));
}

TEST_CASE("signal propagation: the table covers imported weights and components of a plug-in") {
  const Folder folder;
  std::string numbers;  // text of token ids
  for (int i = 0; i < 2000; ++i) numbers += std::to_string(i * i % 53) + " ";
  REQUIRE(run_orrery({"import", golden + "/llama", "--out=" + (folder / "llama")}).code == 0);
  const Outcome imported =
      run_orrery({"train", "--model=gpt", "--init_from=" + (folder / "llama"), "--signal_propagation=yes",
                  "--data=" + folder.write("numbers.txt", numbers), "--steps=1", "--out=" + (folder / "run")});
  INFO(imported.out, imported.err);
  CHECK(is_complete(imported));
  CHECK(has_line(imported.err,
                 "  blocks\\.1\\.attention_norm +output / input" + number + number + " +\\S+ +1 / v" + number));

  REQUIRE(run_orrery({"try", ORRERY_SOURCE_DIR "/tests/examples/plugins/extra_loss.cpp",
                      "--out=" + (folder / "plugins"), "--steps=10"})
              .code == 0);
  std::filesystem::remove_all(folder / "run");
  const Outcome priced = run_orrery(probing(folder, {"--plugin=" + (folder / "plugins/extra_loss.so"),
                                                     "--attention=priced_softmax", "--losses.output_power=0.5"}));
  INFO(priced.out, priced.err);
  REQUIRE(priced.code == 0);
  CHECK(has_line(priced.err, "  blocks\\.0\\.attention" + number + number + number + number + number + number));
}
