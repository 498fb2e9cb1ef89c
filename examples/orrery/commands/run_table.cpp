#include "examples/orrery/commands/run_table.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iostream>
#include <optional>

#include "engine/system/hash.h"
#include "engine/system/signals.h"
#include "engine/types/format.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/terminal/messages.h"
#include "examples/orrery/terminal/process_io.h"
#include "examples/orrery/terminal/progress.h"
#include "examples/orrery/terminal/style.h"
#include "examples/orrery/terminal/table.h"
#include "models/formats/csv.h"
#include "models/study/run_contents.h"

namespace orrery::program {
namespace {

using models::Outcome;
using Clock = std::chrono::steady_clock;

std::string clock_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  const std::string rest = std::to_string(whole % 60);
  return std::to_string(whole / 60) + ":" + (rest.size() < 2 ? "0" : "") + rest;
}

// Output while runs end: a table redrawn in place on a terminal, one line per run in a pipe.
class Screen {
 public:
  Screen(const RunRows& rows, const RunFormatter& formatter)
      : rows_(rows), formatter_(formatter), runs_(rows.named.size()), terminal_(is_live_terminal(STDERR_FILENO)) {}

  void ended(const PooledRun& run, const Outcome& outcome, const Outcomes& outcomes) {
    trained_ += Clock::now() - began_ > std::chrono::milliseconds(500);
    if (!terminal_) {
      const auto& [label, seed] = rows_.named.at(run.id);
      std::string result = outcome.why;
      if (outcome.kind == Outcome::Kind::done) result = formatter_.result(outcome);
      return print_message(text(outcomes.size(), " of ", runs_, "  ", for_terminal(label), " seed=", seed, ": ",
                                for_terminal(result), time_left(outcomes.size())));
    }
    draw(outcomes);
  }
  void draw(const Outcomes& outcomes) {
    const std::string table = formatter_.table(outcomes).print_unbroken(STDERR_FILENO);
    print_message(text(erase_codes(), cut_lines(table, terminal_columns(STDERR_FILENO)), outcomes.size(), " of ", runs_,
                       " runs", time_left(outcomes.size())));
    lines_ = std::count(table.begin(), table.end(), '\n') + 1;
  }
  void show_warning(const std::string& message) {
    warn(message);
    lines_ = 0;  // redraws the table below the warning
  }
  // Erases the table, which the result replaces.
  void erase() {
    if (lines_ > 0) show_live_line(erase_codes()), erase_live_line();
  }

 private:
  std::string erase_codes() const { return lines_ > 0 ? text("\x1b[", lines_, "A\x1b[J") : ""; }
  std::string time_left(size_t done) const {
    if (trained_ == 0 || done == runs_) return "";
    const double so_far = std::chrono::duration<double>(Clock::now() - began_).count();
    return ", " + clock_text(so_far / static_cast<double>(trained_) * static_cast<double>(runs_ - done)) + " left";
  }

  const RunRows& rows_;
  const RunFormatter& formatter_;
  size_t runs_, trained_ = 0;
  bool terminal_;
  std::ptrdiff_t lines_ = 0;
  Clock::time_point began_ = Clock::now();
};

}  // namespace

void RunRows::add(const std::string& label, models::TrainSettings settings, const std::string& id) {
  PooledRun run{id, std::move(settings)};
  const std::string seed = std::to_string(run.settings.seed);
  auto row = std::find_if(rows.begin(), rows.end(), [&](const RunRow& r) { return r.label == label; });
  if (row == rows.end()) row = rows.insert(rows.end(), {label, {}});
  row->id_of_seed[seed] = id;
  if (named.try_emplace(id, label, seed).second) runs.push_back(std::move(run));
}

const std::string& DistinctSettings::add(const models::TrainSettings& settings, const std::string& name) {
  Sha256 all;
  for (const auto& [key, value] : list_settings(models::resolved(settings))) {
    const std::string line = key + "=" + value + "\n";
    all.add(std::as_bytes(std::span(line)));
  }
  return names_.try_emplace(all.digits(), name).first->second;
}

std::set<std::string> RunRows::ids() const {
  std::set<std::string> all;
  for (const auto& [id, row] : named) all.insert(id);
  return all;
}

TrainedRuns train_rows(const RunRows& rows, const PoolOptions& options, const RunFormatter& formatter,
                       const std::function<void(const PooledRun&, const Outcome&)>& on_finished) {
  TrainedRuns trained;
  Screen screen(rows, formatter);
  std::optional<Progress> progress(std::in_place,
                                   "training " + pluralize(static_cast<int64_t>(rows.named.size()), "run"));
  const StopSignals signals;
  std::exception_ptr refused;
  PoolEvents events;
  events.ended = [&](const PooledRun& run, const Outcome& outcome) {
    trained.outcomes[run.id] = outcome;
    screen.ended(run, outcome, trained.outcomes);
    try {
      if (on_finished && !refused) on_finished(run, outcome);
    } catch (...) {
      refused = std::current_exception();
    }
  };
  events.warning = [&](const std::string& message) { screen.show_warning(message); };
  events.stop = [&] { return signals.received() != 0 || refused; };
  const bool complete = train_pool(rows.runs, options, events);
  if (refused) std::rethrow_exception(refused);
  if (!complete) trained.signal = signals.received();
  progress.reset();
  screen.erase();
  std::cout << formatter.table(trained.outcomes).print() << std::flush;
  for (const auto& [id, outcome] : trained.outcomes)
    if (outcome.version != models::program_version())
      warn(text(id, " was trained by orrery ", outcome.version, ", but this is ", models::program_version(),
                "; --retrain trains it again"));
  for (const auto& [id, outcome] : trained.outcomes)
    if (!outcome.why.empty())
      print_message(text(for_terminal(rows.named.at(id).first), " seed=", rows.named.at(id).second, ": ",
                         for_terminal(outcome.why)));
  return trained;
}

int64_t count_failed(const Outcomes& outcomes) {
  return std::count_if(outcomes.begin(), outcomes.end(),
                       [](const auto& each) { return each.second.kind == Outcome::Kind::failed; });
}

void check_many_runs(const std::string& what, size_t runs, bool yes) {
  constexpr size_t max_without_yes = 1000;
  check_usage(runs <= max_without_yes || yes, what, runs, " runs, more than 1,000; confirm with --yes");
}

void Outputs::check(const std::string& folder) const {
  models::check_no_run(command, without_last_slashes(folder));
  for (const auto& [name, kind] : kinds) models::check_output(command, folder + "/" + name, kind);
}
void Outputs::write(const std::string& folder, const std::string& name, const std::string& content) const {
  models::write_output(command, folder + "/" + name, kinds.at(name), content);
}

models::OutputKind runs_csv_kind() {
  return models::marked_kind("a list of runs", "row,seed,run,outcome,step,seconds,why", "\n");
}

std::string runs_csv(const RunRows& rows, const Outcomes& outcomes) {
  std::vector<std::string> names;
  for (const auto& [id, outcome] : outcomes)
    for (const auto& [name, value] : outcome.metrics)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  std::vector<std::string> header = {"row", "seed", "run", "outcome", "step", "seconds", "why"};
  header.insert(header.end(), names.begin(), names.end());
  std::string all = models::csv_line(header);
  for (const RunRow& row : rows.rows)
    for (const auto& [seed, id] : row.id_of_seed) {
      const auto found = outcomes.find(id);
      if (found == outcomes.end()) continue;
      const Outcome& o = found->second;
      std::vector<std::string> fields = {row.label,           seed, id, name(o.kind), std::to_string(o.step),
                                         fixed(o.seconds, 1), o.why};
      for (const std::string& each : names)
        fields.push_back(o.metrics.contains(each) ? print_number(o.metrics.at(each)) : "");
      all += models::csv_line(fields);
    }
  return all;
}

}  // namespace orrery::program
