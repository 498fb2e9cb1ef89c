// The files that --nan_guard=yes writes next to a step, for `orrery replay`.
#include "engine/types/check.h"
#include "models/training/replay.h"
#include "tests/fuzz/format.h"

namespace {

using namespace fuzz;
using orrery::models::Finding;

void read_found(const std::string& folder, std::string_view bytes) {
  put(folder + "/found.json", bytes);
  const Finding finding = orrery::models::read_finding(folder);
  const auto& call = finding.call;
  promise(finding.step >= 0 && call.found < call.made.size(), "it points at nothing");
  const orrery::NumberFacts& facts = call.made[call.found].facts;
  promise(facts.not_finite() > 0 && facts.first >= 0 && facts.first < facts.shape.numel(), "it has found nothing");
  promise(!sentence(finding).empty(), "it says nothing");
  orrery::models::write_finding(folder, finding);
  const Finding again = orrery::models::read_finding(folder);
  promise(again.step == finding.step && again.validating == finding.validating && again.call == call,
          "written and read again it is another finding");
}

REGISTER_FORMAT(finding, {.name = "finding",
                          .readers = {"models/training/replay.cpp", "models/formats/json.cpp"},
                          .read = read_found,
                          .memory_multiple = 256,
                          .memory_base = 1 << 20,
                          .words = json_words({"576460752303423488", "\"f32\"", "\"i32\"", "\"shape\":[",
                                               "\"nan\":", "\"inf\":", "\"-inf\":", "\"first\":", "\"smallest\":",
                                               "\"largest\":", "\"validation\"", "\"found\":"})});

}  // namespace
