// Small runs of orrery train, and their files.
#pragma once

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/examples/program.h"

inline const std::string shakespeare = ORRERY_SOURCE_DIR "/examples/data/tinyshakespeare.txt";

inline std::vector<std::string> train_tiny(const Folder& folder, const std::string& out,
                                           const std::vector<std::string>& more = {}) {
  return std::vector<std::string>{"train", "--data=" + folder.write("text.txt", tiny_text()),
                                  "--out=" + (folder / out)} +
         tiny + more;
}
inline std::string weights(const std::string& checkpoint) { return read_file(checkpoint + "/weights.safetensors"); }

// Returns the rows of metrics.jsonl without times.
inline std::vector<std::string> metrics(const std::string& run) {
  std::vector<std::string> rows;
  std::istringstream lines(read_file(run + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    nlohmann::ordered_json row = nlohmann::ordered_json::parse(line);
    row.erase("step_ms"), row.erase("tokens_per_second");
    rows.push_back(row.dump());
  }
  return rows;
}
