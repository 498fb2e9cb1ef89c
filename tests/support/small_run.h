// Short training runs of a tiny model, for tests of the files in a run folder.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "models/training/trainer.h"
#include "tests/support/errors.h"
#include "tests/support/folder.h"
#include "tests/support/small_text.h"
#include "tests/support/text.h"

namespace orrery::testing {

// Applies file permissions while it exists, also for root.
struct Unprivileged {
  Unprivileged() { REQUIRE((::geteuid() != 0 || ::seteuid(65534) == 0)); }
  ~Unprivileged() { CHECK(::seteuid(::getuid()) == 0); }
};

// A run in `out` in a temporary folder.
struct Run {
  Folder folder;
  std::string text = write_small_text(folder), out;
  explicit Run(const std::string& name = "run") : out(folder / name) {}

  models::TrainSettings settings(const Assignments& more = {}) const {
    Assignments all = {{"data", text},
                       {"out", out},
                       {"layers", "1"},
                       {"heads", "2"},
                       {"width", "8"},
                       {"batch_size", "2"},
                       {"context", "8"},
                       {"evaluate_every", "0"},
                       {"checkpoint_every", "2"},
                       {"steps", "6"},
                       {"schedule", "constant"}};
    all.insert(all.end(), more.begin(), more.end());
    return models::make_settings(all);
  }
  models::TrainingResult train(const Assignments& more = {}, const models::TrainingEvents& events = {}) const {
    return models::Trainer(settings(more)).run(events);
  }
  models::TrainingResult resume(Assignments more = {}, const models::TrainingEvents& events = {}) const {
    more.insert(more.begin(), {{"resume", "yes"}, {"steps", "8"}});
    return train(more, events);
  }
  std::string resume_error(const Assignments& more = {}) const {
    return error_of([&] { resume(more); });
  }
  std::string checkpoint(int step) const { return out + "/step_00000" + std::to_string(step); }
};

inline void write(const std::string& path, const std::string& content) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << content;
}
inline std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

}  // namespace orrery::testing
