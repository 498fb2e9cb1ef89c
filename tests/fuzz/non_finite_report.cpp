// The files that --nan_guard=yes writes next to a step, for `orrery replay`.
#include "engine/types/check.h"
#include "models/training/replay.h"
#include "tests/fuzz/format.h"

namespace {

using namespace fuzz;
using orrery::models::NonFiniteReport;

void read_found(const std::string& folder, std::string_view bytes) {
  put(folder + "/found.json", bytes);
  const NonFiniteReport report = orrery::models::read_report(folder);
  const auto& call = report.call;
  promise(report.step >= 0 && call.first_non_finite < call.outputs.size(), "an invalid step or output index");
  const orrery::TensorStats& stats = call.outputs[call.first_non_finite].stats;
  promise(stats.non_finite() > 0 && stats.first >= 0 && stats.first < stats.shape.numel(),
          "a report without a non-finite value");
  promise(!message(report).empty(), "a report without a message");
  orrery::models::write_report(folder, report);
  const NonFiniteReport again = orrery::models::read_report(folder);
  promise(again.step == report.step && again.validating == report.validating && again.call == call,
          "a written report is read back differently");
}

REGISTER_FORMAT(non_finite_report,
                {.name = "non_finite_report",
                 .readers = {"models/training/replay.cpp", "models/formats/json.cpp"},
                 .read = read_found,
                 .memory_multiple = 256,
                 .memory_base = 1 << 20,
                 .words = json_words({"576460752303423488", "\"f32\"", "\"i32\"", "\"shape\":[", "\"nan\":", "\"inf\":",
                                      "\"-inf\":", "\"first\":", "\"smallest\":", "\"largest\":", "\"validation\"",
                                      "\"found\":"})});

}  // namespace
