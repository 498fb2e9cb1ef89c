// Files of a run besides its tensors: state.json and metrics.jsonl.
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>

#include "engine/system/files.h"
#include "engine/system/hash.h"
#include "models/data/tokenizer.h"
#include "models/training/checkpoint.h"
#include "models/training/metrics_log.h"
#include "models/training/settings.h"
#include "tests/fuzz/format.h"

namespace {

using namespace fuzz;
using Json = nlohmann::json;

// Calls f. An Error is accepted; other exceptions propagate.
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
  put(checkpoint + "/state.json", bytes);
  const orrery::models::CheckpointState state = orrery::models::read_state(checkpoint);
  const Json independent = Json::parse(bytes);
  promise(independent["step"].is_number_unsigned() && independent["step"] == state.step,
          "its step is read as another one");
  promise(state.step >= 0, "a negative step is accepted");
  may_refuse([&] { orrery::models::make_settings(state.settings); });
  may_refuse([&] { orrery::models::restore_tokenizer(state.tokenizer); });
}

// Changes one value and corrects the hash of the file, so that code behind that check is reached.
std::string with_right_hash(std::string_view bytes, Random& random) {
  auto json = nlohmann::ordered_json::parse(bytes, nullptr, false);
  if (!json.is_object() || json.empty()) return std::string(bytes);
  nlohmann::ordered_json* node = &json;
  while (node->is_object() && !node->empty() && (node == &json || random.one_in(2))) {
    auto member = node->begin();
    std::advance(member, static_cast<int64_t>(random.below(node->size())));
    node = &*member;
  }
  const nlohmann::ordered_json values[] = {nullptr, -1, 5.7, "", "1", INT64_MAX, 1e300, true, {{"bytes", "ff0"}},
                                           {1, 2}};
  *node = values[random.below(std::size(values))];
  json.erase("sha256");
  const std::string whole = json.dump();
  json["sha256"] = orrery::sha256(std::as_bytes(std::span(whole)));
  return json.dump(2) + "\n";
}

REGISTER_FORMAT(state, {.name = "state",
                        .readers = {"models/training/checkpoint.cpp", "models/training/run_folder.cpp",
                                    "models/formats/json.cpp"},
                        .read = read_state,
                        .memory_multiple = 256,
                        .memory_base = 1 << 22,
                        .words = json_words({"\\u0000", "\\ud800", "\"step\":", "\"name\":", "{\"a\":", "[["}),
                        .mutate = with_right_hash});

void read_metrics(const std::string& folder, std::string_view bytes) {
  const std::string path = folder + "/metrics.jsonl";
  put(path, bytes);
  { const orrery::models::MetricsLog opened(folder, 5); }
  const std::string kept = orrery::read_file(path);
  std::istringstream lines(kept);
  for (std::string line; std::getline(lines, line);) {
    const Json row = Json::parse(line, nullptr, false);
    promise(row.is_object() && row.contains("step"), "an invalid row was kept");
  }
  { const orrery::models::MetricsLog opened(folder, 5); }
  promise(orrery::read_file(path) == kept, "reopening the log changes its rows");
}

REGISTER_FORMAT(metrics, {.name = "metrics",
                          .readers = {"models/training/metrics_log.cpp", "models/formats/json.cpp"},
                          .read = read_metrics,
                          .memory_multiple = 256,
                          .memory_base = 1 << 20,
                          .words = json_words({"\\u0000", "\\ud800", "\"step\":", "\"name\":", "{\"a\":", "[["})});

}  // namespace
