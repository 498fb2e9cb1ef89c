// What a run leaves beside its tensors: state.json and metrics.jsonl.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/base/files.h"
#include "models/data/tokenizer.h"
#include "models/training/checkpoint.h"
#include "models/training/metrics.h"
#include "models/training/settings.h"
#include "tests/fuzz/format.h"

namespace {

using namespace fuzz;
using Json = nlohmann::json;

// An Error is a good answer as well; anything else goes on.
template <class F>
void may_refuse(const F& f) {
  try {
    f();
  } catch (const orrery::Error&) {
  }
}

void read_state(const std::string& folder, std::string_view bytes) {
  const std::string checkpoint = folder + "/step_000001";
  std::filesystem::create_directory(checkpoint);
  orrery::write_file_atomically(checkpoint + "/state.json", bytes);
  const orrery::models::CheckpointState state = orrery::models::read_state(checkpoint);
  const Json witness = Json::parse(bytes);
  promise(witness["step"].is_number_unsigned() && witness["step"] == state.step, "its step is read as another one");
  promise(state.step >= 0, "a step below 0 is taken");
  may_refuse([&] { orrery::models::make_settings(state.settings); });
  may_refuse([&] { orrery::models::restore_tokenizer(state.tokenizer); });
}

const std::vector<std::string> json_words = {"{",         "}",         "[",       "]",     ",",       ":",
                                             "\"",        "null",      "true",    "1e300", "\\u0000", "\\ud800",
                                             "\"step\":", "\"name\":", "{\"a\":", "[["};

REGISTER_FORMAT(state, {.name = "state",
                        .readers = {"models/training/checkpoint.cpp"},
                        .read = read_state,
                        .memory_multiple = 256,
                        .memory_base = 1 << 22,
                        .words = json_words});

void read_metrics(const std::string& folder, std::string_view bytes) {
  const std::string path = folder + "/metrics.jsonl";
  orrery::write_file_atomically(path, bytes);
  { const orrery::models::Metrics opened(folder, 5); }
  const std::string kept = orrery::read_file(path);
  std::istringstream lines(kept);
  for (std::string line; std::getline(lines, line);) {
    const Json row = Json::parse(line, nullptr, false);
    promise(row.is_object() && row.contains("step"), "a row that is none was kept");
  }
  { const orrery::models::Metrics opened(folder, 5); }
  promise(orrery::read_file(path) == kept, "opened again it keeps other rows");
}

REGISTER_FORMAT(metrics, {.name = "metrics",
                          .readers = {"models/training/metrics.cpp"},
                          .read = read_metrics,
                          .memory_multiple = 256,
                          .memory_base = 1 << 20,
                          .words = json_words});

}  // namespace
