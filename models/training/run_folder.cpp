#include "models/training/run_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "engine/system/folders.h"
#include "engine/types/usage_error.h"
#include "models/formats/output_file.h"
#include "models/settings/settings_file.h"
#include "models/training/metrics_log.h"
#include "models/training/resume.h"

namespace orrery::models {
namespace {

namespace fs = std::filesystem;

// The file that marks a folder of this program while it lacks its state.json.
constexpr const char* mark_name = "being_written";
std::string mark_of(int64_t step) { return text(checkpoint_format, ", step ", step, ", is being written\n"); }
constexpr const char *settings_name = "settings.toml", *metrics_name = "metrics.jsonl";
constexpr std::array<const char*, 4> our_files = {weights_name, optimizer_name, mark_name, state_name};

// Throws if a system call has not returned 0.
void done(int result, const char* what, const std::string& path) {
  if (result != 0) fail("write: cannot ", what, " ", path, ": ", std::generic_category().message(errno));
}
std::string name_of(const std::string& path) { return fs::path(path).filename().string(); }
bool all_digits(std::string_view text) { return text.find_first_not_of("0123456789") == std::string_view::npos; }
bool is_real_folder(const std::string& path) {  // not a link to a folder
  struct stat status = {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::string in(const std::string& folder, const std::string& name) { return (fs::path(folder) / name).string(); }

std::string folder_name(int64_t step) {
  const std::string digits = std::to_string(step);
  return "step_" + std::string(digits.size() < 6 ? 6 - digits.size() : 0, '0') + digits;
}
// Returns the number in step_000050; -1 for other names.
int64_t step_of(const std::string& name) {
  const bool valid = name.starts_with("step_") && name.size() >= 11 && name.size() <= 23 && all_digits(name.substr(5));
  return valid ? std::stoll(name.substr(5)) : -1;
}
// Returns the number in step_000050.partial or step_000050.2.partial; -1 for other names.
int64_t step_of_partial(const std::string& name) {
  const std::string end = ".partial";
  if (!name.ends_with(end)) return -1;
  const std::string rest = name.substr(0, name.size() - end.size());
  const size_t dot = rest.find('.');
  return dot == std::string::npos || all_digits(rest.substr(dot + 1)) ? step_of(rest.substr(0, dot)) : -1;
}

void check_step(const std::string& checkpoint, const CheckpointState& state) {
  check(state.step == step_of(name_of(checkpoint)), "checkpoint: ", checkpoint, "/", state_name, " is of step ",
        state.step, ", but the folder is of step ", step_of(name_of(checkpoint)), "; it belongs to another checkpoint");
}

// Returns the damage of a checkpoint; empty if it is intact.
std::string damage_of(const std::string& checkpoint, bool weights_alone) {
  try {
    const CheckpointState state = read_state(checkpoint);
    check_step(checkpoint, state);
    check_content(checkpoint, state, weights_name);
    if (!weights_alone && has_optimizer(state)) check_content(checkpoint, state, optimizer_name);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

// Returns the newest intact one of checkpoints sorted from the newest; empty if there is none.
std::string first_intact(const std::vector<std::string>& checkpoints, bool weights_alone) {
  for (const std::string& path : checkpoints)
    if (damage_of(path, weights_alone).empty()) return path;
  return {};
}

// Returns true if this program verifiably wrote the folder: by a state with files and the folder's
// step, or by the mark, which may be cut short if the folder holds nothing else.
bool is_our_checkpoint(const std::string& folder, int64_t step) {
  if (!is_real_folder(folder)) return false;
  try {
    const std::string mark = folder + "/" + mark_name;
    if (file_exists(mark)) {
      const std::string written = read_file(mark, 1000);
      return written == mark_of(step) || (mark_of(step).starts_with(written) && files_in(folder).size() == 1);
    }
    const CheckpointState state = read_state(folder);
    return state.step == step && !state.files.empty();
  } catch (const Error&) {
    return false;
  }
}

struct BestCheckpoint {
  std::string path;  // empty: none was validated
  double validation_loss = std::numeric_limits<double>::infinity();
};
// Compares the checkpoints after the step `since`; none: after that of the newest one.
BestCheckpoint best_in(const std::string& folder, std::optional<int64_t> since = {}) {
  BestCheckpoint best;
  for (const std::string& path : checkpoints_in(folder)) try {
      const CheckpointState state = read_state(path);
      if (!since) since = state.data_since;
      const bool validated = state.validated == state.step && state.step == step_of(name_of(path));
      if (validated && state.step > *since && state.validation_loss <= best.validation_loss)
        best = {path, state.validation_loss};
    } catch (const Error&) {  // skip damaged ones
    }
  return best;
}

// Matches the remains of write_file_atomically: weights.safetensors.1234.partial.
bool is_partial_file(const std::string& name, const std::string& of) {
  const std::string end = ".partial";
  if (!name.starts_with(of + ".") || !name.ends_with(end) || name.size() <= of.size() + 1 + end.size()) return false;
  return all_digits(name.substr(of.size() + 1, name.size() - of.size() - 1 - end.size()));
}
bool is_our_file(const std::string& name) {
  return std::any_of(our_files.begin(), our_files.end(),
                     [&](const char* file) { return name == file || is_partial_file(name, file); });
}
bool holds_only_ours(const std::string& folder) {
  const std::vector<std::string> files = files_in(folder);
  return std::all_of(files.begin(), files.end(),
                     [](const std::string& path) { return is_our_file(name_of(path)) && !is_real_folder(path); });
}

// Removes the files of a checkpoint, the identifying one last, and then the folder.
void remove_files_of(const std::string& folder) {
  std::vector<std::string> files = files_in(folder);
  std::stable_partition(files.begin(), files.end(), [](const std::string& path) {
    return name_of(path) != state_name && name_of(path) != mark_name;
  });
  for (const std::string& path : files)
    if (is_our_file(name_of(path))) done(::unlink(path.c_str()), "remove", path);
  done(::rmdir(folder.c_str()), "remove", folder);
}

// Calls remove(path) for each path; returns the error messages.
template <class F>
std::vector<std::string> for_each_path(const std::vector<std::string>& paths, const F& remove) {
  std::vector<std::string> problems;
  for (const std::string& path : paths) try {
      remove(path);
    } catch (const Error& error) {
      problems.push_back(text("an old checkpoint was not removed: ", error.what()));
    }
  return problems;
}

// Returns the path for the checkpoint of that step; a non-empty folder of that name stays.
std::string free_path(const std::string& folder, int64_t step) {
  std::string name = folder_name(step);
  const auto taken = [&] {
    const std::string path = in(folder, name);
    return path_exists(path) && !(is_real_folder(path) && files_in(path).empty());
  };
  while (taken()) {
    check(name.size() < 23, "write: ", in(folder, name), " already exists; move it away");
    name.insert(5, "0");
  }
  return in(folder, name);
}

void remove_if_ours(const std::string& checkpoint) {
  if (!is_our_checkpoint(checkpoint, step_of(name_of(checkpoint))) || !holds_only_ours(checkpoint)) return;
  const std::string partial = unused_name(checkpoint, ".partial");
  rename_file(checkpoint, partial);
  remove_files_of(partial);
}

std::string quarantine(const std::string& checkpoint) {
  const std::string renamed = unused_name(checkpoint, ".damaged");
  rename_file(checkpoint, renamed);
  return renamed;
}

void discard(const std::string& partial) noexcept {
  try {
    if (!partial.empty() && is_real_folder(partial)) remove_files_of(partial);
  } catch (...) {  // the next run removes it
  }
}

}  // namespace

std::vector<std::string> checkpoints_in(const std::string& folder) {
  std::vector<std::pair<int64_t, std::string>> found;
  if (!folder_exists(folder)) return {};
  for (const std::string& path : files_in(folder)) {
    const int64_t step = step_of(name_of(path));
    const auto holds = [&](const char* file) { return path_exists(path + "/" + file); };
    if (step >= 0 && folder_exists(path) && (holds(state_name) || holds(weights_name) || holds(optimizer_name)))
      found.emplace_back(step, path);
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

bool holds_checkpoints(const std::string& folder) { return !checkpoints_in(folder).empty(); }

std::optional<int64_t> last_checkpoint_step(const std::string& folder) {
  const std::vector<std::string> checkpoints = checkpoints_in(folder);
  return checkpoints.empty() ? std::nullopt : std::optional(step_of(name_of(checkpoints[0])));
}

bool can_resume(const std::string& folder) {
  const std::string intact = first_intact(checkpoints_in(folder), false);
  return !intact.empty() && has_optimizer(read_state(intact));
}

std::string best_checkpoint(const std::string& folder) { return best_in(folder).path; }

std::string latest_checkpoint(const std::string& folder, bool weights_alone) {
  for (int attempt = 1;; ++attempt) {
    std::vector<std::string> checkpoints = checkpoints_in(folder);
    if (checkpoints.empty()) return {};
    const std::string newest = checkpoints[0], damage = damage_of(newest, weights_alone);
    if (damage.empty()) return newest;
    if (attempt < 10 && !folder_exists(newest)) continue;  // a running process has removed it, and written a newer one
    checkpoints.erase(checkpoints.begin());
    const std::string before = first_intact(checkpoints, weights_alone);
    check(!before.empty(), damage, "; there is no checkpoint before it that is intact");
    fail(damage, "; the checkpoint before it, ", before, ", is intact: use --checkpoint=", before,
         ", or resume from it: ", resume_command(folder, {"--resume_from_previous=yes"}));
  }
}

std::string checkpoint_at(const std::string& folder) {
  check(folder_exists(folder), "checkpoint: there is no folder ", folder, "; orrery train --out=DIR makes one");
  if (file_exists(in(folder, state_name))) return folder;
  const std::string latest = latest_checkpoint(folder, true);
  check(!latest.empty(), "checkpoint: ", folder,
        " contains no checkpoint; give the folder of a run or of one of its checkpoints");
  return latest;
}

std::string checkpoint_to_resume(const std::string& folder, bool resume_from_previous) {
  const std::string intact = resume_from_previous ? first_intact(checkpoints_in(folder), false) : "";
  return intact.empty() ? latest_checkpoint(folder) : intact;  // throws, with the damage
}

void check_free(const std::string& folder, const LockUser& user) {
  const auto check_file = [&](const char* name, const OutputKind& kind) {
    check_output(user.command, in(folder, name), kind, user.setting);
  };
  check_file(settings_name, {"the settings of a run", is_written_settings_file});
  check_file(metrics_name, {"the log of a run", is_metrics_file});
}

void check_usable(const std::string& folder) {
  check_usage(!folder.empty(), "train: --out is empty; give a folder, as in --out=runs/mine");
  check(!is_locked(folder), "train: ", folder,
        " is in use by another program; wait until it ends, or choose another --out");
  std::string there = folder;
  while (!there.empty() && ::access(there.c_str(), F_OK) != 0 && errno == ENOENT)
    there = fs::path(without_last_slashes(there)).parent_path().string();
  if (there.empty()) there = ".";
  const int reason = !folder_exists(there) ? ENOTDIR : ::access(there.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
  check(reason == 0, "train: cannot write to ", folder, ": ", std::generic_category().message(reason),
        "; choose another --out");
}

std::string RunFolder::checkpoint_to_resume(bool resume_from_previous) {
  const std::string found = models::checkpoint_to_resume(path_, resume_from_previous);
  if (resume_from_previous)
    for (const std::string& damaged : checkpoints_in(path_)) {
      if (damaged == found) break;
      quarantine(damaged);
    }
  return resumed_unverified_ = last_good_ = found;
}

std::string RunFolder::previous_checkpoint() const {
  std::vector<std::string> checkpoints = checkpoints_in(path_);
  const auto resumed_unverified = std::find(checkpoints.begin(), checkpoints.end(), resumed_unverified_);
  checkpoints.erase(checkpoints.begin(),
                    resumed_unverified == checkpoints.end() ? resumed_unverified : resumed_unverified + 1);
  return first_intact(checkpoints, false);
}

std::string RunFolder::write(const CheckpointState& state, nn::Module& model, const nn::Optimizer* optimizer) {
  lock_.ensure_held();
  std::string partial, path = in(path_, folder_name(state.step));
  const std::string before = unverified_.empty() ? last_good_ : unverified_;
  const auto fail_with = [&](const char* why) {
    discard(partial);
    fail("checkpoint: cannot write ", path, ": ", why,
         before.empty() ? "; there is no checkpoint before it" : "; the previous checkpoint is intact: ", before);
  };
  try {
    path = free_path(path_, state.step);
    const std::string name = unused_name(path, ".partial");
    done(::mkdir(name.c_str(), 0777), "make the folder", name);
    partial = name;
    const std::string mark = partial + "/" + mark_name;
    FileAppender(mark).write(mark_of(state.step));  // survives a kill, not necessarily a power loss
    write_checkpoint(partial, state, model, optimizer);
    done(::unlink(mark.c_str()), "remove", mark);
    sync_folder(partial);
    rename_file(partial, path);
    sync_folder(path_);
  } catch (const NonFiniteCheckpointError&) {
    discard(partial);
    throw;
  } catch (const std::bad_alloc&) {
    fail_with("out of memory");
  } catch (const std::exception& error) {
    fail_with(error.what());
  }
  intact_.insert(path);
  return unverified_ = path;
}

bool RunFolder::mark_verified() {
  resumed_unverified_.clear();
  if (unverified_.empty()) return false;
  last_good_ = std::exchange(unverified_, "");
  return true;
}

void RunFolder::record_validation(double loss) {
  lock_.ensure_held();
  CheckpointState state = read_state(last_good_);
  if (state.files.empty()) return;  // older format
  state.validation_loss = loss, state.validated = state.step;
  write_state(last_good_, state);
}

std::string RunFolder::quarantine_unverified() {
  return unverified_.empty() ? "" : quarantine(std::exchange(unverified_, ""));
}

bool RunFolder::is_intact(const std::string& checkpoint) {
  if (intact_.contains(checkpoint)) {  // its content was verified; require only that it exists
    try {
      const CheckpointState state = read_state(checkpoint);
      check_size(checkpoint, state, weights_name);
      if (has_optimizer(state)) check_size(checkpoint, state, optimizer_name);
      return true;
    } catch (const Error&) {
      return false;
    }
  }
  if (!damage_of(checkpoint, false).empty()) return false;
  intact_.insert(checkpoint);
  return true;
}

bool RunFolder::is_best(double validation_loss) const {
  return validation_loss < best_in(path_, data_since_).validation_loss;
}

std::vector<std::string> RunFolder::remove_old(int64_t keep, bool best) {
  int64_t kept = 0;
  const std::string best_path = best ? best_in(path_, data_since_).path : "";
  return for_each_path(keep > 0 ? checkpoints_in(path_) : std::vector<std::string>(), [&](const std::string& path) {
    const bool needed = path == last_good_ || path == unverified_;
    if (needed || kept < keep) {
      kept += needed || is_intact(path);
      return;
    }
    if (path != best_path) remove_if_ours(path);
  });
}

std::vector<std::string> RunFolder::remove_all() { return for_each_path(checkpoints_in(path_), remove_if_ours); }

std::vector<std::string> RunFolder::remove_partial() {
  return for_each_path(files_in(path_), [this](const std::string& path) {
    const std::string name = name_of(path);
    if (is_partial_file(name, settings_name) || is_partial_file(name, metrics_name))
      return done(::unlink(path.c_str()), "remove", path);
    if (path == last_good_)  // an interrupted record_validation
      for (const std::string& file : files_in(path))
        if (is_partial_file(name_of(file), state_name)) done(::unlink(file.c_str()), "remove", file);
    const int64_t step = step_of_partial(name);
    if (step < 0 || !is_real_folder(path)) return;
    // An empty folder was left before its first file or after its last.
    if (files_in(path).empty() || (is_our_checkpoint(path, step) && holds_only_ours(path))) remove_files_of(path);
  });
}

}  // namespace orrery::models
