// Claims of a small model for tests of orrery study.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tests/examples/program.h"

// Returns a claim with what all claims here share: a model that trains almost instantly.
inline std::string claim_text(const Folder& folder, const std::string& head, const std::string& rest = "") {
  return "source = \"a test\"\nsentence = \"Two variants differ.\"\n" + head + "\n[base]\ndata = \"" +
         folder.write("text.txt", tiny_text()) +
         "\"\nlayers = 1\nheads = 2\nwidth = 16\ncontext = 8\nbatch = 2\nsteps = 4\nwarmup_steps = 1\n" + rest;
}
inline const std::string trained = "kind = \"trained\"\nseeds = [1, 2, 3]\nmetric = \"validation_loss\"\n";
inline const std::string two = "[variants.relu]\nattention = \"pointwise(relu)\"\n[variants.softmax]\n";

inline Outcome run_study(const Folder& folder, const std::string& text, const std::vector<std::string>& more = {}) {
  const std::string file = folder.write("claim.toml", text);
  return run_orrery(
      std::vector<std::string>{"study", file, "--out=" + (folder / "study"), "--runs=" + (folder / "pool")} + more);
}
nlohmann::json verdict_in(const std::string& folder);
inline std::map<std::string, std::filesystem::file_time_type> written_runs(const std::string& pool) {
  std::map<std::string, std::filesystem::file_time_type> all;
  for (const auto& entry : std::filesystem::directory_iterator(pool))
    if (entry.is_directory() && std::filesystem::exists(entry.path() / "metrics.jsonl"))
      all[entry.path().filename()] = std::filesystem::last_write_time(entry.path() / "metrics.jsonl");
  return all;
}
