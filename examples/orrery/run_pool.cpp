#include "examples/orrery/run_pool.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "engine/base/check.h"
#include "engine/base/files.h"
#include "engine/base/parallel.h"
#include "engine/base/version.h"
#include "examples/orrery/child.h"
#include "models/settings_file.h"
#include "models/study/plugins.h"
#include "models/training/run_folder.h"

namespace orrery::program {
namespace {

using models::Outcome;

// Holds pool/KEY.lock while a run is trained.  The run's process holds it too, so that one that outlives this program
// is not begun a second time.
class Claim {
 public:
  explicit Claim(const std::string& path) : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    check(file_.number() >= 0, "sweep: cannot write ", path, ": ", std::strerror(errno));
    held_ = ::flock(file_.number(), LOCK_EX | LOCK_NB) == 0;
  }
  bool held() const { return held_; }
  int descriptor() const { return file_.number(); }

 private:
  Descriptor file_;
  bool held_ = false;
};

struct Running {
  const PooledRun* run;
  std::unique_ptr<Claim> claim;
};

// The number behind the next " step " of a sentence.
std::optional<int64_t> step_in(const std::string& sentence, size_t from) {
  const std::string word = " step ";
  const size_t at = sentence.find(word, from);
  if (at == std::string::npos) return {};
  int64_t step = 0;
  const char* const digits = sentence.data() + at + word.size();
  const auto read = std::from_chars(digits, sentence.data() + sentence.size(), step);
  return read.ec == std::errc() ? std::optional(step) : std::nullopt;
}

class Pool {
 public:
  Pool(const PoolOptions& options, const PoolEvents& events) : options_(options), events_(events) {
    make_folders(options.folder);
  }

  bool train(const std::vector<PooledRun>& runs) {
    std::set<std::string> known;
    for (const PooledRun& run : runs)
      if (known.insert(run.key).second) waiting_.push_back(&run);
    const size_t cores = static_cast<size_t>(thread_count());
    const size_t at_once = std::min(options_.side_by_side ? static_cast<size_t>(options_.side_by_side) : cores,
                                    std::max<size_t>(1, waiting_.size()));
    threads_ = std::max<size_t>(1, cores / at_once);
    bool stopped = false;
    const auto end = [&] { return events_.stop && events_.stop(); };
    while (!running_.empty() || (!waiting_.empty() && !stopped)) {
      if (!stopped && end()) {
        stopped = true;
        for (const auto& [process, run] : running_) ::kill(process, SIGTERM);
      }
      // One that has an outcome may show that the others are not wanted, before the next one is begun.
      for (size_t tries = waiting_.size(); !end() && tries > 0 && running_.size() < at_once; --tries) begin_next();
      collect();
      if (events_.moment) events_.moment(running_.size());
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return !stopped;
  }

 private:
  std::string path(const std::string& key, const char* end) const { return options_.folder + "/" + key + end; }

  // One that another program trains goes to the end of the line.
  void begin_next() {
    const PooledRun* const run = waiting_.front();
    waiting_.pop_front();
    const std::string outcome_file = path(run->key, ".json"), folder = path(run->key, "");
    auto claim = std::make_unique<Claim>(path(run->key, ".lock"));
    if (!claim->held()) {
      waiting_.push_back(run);
      return;
    }
    const std::optional<Outcome> known = models::read_outcome(outcome_file);
    if (known && known->kind != Outcome::Kind::failed && !options_.fresh) {
      events_.ended(*run, *known);
      return;
    }
    if (known) std::filesystem::remove(outcome_file);
    if (options_.fresh || (known && !models::holds_checkpoints(folder))) std::filesystem::remove_all(folder);
    const pid_t process = spawn(*run, folder, *claim);
    running_[process] = {run, std::move(claim)};
  }

  pid_t spawn(const PooledRun& run, const std::string& folder, const Claim& claim) const {
    models::TrainSettings settings = run.settings;
    settings.out = folder, settings.threads = static_cast<int64_t>(threads_);
    settings.resume = models::holds_checkpoints(folder);
    const std::string file = path(run.key, ".toml"), log = path(run.key, ".log");
    models::write_settings_file(file, list_settings(settings), models::plugins_of(settings));
    return begin_child("sweep", {"train", "--config=" + file}, log, claim.descriptor());
  }

  void collect() {
    for (;;) {
      int status = 0;
      const pid_t process = ::waitpid(-1, &status, WNOHANG);
      const auto found = running_.find(process);
      if (process <= 0) return;
      if (found == running_.end()) continue;
      const Running ended = std::move(found->second);
      running_.erase(found);
      const bool interrupted = (WIFEXITED(status) && WEXITSTATUS(status) > 128) ||
                               (WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);  // before it heeded signals
      if (interrupted) continue;
      const Outcome outcome = judge(*ended.run, WIFEXITED(status) && WEXITSTATUS(status) == 0, status);
      models::write_outcome(path(ended.run->key, ".json"), outcome);
      events_.ended(*ended.run, outcome);
    }
  }

  Outcome judge(const PooledRun& run, bool success, int status) const {
    Outcome outcome;
    outcome.version = build().version;
    const std::string folder = path(run.key, "");
    if (file_exists(folder + "/metrics.jsonl")) outcome = models::outcome_of(models::RunLog::of_run(folder));
    if (success) return outcome;
    if (outcome.kind != Outcome::Kind::diverged) outcome.kind = Outcome::Kind::failed;
    outcome.why = complaint_in(path(run.key, ".log"));
    if (outcome.why.empty()) outcome.why = text("it was ended by signal ", WTERMSIG(status));
    if (const size_t at = outcome.why.find("not finite"); at != std::string::npos) {
      outcome.kind = Outcome::Kind::diverged;
      if (const auto step = step_in(outcome.why, at)) outcome.step = *step;
    }
    return outcome;
  }

  const PoolOptions& options_;
  const PoolEvents& events_;
  std::deque<const PooledRun*> waiting_;
  std::map<pid_t, Running> running_;
  size_t threads_ = 1;
};

}  // namespace

bool train_pool(const std::vector<PooledRun>& runs, const PoolOptions& options, const PoolEvents& events) {
  return Pool(options, events).train(runs);
}

std::string run_in_training(const std::string& folder) {
  if (!folder_exists(folder)) return "";
  const std::string end = ".lock";
  for (const std::string& path : files_in(folder))
    if (path.ends_with(end) && !Claim(path).held()) return std::filesystem::path(path).stem().string();
  return "";
}

}  // namespace orrery::program
