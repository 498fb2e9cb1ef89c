// signal_propagation.json: --signal_propagation=yes writes it to a run folder; a report reads it.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "models/reports/report_signal_propagation.h"
#include "models/training/signal_propagation.h"
#include "tests/fuzz/format.h"

namespace {

using namespace fuzz;
using orrery::models::SignalPropagation;

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

void read_propagation(const std::string& folder, std::string_view bytes) {
  const std::string file = orrery::models::propagation_file(folder);
  put(file, bytes);
  const SignalPropagation propagation = orrery::models::read_propagation(file);
  for (const auto& step : residual_rows(propagation))
    promise(step.after != nullptr, "a step of the residual stream without a successor");
  orrery::models::ReportedRun run;
  run.folder = folder, run.name = "run";
  orrery::models::Json sections = orrery::models::Json::array();
  orrery::models::add_signal_propagation(sections, {&run, 1});
  promise(sections.size() == 3, "a report without its three sections");
  for (const auto& section : sections)
    if (section.at("kind") == "table")
      for (const auto& row : section.at("data").at("rows"))
        promise(row.size() == section.at("data").at("columns").size(), "a row without a cell for each column");

  orrery::models::write_propagation(file, propagation);
  const SignalPropagation again = orrery::models::read_propagation(file);
  promise(again.values.size() == propagation.values.size() && again.ratios.size() == propagation.ratios.size() &&
              std::equal(again.values.begin(), again.values.end(), propagation.values.begin(),
                         [](const SignalPropagation::Value& a, const SignalPropagation::Value& b) {
                           return a.name == b.name && same(a.mean_square, b.mean_square) &&
                                  same(a.gradient, b.gradient);
                         }) &&
              std::equal(again.ratios.begin(), again.ratios.end(), propagation.ratios.begin(),
                         [](const SignalPropagation::Ratio& a, const SignalPropagation::Ratio& b) {
                           return a.path == b.path && a.ratio == b.ratio && same(a.measured, b.measured) &&
                                  same(a.predicted, b.predicted) && a.formula == b.formula && same(a.v, b.v);
                         }),
          "a written signal propagation is read back differently");
}

REGISTER_FORMAT(signal_propagation,
                {.name = "signal_propagation",
                 .readers = {"models/training/signal_propagation_file.cpp", "models/formats/json.cpp"},
                 .read = read_propagation,
                 .memory_multiple = 1024,
                 .memory_base = 4 << 20,
                 .words = json_words({"\"orrery probe 1\"", "\"values\":[", "\"ratios\":[", "\"name\":",
                                      "\"mean_square\":", "\"gradient\":", "null", ".residual\"", ".stream\"",
                                      "\"embedding\"", "\"logits\"", "1e300", "-1", "\"v\":"})});

}  // namespace
