#include "models/reports/report_signal_propagation.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/system/files.h"
#include "models/training/signal_propagation.h"

namespace orrery::models {
namespace {

constexpr const char* group = "Before the first step";

Json table(const std::vector<std::string>& columns, const std::vector<std::vector<std::string>>& rows,
           size_t text_columns, size_t last_text_columns = 0) {
  Json names = Json::array();
  for (size_t i = 0; i < columns.size(); ++i) {
    const bool is_text = i < text_columns || i == last_text_columns;
    names.push_back({{"name", columns[i]}, {"align", is_text ? "left" : "right"}});
  }
  return {{"columns", names}, {"rows", rows}, {"marked", Json::array()}};
}

void add_signal_propagation(Json& sections, const std::string& name, const SignalPropagation& propagation) {
  Json bars = Json::array();
  std::vector<std::vector<std::string>> stream, ratios;
  for (const ResidualRow& step : residual_rows(propagation)) {
    stream.push_back(cells(step));
    if (std::isfinite(step.after->mean_square) && step.after->mean_square >= 0 && !step.path.ends_with("logits"))
      bars.push_back({{"name", step.path},
                      {"value", std::sqrt(step.after->mean_square)},
                      {"low", nullptr},
                      {"high", nullptr},
                      {"note", "gradient " + cell(std::sqrt(step.after->gradient))}});
  }
  for (const SignalPropagation::Ratio& r : propagation.ratios) ratios.push_back(cells(r));
  sections.push_back(report_section(group, "bars", name + ": residual stream after each sublayer",
                                    "Root mean squares of the values, and of the gradients of the loss there.",
                                    {{"quantity", "root mean square"}, {"rows", bars}}));
  sections.push_back(report_section(
      group, "table", name + ": mean squares before and after each sublayer",
      "Mean squares of the residual stream before and after, of the sublayer's output, and of the gradients there.",
      table({"module", "before", "output", "after", "gradient before", "gradient of output", "gradient after"}, stream,
            1)));
  sections.push_back(report_section(
      group, "table", name + ": measured and predicted ratios",
      "Ratios of mean squares. Predictions assume independent values of mean zero and scores N(0, v).",
      table({"module", "ratio", "measured", "predicted", "quotient", "formula", "v"}, ratios, 2, 5)));
}

}  // namespace

void add_signal_propagation(Json& sections, std::span<const ReportedRun> runs) {
  for (const ReportedRun& run : runs) {
    const size_t first = sections.size();
    const std::string file = signal_propagation_to_read(run.folder);
    if (!file_exists(file)) continue;
    try {
      add_signal_propagation(sections, run.name, read_propagation(file));
    } catch (const Error& error) {
      sections.push_back(
          report_section(group, "text", run.name, "", {{"items", {{{"name", "read error"}, {"text", error.what()}}}}}));
    }
    for (size_t i = first; i < sections.size() && runs.size() > 1; ++i) sections[i]["run"] = &run - runs.data();
  }
}

}  // namespace orrery::models
