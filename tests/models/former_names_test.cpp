// Former names of metrics, analyses and presets: they are read like current ones, and not listed.
#include "models/former_names.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "engine/system/files.h"
#include "models/formats/replaced.h"
#include "models/inspection/base/analysis.h"
#include "models/metrics/base/model_metric.h"
#include "models/model.h"
#include "models/study/metric_expression.h"
#include "models/study/metric_names.h"
#include "models/study/run_log.h"
#include "models/study/runs.h"
#include "models/training/settings.h"
#include "models/training/signal_propagation.h"
#include "tests/support/folder.h"
#include "tests/support/inspected_examples.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

const std::string old_rows =
    R"({"step":1,"loss":4,"gradient_norm":1,"milliseconds":10,"attention_zeros/blocks.0.attention.0":0.25,)"
    R"("largest_score/blocks.0.attention":3})"
    "\n"
    R"({"step":1,"loss":3,"gradient_norm":1,"milliseconds":20,"top_share/blocks.0.feed_forward":0.5})"
    "\n"
    R"({"step":1,"validation_loss":2.5})"
    "\n";

std::vector<LogRow> rows_of(const Folder& folder, const std::string& log) {
  write_file_atomically(folder / "metrics.jsonl", log);
  return RunLog::of_run(folder.path.string()).rows();
}

}  // namespace

TEST_CASE("former names: each belongs to a registered entry, which is listed by its current name") {
  for (const FormerName& name : former_metrics()) {
    CAPTURE(name.former);
    const std::string former(name.former), current(name.current);
    if (current == "step_ms") continue;  // every run logs it
    const ModelMetric* const figure = model_metrics().find(former);
    const Analysis* const look = analyses().find(former);
    REQUIRE((figure != nullptr) != (look != nullptr));
    CHECK((figure ? figure->name : look->name) == current);
    for (const std::vector<std::string>& listed : {model_metrics().names(), analyses().names()})
      CHECK(std::find(listed.begin(), listed.end(), former) == listed.end());
  }
  for (const FormerName& name : former_presets()) {
    CAPTURE(name.former);
    const std::string former(name.former), current(name.current);
    CHECK(named_model(former).name == current);
    const std::vector<std::string> listed = presets().names();
    CHECK(std::find(listed.begin(), listed.end(), former) == listed.end());
    const TrainSettings by_former = make_settings({{"model", former}}),
                        by_current = make_settings({{"model", current}});
    CHECK(list_settings(by_former) == list_settings(by_current));
    CHECK(by_former.model == current);
  }
  CHECK(select_metrics("attention_zeros, top_share") == select_metrics("attention_zero_fraction, top_unit_fraction"));
  CHECK(make_settings({{"figures", "largest_score,loss"}}).metrics == "max_score,loss");
}

TEST_CASE("former names: texts with metrics are read and hashed by either name") {
  const std::string former = "ratio(mean(top_share/*), max(causes/without/blocks.0.depth))",
                    current = "ratio(mean(top_unit_fraction/*), max(ablation/without/blocks.0.depth))";
  CHECK(with_current_metrics(former) == current);
  CHECK(with_current_metrics(current) == current);
  CHECK(with_former_metrics(current) == former);
  CHECK(with_current_metrics("curves_of/x, my_depth, loss/memories") == "curves_of/x, my_depth, loss/memories");
  CHECK(print(parse_metric("claim", former)) == current);
  CHECK(matches_metric("hidden_z*/blocks.0.*", "hidden_zero_fraction/blocks.0.feed_forward"));
  CHECK(matches_metric("hidden_zeros*", "hidden_zero_fraction/blocks.0.feed_forward"));
  CHECK(!matches_metric("hidden_zeros/blocks.1.*", "hidden_zero_fraction/blocks.0.feed_forward"));
}

TEST_CASE("former names: the rows of an old log equal those of a log with current names") {
  const Folder folder;
  const std::string renamed = replaced(
      replaced(replaced(replaced(old_rows, "milliseconds", "step_ms"), "attention_zeros", "attention_zero_fraction"),
               "largest_score", "max_score"),
      "top_share", "top_unit_fraction");
  const std::vector<LogRow> current = rows_of(folder, renamed);
  REQUIRE(current.size() == 3);
  CHECK(current[1].metrics.at("step_ms") == 20);
  for (const std::string& log :
       {old_rows, replaced(old_rows, ":", ": ")}) {  // written by a run, and by another program
    const std::vector<LogRow> rows = rows_of(folder, log);
    REQUIRE(rows.size() == 3);
    for (size_t i = 0; i < 3; ++i) CHECK(rows[i].metrics == current[i].metrics);
  }
  // A resumed run continues an old log with the current names.
  const size_t second = old_rows.find('\n') + 1;
  const std::vector<LogRow> resumed =
      rows_of(folder, old_rows.substr(0, second) + renamed.substr(renamed.find('\n') + 1));
  for (size_t i = 0; i < 3; ++i) CHECK(resumed[i].metrics == current[i].metrics);
  const std::vector<std::string> names = metric_names(resumed);
  CHECK(matching_metrics("metrics", names, "largest_score/*,milliseconds") ==
        std::vector<std::string>{"max_score/blocks.0.attention", "step_ms"});
  CHECK(measure(parse_metric("claim", "first(mean(attention_zeros/*))"), resumed, 0) == 0.25);
  CHECK(outcome_of(resumed).seconds == outcome_of(current).seconds);
  CHECK(outcome_of(resumed).seconds > 0);
}

TEST_CASE("former names: an analysis by its former name returns the same views") {
  const auto model = small_gpt({});
  const auto inspected = example_of(*model);
  const std::vector<View> former = analyze(*inspected, "depth, causes", {}),
                          current = analyze(*inspected, "logit_lens, ablation", {});
  REQUIRE(former.size() == current.size());
  CHECK(metrics_of(former) == metrics_of(current));
  CHECK(metrics_of(former).contains("ablation/loss"));
}

TEST_CASE("former names: the values of an old probe.json get their current names") {
  const Folder folder;
  const std::string value = R"("mean_square": 1, "gradient": 2})";
  write_file_atomically(folder / "probe.json", R"({"format": "orrery probe 1", "values": [
      {"name": "blocks.0.attention.read", )" + value +
                                                   R"(, {"name": "blocks.0.feed_forward.hidden_before", )" + value +
                                                   R"(], "ratios": [{"place": "blocks.0.attention",
      "ratio": "read / value", "measured": 1, "predicted": 1, "formula": "e / n", "v": 1}]})");
  const SignalPropagation propagation = read_propagation(folder / "probe.json");
  CHECK(propagation.find("blocks.0.attention.head_output") != nullptr);
  CHECK(propagation.find("blocks.0.feed_forward.pre_activation") != nullptr);
  REQUIRE(propagation.ratios.size() == 1);
  CHECK(propagation.ratios[0].ratio == "head_output / value");
}
