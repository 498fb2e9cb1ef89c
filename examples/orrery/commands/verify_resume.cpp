// orrery verify_resume: continues a run twice, once interrupted, and checks for identical bytes.
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "engine/system/files.h"
#include "engine/system/folder_lock.h"
#include "engine/system/folders.h"
#include "engine/system/signals.h"
#include "engine/system/subprocess.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/commands/load_run.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/messages.h"
#include "examples/orrery/terminal/process_io.h"
#include "examples/orrery/terminal/progress.h"
#include "examples/orrery/terminal/table.h"
#include "models/catalogue/plugins.h"
#include "models/settings/settings_file.h"
#include "models/study/checkpoint_diff.h"
#include "models/study/run_contents.h"
#include "models/training/run_folder.h"
#include "models/training/trainer.h"

namespace orrery::program {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct VerifySettings {
  std::string out, launcher;
  int64_t steps = 10;

  template <class V>
  void visit(V& v) {
    v("out", out, "new folder for the two runs, removed if they agree; if not given, RUN.verify_resume");
    v("steps", steps, "steps before the interruption, and as many after it", between(1, 1e6));
    v("launcher", launcher, "words that start the interrupted run, such as 'mpirun -n 3'; the other is one process");
  }
};

struct Interrupted {
  int signal;
};

// The work folder; removed with the object unless kept.
class WorkFolder {
 public:
  explicit WorkFolder(const std::string& folder) : folder_(folder) {
    const auto check_new = [&](bool is_new) {
      check(is_new, "verify_resume: ", folder, " exists already; remove it, or choose another --out");
    };
    check_new(!file_exists(folder));
    lock_.emplace(folder, LockUser{"verify_resume"});
    check_new(lock_->has_only_lock());
  }
  ~WorkFolder() {
    std::error_code ignored;
    if (!kept_) fs::remove_all(folder_, ignored);
  }
  WorkFolder(const WorkFolder&) = delete;
  std::string operator/(const std::string& name) const { return folder_ + "/" + name; }
  void keep() { kept_ = true; }

 private:
  std::string folder_;
  std::optional<FolderLock> lock_;
  bool kept_ = false;
};

void copy_files(const std::string& from, const std::string& to) {
  make_folders(to);
  for (const std::string& path : files_in(from)) {
    std::error_code error;
    fs::copy_file(path, to + "/" + fs::path(path).filename().string(), error);
    check(!error, "verify_resume: cannot copy ", path, " to ", to, ": ", error.message());
  }
}

std::vector<std::string> words_of(const std::string& launcher) {
  std::istringstream in(launcher);
  return {std::istream_iterator<std::string>(in), {}};
}

std::string sibling_folder(const std::string& run) {
  const std::string path = without_last_slashes(fs::absolute(run).lexically_normal().string());
  return (fs::path(run).is_absolute() ? path : fs::path(path).lexically_proximate(fs::current_path()).string()) +
         ".verify_resume";
}

class Verification {
 public:
  Verification(const std::string& run, const VerifySettings& s)
      : work_(s.out.empty() ? sibling_folder(run) : s.out), settings_(models::settings_of_run(run)) {
    from_ = models::read_newest([&] { return checkpoint_of(run); },
                                [&](const std::string& checkpoint) { return copy_checkpoint(checkpoint); });
    warn_about_version(run, version_);
    middle_ = from_ + s.steps, end_ = middle_ + s.steps;
    settings_.out = work_ / "run", settings_.steps = std::max(settings_.steps, end_), settings_.resume = true;
    settings_.resume_from_previous = settings_.allow_new_text = settings_.profile = settings_.keep_best = false;
    settings_.save_optimizer = true, settings_.checkpoint_every = 0, settings_.keep_checkpoints = 2;
    models::write_settings_file(work_ / "settings.toml", list_settings(settings_));
    print_message(text(for_terminal(run), ", from step ", with_commas(from_), " to step ", with_commas(end_),
                       ", interrupted after step ", with_commas(middle_)));
  }

  // Trains both runs at the same path, because checkpoints contain `out`. The launcher is first, as it may fail.
  void train(const std::vector<std::string>& launcher) {
    begin();
    train_until(middle_, "until the interruption", launcher);
    train_until(end_, "resumed in a new process", launcher);
    rename_file(settings_.out, work_ / "resumed");
    begin();
    train_until(end_, "uninterrupted", {});
    rename_file(settings_.out, work_ / "uninterrupted");
  }

  void compare() {
    const std::string first = work_ / "uninterrupted", second = work_ / "resumed";
    std::vector<models::FileComparison> files =
        models::compare_checkpoints(models::latest_checkpoint(first), models::latest_checkpoint(second));
    const auto log = models::RunLog::of_run(first);
    const std::string rows_differ = models::log_difference(log, models::RunLog::of_run(second));
    int64_t rows = 0;
    log.each([&](const models::LogRow&) { ++rows; });
    Table table({"", "", ""}, "lrl");
    for (const models::FileComparison& file : files)
      table.add({file.name, with_commas(static_cast<int64_t>(file.bytes)) + " bytes",
                 file.difference.empty() ? "same" : file.difference});
    table.add({"metrics.jsonl", pluralize(rows, "row"), rows_differ.empty() ? "same, except for times" : rows_differ});
    std::cout << table.print();
    files.push_back({"metrics.jsonl", 0, rows_differ});
    for (const models::FileComparison& file : files) {
      if (file.difference.empty()) continue;
      work_.keep();
      fail("verify_resume: the resumed run differs, first in ", file.name, ": ", file.difference,
           "; compare the uninterrupted run ", first, " with the resumed run ", second);
    }
    std::cout << "all bytes are identical" << std::endl;
  }

 private:
  static std::string checkpoint_of(const std::string& run) {
    const std::string latest = models::latest_checkpoint(run);
    check(!latest.empty(), "verify_resume: ", run, " has no checkpoint; wait until the run has written one");
    return latest;
  }

  // Copies the checkpoint, which the run may soon replace, and returns its step.
  int64_t copy_checkpoint(const std::string& checkpoint) {
    const models::CheckpointState state = models::read_state(checkpoint);
    check(models::has_optimizer(state), "verify_resume: ", checkpoint,
          " was saved without the optimizer state, so a resumed run cannot be bit-identical; train with "
          "--save_optimizer=yes");
    version_ = state.version;
    remove_with_contents(work_ / "begin");
    checkpoint_name_ = fs::path(checkpoint).filename().string();
    copy_files(checkpoint, work_ / "begin");
    return state.step;
  }

  void begin() const { copy_files(work_ / "begin", settings_.out + "/" + checkpoint_name_); }

  void train_until(int64_t step, const std::string& what, const std::vector<std::string>& launcher) const {
    const auto began = Clock::now();
    const std::string log = work_ / "log";
    const Progress progress("training " + what);
    Subprocess child("verify_resume",
                     models::with_plugins(
                         {"train", "--config=" + (work_ / "settings.toml"), "--until=" + std::to_string(step)}),
                     log, -1, launcher);
    std::optional<int> status;
    for (bool signaled = false; !(status = child.poll());) {
      if (signals_.received() != 0 && !std::exchange(signaled, true)) child.stop();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    if (signals_.received() != 0) throw Interrupted{signals_.received()};
    if (*status != 0 && !(WIFEXITED(*status) && WEXITSTATUS(*status) == worse_than_uniform)) {
      const std::string why = failure_of(*status, log), all = read_file(log);
      if (!launcher.empty() && all.find(why) == std::string::npos) print_message(all);  // the launcher's own error
      fail("verify_resume: ", what, ": ", why);
    }
    const int64_t last = models::read_state(models::latest_checkpoint(settings_.out)).step;
    check(last == step, "verify_resume: ", what, ": the run ended after step ", last, ", not ", step);
    print_message(text("  ", what, ": ", fixed(std::chrono::duration<double>(Clock::now() - began).count(), 1), " s"));
  }

  const StopSignals signals_;
  WorkFolder work_;
  models::TrainSettings settings_;
  std::string checkpoint_name_, version_;
  int64_t from_ = 0, middle_ = 0, end_ = 0;
};

}  // namespace

CommandHelp verify_resume_help(const Arguments&) {
  VerifySettings settings;
  return {
      "Trains the next steps from the last checkpoint twice, without and with an interruption after which a new "
      "process resumes.  Weights, optimizer, state and all metrics of metrics.jsonl except times must be "
      "bit-identical; else the exit code is 1 and both runs are kept for inspection.  RUN is only read, and may be "
      "in training.  A run that has finished its steps is trained beyond them.",
      describe(settings_of(settings)), "", "orrery verify_resume runs/mine --steps=5"};
}

int verify_resume(const Arguments& arguments) {
  VerifySettings s;
  const std::vector<std::string> words = read_arguments("verify_resume", arguments, settings_of(s));
  check_usage(words.size() == 1, "verify_resume: ", words.size(),
              " runs are given; give one, as in orrery verify_resume runs/mine");
  models::check_is_run("verify_resume", words[0]);
  const std::string missing = models::missing_plugins(words[0]);  // training needs all plug-ins
  check(missing.empty(), "verify_resume: ", words[0], ": ", missing);
  try {
    Verification verification(words[0], s);
    verification.train(words_of(s.launcher));
    verification.compare();
  } catch (const Interrupted& interrupted) {
    print_message("stopped");
    return 128 + interrupted.signal;
  }
  return 0;
}

}  // namespace orrery::program
