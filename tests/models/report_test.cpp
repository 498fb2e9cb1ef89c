// Reports: logs of unfinished runs, charts of logs, tables as comma-separated values.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "engine/system/files.h"
#include "models/formats/base64.h"
#include "models/formats/csv.h"
#include "models/formats/shell_words.h"
#include "models/reports/report.h"
#include "models/reports/report_components.h"
#include "models/reports/report_curves.h"
#include "models/reports/report_sweep.h"
#include "models/study/run_log.h"
#include "tests/support/message.h"
#include "tests/support/small_run.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

std::vector<LogRow> rows_of(const Folder& folder, const std::string& log) {
  write_file_atomically(folder / "metrics.jsonl", log);
  return RunLog::of_run(folder.path.string()).rows();
}

}  // namespace

TEST_CASE("run log: rows are in order, non-finite values are NaN, and an incomplete last row is skipped") {
  const Folder folder;
  const auto rows = rows_of(folder,
                            "{\"step\":1,\"loss\":2.5,\"entropy/blocks.0.attention\":null}\n"
                            "{\"step\":1,\"validation_loss\":3}\n{\"step\":2,\"loss\":2.25}\n{\"step\":3,\"lo");
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].step == 1);
  CHECK(rows[0].metrics.at("loss") == 2.5);
  CHECK(std::isnan(rows[0].metrics.at("entropy/blocks.0.attention")));
  CHECK(rows[1].metrics == std::map<std::string, double>{{"validation_loss", 3}});
  CHECK(rows[2].step == 2);
  CHECK(rows_of(folder, "").empty());
  CHECK(rows_of(folder, "{\"step\":1,\"loss\":2.5}").empty());  // complete, but without a newline
  expect_error([&] { rows_of(folder, "{\"step\":1}\n{\"step\":\"2\"}\n"); })
      .names(folder / "metrics.jsonl")
      .names("line 2")
      .names("step")
      .value("\"2\"")
      .offers("2^63");
  CHECK(rows_of(folder, "{\"step\":1,\"loss\":\"low\"}\n").at(0).metrics.empty());  // not a number: no metric
}

TEST_CASE("csv: a written table is read back unchanged") {
  const std::vector<CsvRow> rows = {{"row", "why"}, {"a=f(x, y)", "it said \"no\""}, {"", "two\nlines"}, {"x", ""}};
  std::string csv;
  for (const CsvRow& row : rows) csv += csv_line(row);
  CHECK(csv_line(rows[1]) == "\"a=f(x, y)\",\"it said \"\"no\"\"\"\n");
  CHECK(parse_csv(csv, "t") == rows);
  CHECK(parse_csv("a,b\r\n1,2\r\n", "t") == std::vector<CsvRow>{{"a", "b"}, {"1", "2"}});
  CHECK(parse_csv("a,b\n1,2", "t").size() == 2);
  CHECK(parse_csv(csv_line({""}), "t") == std::vector<CsvRow>{{""}});
  CHECK(parse_csv("", "t").empty());
  expect_error([] { parse_csv("a\n\"b", "t"); }).names("t").names("row 2").value("closing quote");
  expect_error([] { parse_csv("\"a\"b\n", "t"); }).names("t").names("row 1").value("closing quote");
  expect_error([] { parse_csv("a,b\n1\n", "t"); }).names("t").names("row 2").value(1).offers(2);
}

TEST_CASE("report: the error for a table that no sweep wrote names its column") {
  const Folder folder;
  const std::string table = folder / "table.csv";
  write_file_atomically(table, "row,seeds\na,1\n");
  expect_error([&] { runs_in_tables(folder.path.string()); }).names(table).names("'mean'").offers("--out");
}

TEST_CASE("report: a thinned curve keeps the minimum, the maximum, and both ends") {
  Curve curve;
  for (int i = 0; i < 10'000; ++i) curve.steps.push_back(i), curve.values.push_back(std::sin(i * 0.01));
  curve.values[4321] = 50, curve.values[1234] = -50, curve.values[7777] = NAN;
  const Curve less = thinned(curve, 200);
  CHECK(less.steps.size() <= 200);
  CHECK(less.steps.size() > 150);
  CHECK(std::count(less.values.begin(), less.values.end(), 50) == 1);
  CHECK(std::count(less.values.begin(), less.values.end(), -50) == 1);
  CHECK(std::count_if(less.values.begin(), less.values.end(), [](double x) { return std::isnan(x); }) == 1);
  CHECK(std::is_sorted(less.steps.begin(), less.steps.end()));
  CHECK(std::adjacent_find(less.steps.begin(), less.steps.end()) == less.steps.end());
  for (size_t i = 0; i < less.steps.size(); ++i) {
    const double was = curve.values[static_cast<size_t>(less.steps[i])];
    CHECK((std::isnan(was) ? std::isnan(less.values[i]) : was == less.values[i]));
  }
  CHECK(less.steps.front() < 100);
  CHECK(less.steps.back() > 9'900);
  CHECK(thinned(curve, 10'000).steps == curve.steps);
}

TEST_CASE("report: a chart for each metric, the losses together, a line for each module path") {
  const std::vector<LoggedRun> runs = {
      {"a",
       "a",
       {{1, {{"loss", 2.5}, {"gradient_norm", NAN}}},
        {1, {{"validation_loss", 2.25}, {"span.0.1", 3}, {"span.0.0", 4}}},
        {2, {{"alpha/blocks.10.norm", 1}, {"alpha/blocks.9.norm", 0.5}, {"loss", 2}}}}},
      {"b", "b", {{1, {{"loss", 3}}}}}};
  Json sections = Json::array();
  add_curves(sections, runs);
  REQUIRE(sections.size() == 4);
  CHECK(sections[0]["data"]["quantity"] == "loss");
  CHECK(sections[0]["data"]["series"].size() == 3);
  CHECK(sections[0]["data"]["series"][0]["rows"] == 2);
  CHECK(sections[0]["data"]["series"][0]["values"] == Json::parse("[2.5,2]"));
  CHECK(sections[1]["title"] == "gradient norm");
  CHECK(sections[1]["data"]["series"][0]["values"][0].is_null());
  Message(sections[1]["text"].get<std::string>()).value(1).names("not finite");
  CHECK(sections[2]["group"] == "Curves by module");
  CHECK(sections[2]["data"]["series"][0]["name"] == "blocks.9.norm");  // 9 before 10
  CHECK(sections[2]["data"]["series"][1]["key"] == "alpha/blocks.10.norm");
  CHECK(sections[3]["data"]["quantity"] == "span");
  CHECK(sections[3]["data"]["series"][0]["name"] == "0.0");
  // Metrics of validations and of steps for the same heads get separate charts.
  Json both = Json::array();
  add_curves(both, std::vector<LoggedRun>{{"a", "a", {{1, {{"span.0.0", 4}, {"span/blocks.0.attention.0", 4}}}}}});
  REQUIRE(both.size() == 2);
  CHECK(both[0]["title"] == "span at validations");
  CHECK(both[1]["title"] == "span");
  CHECK(both[1]["data"]["series"].size() == 1);
}

TEST_CASE("report: after a change of a run's data, only later validations count for the lowest loss") {
  ReportedRun run;
  run.name = "a";
  run.log = {{2, {{"loss", 2.5}}}, {2, {{"validation_loss", 2.25}}}, {4, {{"loss", 5}}}};
  run.state = CheckpointState{.step = 4, .tokenizer = {}, .settings = {}, .data_since = 2};
  const auto first_item = [&] {
    Json sections = Json::array();
    add_overview(sections, std::span(&run, 1));
    return sections[0]["data"]["items"][0];
  };
  const Json none = first_item();
  CHECK(none["name"] == "loss");
  CHECK(none["value"] == "5.0000");
  Message(none["note"].get<std::string>()).names("no validation").value("step 2");
  run.log.add({4, {{"validation_loss", 4.5}}});
  run.log.add({6, {{"validation_loss", 4.75}}});
  const Json lowest = first_item();
  CHECK(lowest["name"] == "validation loss");
  CHECK(lowest["value"] == "4.5000");
  Message(lowest["note"].get<std::string>()).names("lowest").value("since step 2").value("at step 4");

  Json curves = Json::array();
  add_curves(curves, std::vector<LoggedRun>{{"a", "a", run.log, {}, run.data_since()}, {"b", "b", run.log}});
  CHECK(curves[0]["data"]["runs"][0]["since"] == 2);
  CHECK(!curves[0]["data"]["runs"][1].contains("since"));
  Message(curves[0]["text"].get<std::string>()).names("data of a").value("step 2").names("lowest");
}

TEST_CASE("report: many long curves stay below five megabytes") {
  std::vector<LogRow> log;
  for (int step = 1; step <= 20'000; ++step) {
    LogRow row{step, {{"loss", 1.0 / step}}};
    for (int head = 0; head < 40; ++head) row.metrics["entropy/" + std::to_string(head)] = std::sin(step * 0.37 + head);
    log.push_back(std::move(row));
  }
  Json sections = Json::array();
  add_curves(sections, std::vector<LoggedRun>{{"a", "a", log}});
  CHECK(sections[0]["data"]["series"][0]["rows"] == 20'000);
  CHECK(sections[0]["data"]["series"][0]["steps"].size() <= 2'000);
  CHECK(sections[0]["data"]["thinned"] == true);
  Message(sections[0]["text"].get<std::string>()).value(2000).names("rows").names("smallest").names("largest");
  CHECK(sections.dump().size() < 4'000'000);
}

TEST_CASE("report: packed numbers have an error of at most 1/65,534 of their range") {
  const std::vector<float> values = {-1.5f, 0, 2, 0.3f, NAN};
  const Json packed = packed_values(values);
  CHECK(packed["low"] == -1.5);
  CHECK(packed["high"] == 2.0);
  const std::string bytes = bytes_of_base64(packed["base64"].get<std::string>(), "t");
  REQUIRE(bytes.size() == 10);
  const auto code = [&](size_t i) {
    return static_cast<unsigned char>(bytes[2 * i]) + 256 * static_cast<unsigned char>(bytes[2 * i + 1]);
  };
  CHECK(code(0) == 0);
  CHECK(code(2) == 65534);
  CHECK(code(4) == 65535);
  for (size_t i = 0; i < 4; ++i)
    CHECK(std::abs(-1.5 + 3.5 * code(i) / 65534 - static_cast<double>(values[i])) <= 3.5 / 131068 + 1e-9);
  CHECK(packed_values(std::vector<float>{3, 3})["low"] == 3.0);
  CHECK(packed["gaps"] == Json::array());
  // Long runs of non-finite values are left out: the keys after a query.
  std::vector<float> with_gaps(40, NAN);
  with_gaps[0] = 1, with_gaps[20] = 2, with_gaps[23] = 3;
  const Json gaps = packed_values(with_gaps);
  CHECK(gaps["count"] == 40);
  CHECK(gaps["gaps"] == Json({1, 19, 24, 16}));
  CHECK(bytes_of_base64(gaps["base64"].get<std::string>(), "t").size() == 2 * 5);  // 1, 2, two NaN, 3
}

TEST_CASE("report: it has the components that settings name, also inside specs, with their derivations") {
  ReportedRun run;
  run.settings = resolved(make_settings({{"attention", "softmax(qk_norm=rms, span=adaptive_span(16))"},
                                         {"feed_forward", "gated(silu)"},
                                         {"losses.span_penalty", "0.1"},
                                         {"mask", "causal and (sinks(2) or window(4))"},
                                         {"normalization", "dyt"}}));
  Json sections = Json::array();
  add_components(sections, std::span(&*run.settings, 1), [](const std::string& family, const std::string& name) {
    return SourceHead{family + "/" + name + ".cpp", "", family + "/" + name};
  });
  REQUIRE(sections.size() == 1);
  std::map<std::string, Json> found;
  for (const Json& entry : sections[0]["data"]["entries"])
    found[entry["family"].get<std::string>() + " " + entry["name"].get<std::string>()] = entry;
  for (const char* name :
       {"attention softmax", "attention setting qk_norm", "attention setting adaptive_span", "normalization rms",
        "normalization dyt", "feed forward gated", "activation silu", "loss span_penalty", "loss cross_entropy",
        "optimizer adamw", "schedule cosine", "position learned", "tokenizer character", "task language_modeling",
        "mask causal", "mask sinks", "mask window"})
    CHECK_MESSAGE(found.contains(name), name);
  CHECK(found.at("mask window")["used"] == "mask = causal and (sinks(S=2) or window(w=4))");
  CHECK(found.at("mask window")["formula"] == "|i - j| < w");
  CHECK(!found.contains("mask prefix"));
  CHECK(!found.contains("activation relu"));
  CHECK(!found.contains("attention rela"));
  CHECK(found.at("activation silu")["formula"] == "x * sigmoid(beta * x)");
  CHECK(found.at("activation silu")["derivation"] == "activation/silu");
  CHECK(found.at("activation silu")["file"] == "activation/silu.cpp");
}

TEST_CASE("report: arguments of commands are quoted for a shell") {
  CHECK(shell_quoted("--steps=20") == "--steps=20");
  CHECK(shell_quoted("--attention=pointwise(relu, alpha=1)") == "'--attention=pointwise(relu, alpha=1)'");
  CHECK(shell_quoted("it's") == "'it'\\''s'");
  CHECK(shell_quoted("") == "''");
}
