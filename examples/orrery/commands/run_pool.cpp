#include "examples/orrery/commands/run_pool.h"

#include <sys/wait.h>

#include <csignal>
#include <deque>
#include <filesystem>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "engine/system/files.h"
#include "engine/system/folder_lock.h"
#include "engine/system/folders.h"
#include "engine/system/parallel.h"
#include "engine/system/subprocess.h"
#include "engine/types/check.h"
#include "examples/orrery/commands/commands.h"
#include "models/catalogue/plugins.h"
#include "models/settings/settings_file.h"
#include "models/study/pool.h"
#include "models/training/not_finite.h"
#include "models/training/run_folder.h"

namespace orrery::program {
namespace {

using models::Outcome;

// Lock on a run in training. The run's process holds it too, so that no other program starts the
// run while that process saves and ends.
FileLock lock_of(const std::string& folder, const std::string& id, const std::string& command) {
  return FileLock(folder + "/" + id + ".lock", {command, "--runs"});
}

struct Running {
  const PooledRun* run;
  FileLock lock;
  std::unique_ptr<Subprocess> child;
};

class Pool {
 public:
  Pool(const PoolOptions& options, const PoolEvents& events) : options_(options), events_(events) {
    make_folders(options.folder);
    for (const std::string& id : options.retrain ? std::vector<std::string>() : models::unfinished_runs(options.folder))
      unfinished_[models::hash_of_id(id)].push_back(id);
  }

  bool train(const std::vector<PooledRun>& runs) {
    std::set<std::string> known;
    for (const PooledRun& run : runs)
      if (known.insert(run.id).second) waiting_.push_back(&run);
    const size_t cores = static_cast<size_t>(thread_count());
    const size_t at_once = std::min(options_.parallel ? static_cast<size_t>(options_.parallel) : cores,
                                    std::max<size_t>(1, waiting_.size()));
    threads_ = std::max<size_t>(1, cores / at_once);
    try {
      return train_waiting(at_once);
    } catch (...) {
      stop();  // stops all before it waits for them
      throw;
    }
  }

 private:
  std::string path(const std::string& id, const char* end) const { return options_.folder + "/" + id + end; }

  void stop() {
    stopped_ = true;
    for (Running& each : running_) each.child->stop();
  }

  bool train_waiting(size_t at_once) {
    const auto end = [&] { return events_.stop && events_.stop(); };
    while (!running_.empty() || (!waiting_.empty() && !stopped_)) {
      if (!stopped_ && end()) stop();
      // Checks end() before each start, because a known outcome may stop the pool.
      for (size_t tries = waiting_.size(); !end() && tries > 0 && running_.size() < at_once; --tries) begin_next();
      collect();
      if (busy_ && running_.empty() && !std::exchange(warned_, true))
        events_.warning(text(path(busy_->id, ""), " is in use by another program; waiting until it ends; its log ",
                             path(busy_->id, ".log"), " names the host"));
      if (events_.tick) events_.tick(running_.size());
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return !stopped_;
  }

  // A run that another program trains moves to the end of the queue.
  void begin_next() {
    const PooledRun* const run = waiting_.front();
    waiting_.pop_front();
    FileLock lock = lock_of(options_.folder, run->id, options_.command);
    if (!lock.held()) {
      waiting_.push_back(busy_ = run);
      return;
    }
    const std::string folder = path(run->id, "");
    const std::optional<Outcome> known = known_outcome(*run);
    if (known && known->kind != Outcome::Kind::failed) {
      events_.ended(*run, *known);
      return;
    }
    const bool resume = models::can_resume(folder);
    if (!resume && models::holds_checkpoints(folder))
      events_.warning(text(folder, " has no intact checkpoint with an optimizer state; the run starts again"));
    if (!resume) warn_about_unfinished(run->id);
    if (!resume) remove_with_contents(folder);
    const std::string file = path(run->id, ".toml"), log = path(run->id, ".log");
    models::TrainSettings settings = run->settings;
    settings.out = folder, settings.threads = static_cast<int64_t>(threads_);
    settings.resume = settings.resume_from_previous = resume;
    models::write_settings_file(file, list_settings(settings), models::plugins_of(settings));
    auto child = std::make_unique<Subprocess>(options_.command, models::with_plugins({"train", "--config=" + file}),
                                              log, lock.descriptor());
    running_.push_back({run, std::move(lock), std::move(child)});
  }

  // An interrupted run of other sources cannot be resumed: its results would mix both programs'.
  void warn_about_unfinished(const std::string& id) const {
    const auto found = unfinished_.find(models::hash_of_id(id));
    if (found == unfinished_.end() || file_exists(path(id, ""))) return;
    for (const std::string& other : found->second)
      if (other != id)
        events_.warning(text("the run ", path(other, ""),
                             " of another program version was interrupted and is not resumed; ", path(id, ""),
                             " starts it again"));
  }

  // Returns the outcome of a run that need not be repeated; otherwise removes its files.
  std::optional<Outcome> known_outcome(const PooledRun& run) const {
    const std::string outcome_file = path(run.id, ".json"), folder = path(run.id, "");
    bool again = options_.retrain;
    if (!again) try {
        const std::optional<Outcome> known = models::read_outcome(outcome_file);
        if (known && known->kind != Outcome::Kind::failed && options_.check_files) options_.check_files(folder, *known);
        if (known && known->kind == Outcome::Kind::failed) remove_with_contents(outcome_file);
        return known;
      } catch (const Error& error) {
        events_.warning(text(error.what(), "; the run ", folder, " is trained again"));
      }
    for (const std::string& old : {outcome_file, folder}) remove_with_contents(old);
    return {};
  }

  void collect() {
    for (auto each = running_.begin(); each != running_.end();) {
      const std::optional<int> status = each->child->poll();
      if (!status) {
        ++each;
        continue;
      }
      const PooledRun& run = *each->run;
      // Interrupted by this program; a run that was killed from outside has failed.
      const bool interrupted =
          stopped_ && ((WIFEXITED(*status) && WEXITSTATUS(*status) > 128) ||
                       (WIFSIGNALED(*status) && WTERMSIG(*status) == SIGTERM));  // before it handled signals
      std::optional<Outcome> outcome;
      if (!interrupted) models::write_outcome(path(run.id, ".json"), *(outcome = outcome_for(run, *status)));
      each = running_.erase(each);
      if (outcome) events_.ended(run, *outcome);
    }
  }

  // A run that ends worse than a uniform guess is complete too, with its loss.
  Outcome outcome_for(const PooledRun& run, int status) const {
    const bool finished = status == 0 || (WIFEXITED(status) && WEXITSTATUS(status) == worse_than_uniform);
    Outcome outcome;
    outcome.version = models::program_version();
    const std::string folder = path(run.id, "");
    try {
      if (file_exists(folder + "/metrics.jsonl")) outcome = models::outcome_of(models::RunLog::of_run(folder));
    } catch (const Error& error) {
      outcome.why = error.what();
    }
    if (finished) {
      // All its steps are done: resuming would not add the missing log rows.
      if (outcome.kind == Outcome::Kind::failed) remove_with_contents(folder);
      return outcome;
    }
    // Its rows may resemble a diverged run's, but it ended for another reason.
    outcome.kind = Outcome::Kind::failed, outcome.why = failure_of(status, path(run.id, ".log"));
    if (const auto step = models::step_not_finite(outcome.why); step && WIFEXITED(status))
      outcome.kind = Outcome::Kind::diverged, outcome.step = *step;
    return outcome;
  }

  const PoolOptions& options_;
  const PoolEvents& events_;
  std::deque<const PooledRun*> waiting_;
  std::list<Running> running_;
  std::map<std::string, std::vector<std::string>> unfinished_;  // hash_of_id -> ids without an outcome
  size_t threads_ = 1;
  const PooledRun* busy_ = nullptr;  // the last run that another program trains
  bool stopped_ = false;
  bool warned_ = false;  // the warning was printed
};

}  // namespace

bool train_pool(const std::vector<PooledRun>& runs, const PoolOptions& options, const PoolEvents& events) {
  return Pool(options, events).train(runs);
}

std::string run_in_training(const std::string& folder) {
  if (!folder_exists(folder)) return "";
  const std::string end = ".lock";
  for (const std::string& path : files_in(folder))
    if (path.ends_with(end) && !FileLock(path, {"study", "--runs"}).held())
      return std::filesystem::path(path).stem().string();
  return "";
}

}  // namespace orrery::program
