// Claims about time: variants alternate, a few training steps each, on an otherwise idle machine.
#include <algorithm>
#include <filesystem>
#include <memory>

#include "engine/system/files.h"
#include "engine/system/folder_lock.h"
#include "engine/system/folders.h"
#include "engine/system/parallel.h"
#include "engine/system/signals.h"
#include "engine/types/check.h"
#include "engine/types/format.h"
#include "examples/orrery/commands/study_runs.h"
#include "examples/orrery/terminal/messages.h"
#include "examples/orrery/terminal/process_io.h"
#include "examples/orrery/terminal/progress.h"
#include "models/study/run_contents.h"
#include "models/study/statistics.h"
#include "models/training/trainer.h"

namespace orrery::program {
namespace {

using models::Claim;
namespace fs = std::filesystem;

struct TimedVariant {  // training of one variant at one swept value
  size_t variant, swept;
  std::unique_ptr<models::Trainer> trainer;
};

struct TemporaryFolder {  // removes the folder and its content
  std::string folder;
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
};

constexpr const char* timing_mark = "/removed_by_study";  // marks a folder that a study created and removes

// Throws if the folder contains anything other than the remains of a killed time measurement.
void check_removable(const std::string& folder) {
  if (!folder_exists(folder)) return;
  const std::string mark = folder + timing_mark;
  for (const std::string& left : files_in(folder)) {
    const bool numbered = fs::path(left).filename().string().find_first_not_of("0123456789") == std::string::npos;
    check(file_exists(mark) && (left == mark || numbered), "study: ", left,
          " was not written by a time measurement, and its folder ", folder,
          " would be removed; choose another --out, or move the file");
  }
}

void check_alone(const std::string& pool) {
  const std::string busy = run_in_training(pool);
  check(busy.empty(), "study: another program is training ", pool, "/", busy,
        ", and time must be measured alone; wait until it ends");
}

// Returns the median step time of a turn in ms. Ends like an interrupted run, without a validation.
double time_steps(models::Trainer& trainer, int64_t steps, const StopSignals& signals) {
  if (trainer.settings().threads > 0) set_thread_count(static_cast<int>(trainer.settings().threads));
  const int64_t end = trainer.steps_done() + steps;
  std::vector<double> milliseconds;
  models::TrainingEvents events;
  events.step = [&](const models::StepReport& report) { milliseconds.push_back(report.milliseconds); };
  events.stop = [&] { return trainer.steps_done() >= end || signals.received() != 0; };
  trainer.run(events);
  return milliseconds.empty() ? 0 : models::median_of(milliseconds);
}

}  // namespace

StudyRuns time_claim(const Claim& claim, const std::string& folder, const std::string& pool, const std::string& data) {
  check_alone(pool);
  make_folders(pool);
  const FolderLock alone(pool + "/timed", {"study", ""});  // another timed study waits for this one
  check_removable(folder);
  const TemporaryFolder work{folder};
  remove_with_contents(folder);
  make_folders(folder);
  write_file_atomically(folder + timing_mark, "A study times runs here, and removes this folder.\n");
  StudyRuns studied;
  auto& all = studied.measured.values;
  all.assign(claim.metrics.size(), {});
  for (auto& each : all) each.resize(claim.variants.size());
  std::vector<TimedVariant> timed;
  for (size_t v = 0; v < claim.variants.size(); ++v)
    for (size_t s = 0; s < claim.swept_values(); ++s) {
      for (auto& each : all) each[v].emplace_back();
      models::TrainSettings settings = settings_of_study(claim, claim.variants[v], s, claim.seeds[0], 0, data);
      settings.out = folder + "/" + std::to_string(timed.size());
      settings.steps = (claim.rounds + 1) * claim.round_steps + 1;  // the run never completes
      settings.evaluate_every = settings.checkpoint_every = 0;
      settings.save_optimizer = settings.keep_best = false, settings.keep_checkpoints = 1;
      settings.metrics = "none";
      if (!timed.empty())
        check(settings.precision == timed[0].trainer->settings().precision, claim.path,
              ": precision must be the same for all variants of a timed claim; compare precisions in two studies");
      timed.push_back({v, s, std::make_unique<models::Trainer>(settings)});
    }
  const StopSignals signals;
  Progress progress("timing");
  for (int64_t round = -1; round < claim.rounds; ++round) {  // round -1 is a warm-up
    check_alone(pool);                                       // another program may have started training
    std::vector<double> medians;
    for (TimedVariant& each : timed) {
      const double median = time_steps(*each.trainer, claim.round_steps, signals);
      if (signals.received() != 0) {
        studied.signal = signals.received();
        return studied;
      }
      studied.minutes += median * static_cast<double>(claim.round_steps) / 60'000;
      medians.push_back(median);
      if (round < 0) continue;
      const models::RunLog row = {{round, {{"step_ms", median}}}};
      for (size_t m = 0; m < all.size(); ++m)
        all[m][each.variant][each.swept].emplace_back(
            models::measure(claim.metrics[m], row, claim.swept_number(each.swept)));
    }
    progress.fraction("timed", static_cast<double>(round + 1) / static_cast<double>(claim.rounds));
    if (round < 0) continue;
    std::string line = text("round ", round + 1, " of ", claim.rounds);
    for (size_t i = 0; i < timed.size(); ++i)
      line += text(i == 0 ? ": " : ", ", label_of(claim, claim.variants[timed[i].variant], timed[i].swept), " ",
                   fixed(medians[i], 2), " ms");
    print_message(line);
  }
  return studied;
}

}  // namespace orrery::program
