#include "models/study/run_list.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>

#include "engine/system/files.h"
#include "engine/system/folder_lock.h"
#include "engine/system/folders.h"
#include "models/study/pool.h"
#include "models/study/run_contents.h"
#include "models/study/run_log.h"
#include "models/training/run_folder.h"

namespace orrery::models {
namespace {

namespace fs = std::filesystem;

// Returns the whole lines among the last bytes of a log; omits a last line without its end.
std::string last_lines(const std::string& path) {
  const FileReader log(path);
  const uint64_t begin = log.size() > max_log_bytes ? log.size() - max_log_bytes : 0;
  std::string bytes(log.size() - begin, '\0');
  log.read_at(begin, std::as_writable_bytes(std::span(bytes)));
  if (begin > 0) bytes.erase(0, bytes.find('\n') + 1);
  bytes.erase(bytes.rfind('\n') + 1);  // npos + 1 is 0
  return bytes;
}

// Returns the line around an offset, without its end.
std::string_view line_at(std::string_view lines, size_t offset) {
  const size_t before = offset == 0 ? lines.npos : lines.rfind('\n', offset - 1);
  return lines.substr(before + 1, lines.find('\n', offset) - before - 1);
}

// Sets the step and the losses. Parses the rows of validations and the last row alone.
void read_log(ListedRun& run, int64_t& validated) {
  const std::string path = run.folder + "/metrics.jsonl", lines = last_lines(path), key = "\"validation_loss\":";
  if (lines.empty()) return;
  const std::string what = path + ", a row near its end";  // whose line number is unknown: line 1 is the row
  run.step = parse_log_row(line_at(lines, lines.size() - 1), what, 1).step;
  for (size_t at = lines.find(key); at != lines.npos; at = lines.find(key, at + 1)) {
    const LogRow row = parse_log_row(line_at(lines, at), what, 1);
    validated = row.step, run.validation_loss = row.metrics.at("validation_loss");
    run.best_loss = std::fmin(run.best_loss, run.validation_loss);  // ignores NaN
  }
}

double age_of(const std::string& path) {
  std::error_code none;  // the file may be removed during this
  const auto changed = fs::last_write_time(path, none);
  return none ? 0 : std::chrono::duration<double>(fs::file_time_type::clock::now() - changed).count();
}

RunState state_of(const ListedRun& run, bool has_log, int64_t validated) {
  if (is_locked(run.folder)) return RunState::running;
  if (!run.error.empty()) return RunState::unreadable;
  const std::optional<int64_t> checkpoint = last_checkpoint_step(run.folder);
  if (!has_log && checkpoint == 0) return RunState::imported;
  const bool ended = has_log ? validated == run.step : checkpoint.has_value();
  if (ended && run.step >= run.settings->steps) return RunState::complete;
  return checkpoint == run.step ? RunState::stopped : RunState::failed;
}

ListedRun listed_run(const std::string& folder) {
  ListedRun run{.folder = folder};
  const std::string log = folder + "/metrics.jsonl";
  const bool has_log = file_exists(log);
  int64_t validated = -1;
  run.age = age_of(has_log ? log : folder);
  try {
    TrainSettings settings = settings_of_run(folder);
    static_cast<void>(resolved(settings));  // throws for formulas that are missing here
    run.settings = std::move(settings);
    if (has_log)
      read_log(run, validated);
    else
      run.step = last_checkpoint_step(folder).value_or(0);
  } catch (const Error& error) {
    run.error = error.what();
  }
  run.state = state_of(run, has_log, validated);
  return run;
}

// Returns nothing unless the folder is a pool.
std::optional<ListedPool> listed_pool(const std::string& folder) {
  const std::vector<StoredRun> runs = runs_in_pool(folder);
  if (runs.empty() && !folder_exists(folder + "/used_by")) return {};
  ListedPool pool{folder, static_cast<int64_t>(runs.size())};
  for (const StoredRun& run : runs) pool.bytes += run.bytes;
  return pool;
}

bool is_loop(const std::string& path, const std::string& folder) {
  std::error_code none;
  return fs::is_symlink(path, none) && contains_folder(path, folder);
}

void collect(RunList& list, const std::string& folder) {
  try {
    if (is_run(folder)) {
      list.runs.push_back(listed_run(folder));
    } else if (const auto pool = listed_pool(folder)) {
      list.pools.push_back(*pool);
    } else {
      for (const std::string& path : files_in(folder))
        if (!is_hidden(path) && folder_exists(path) && !is_loop(path, folder)) collect(list, path);
    }
  } catch (const Error& error) {
    list.runs.push_back({.folder = folder, .error = error.what()});
  }
}

}  // namespace

std::string name(RunState state) {
  static constexpr const char* names[] = {"complete", "running", "stopped", "failed", "imported", "unreadable"};
  return names[static_cast<int>(state)];
}

RunList runs_below(const std::string& folder) {
  RunList list;
  collect(list, without_last_slashes(folder));
  std::stable_sort(list.runs.begin(), list.runs.end(),
                   [](const ListedRun& a, const ListedRun& b) { return a.age < b.age; });
  return list;
}

}  // namespace orrery::models
