#include "examples/orrery/commands/run_rows.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iostream>
#include <optional>

#include "engine/system/hash.h"
#include "engine/system/signals.h"
#include "engine/types/wording.h"
#include "examples/orrery/terminal/outside.h"
#include "examples/orrery/terminal/progress.h"
#include "examples/orrery/terminal/style.h"
#include "examples/orrery/terminal/table.h"
#include "examples/orrery/terminal/talk.h"
#include "models/formats/csv.h"
#include "models/study/run_files.h"

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
  Screen(const RunRows& rows, const RunWords& words)
      : rows_(rows), words_(words), runs_(rows.named.size()), terminal_(is_live_terminal(STDERR_FILENO)) {}

  void ended(const PooledRun& run, const Outcome& outcome, const Outcomes& outcomes) {
    trained_ += Clock::now() - began_ > std::chrono::milliseconds(500);
    if (!terminal_) {
      const auto& [label, seed] = rows_.named.at(run.key);
      std::string said = outcome.why;
      if (outcome.kind == Outcome::Kind::done) said = words_.said(outcome);
      return talk(text(outcomes.size(), " of ", runs_, "  ", for_terminal(label), " seed=", seed, ": ",
                       for_terminal(said), left(outcomes.size())));
    }
    draw(outcomes);
  }
  void draw(const Outcomes& outcomes) {
    const std::string table = words_.table(outcomes);
    talk(text(erase_codes(), cut_lines(table, terminal_columns(STDERR_FILENO)), outcomes.size(), " of ", runs_, " runs",
              left(outcomes.size())));
    lines_ = std::count(table.begin(), table.end(), '\n') + 1;
  }
  void show_warning(const std::string& sentence) {
    warn(sentence);
    lines_ = 0;  // redraws the table below the warning
  }
  // Erases the table, which the result replaces.
  void erase() {
    if (lines_ > 0) show_live_line(erase_codes()), erase_live_line();
  }

 private:
  std::string erase_codes() const { return lines_ > 0 ? text("\x1b[", lines_, "A\x1b[J") : ""; }
  std::string left(size_t done) const {
    if (trained_ == 0 || done == runs_) return "";
    const double so_far = std::chrono::duration<double>(Clock::now() - began_).count();
    return ", " + clock_text(so_far / static_cast<double>(trained_) * static_cast<double>(runs_ - done)) + " left";
  }

  const RunRows& rows_;
  const RunWords& words_;
  size_t runs_, trained_ = 0;
  bool terminal_;
  std::ptrdiff_t lines_ = 0;
  Clock::time_point began_ = Clock::now();
};

}  // namespace

void RunRows::add(const std::string& label, models::TrainSettings settings, const std::string& key) {
  PooledRun run{key, std::move(settings)};
  const std::string seed = std::to_string(run.settings.seed);
  auto row = std::find_if(rows.begin(), rows.end(), [&](const RunRow& r) { return r.label == label; });
  if (row == rows.end()) row = rows.insert(rows.end(), {label, {}});
  row->key_of_seed[seed] = key;
  named.try_emplace(key, label, seed);
  runs.push_back(std::move(run));
}

const std::string& DistinctSettings::add(const models::TrainSettings& settings, const std::string& name) {
  Sha256 all;
  for (const auto& [key, value] : list_settings(models::resolved(settings))) {
    const std::string line = key + "=" + value + "\n";
    all.add(std::as_bytes(std::span(line)));
  }
  return names_.try_emplace(all.digits(), name).first->second;
}

std::set<std::string> RunRows::keys() const {
  std::set<std::string> all;
  for (const auto& [key, row] : named) all.insert(key);
  return all;
}

TrainedRows train_rows(const RunRows& rows, const PoolOptions& options, const RunWords& words,
                       const std::function<void(const PooledRun&, const Outcome&)>& look) {
  TrainedRows trained;
  Screen screen(rows, words);
  std::optional<Progress> progress(std::in_place,
                                   "training " + counted(static_cast<int64_t>(rows.named.size()), "run"));
  const StopSignals signals;
  std::exception_ptr refused;
  PoolEvents events;
  events.ended = [&](const PooledRun& run, const Outcome& outcome) {
    trained.outcomes[run.key] = outcome;
    screen.ended(run, outcome, trained.outcomes);
    try {
      if (look && !refused) look(run, outcome);
    } catch (...) {
      refused = std::current_exception();
    }
  };
  events.warning = [&](const std::string& sentence) { screen.show_warning(sentence); };
  events.stop = [&] { return signals.received() != 0 || refused; };
  const bool complete = train_pool(rows.runs, options, events);
  if (refused) std::rethrow_exception(refused);
  if (!complete) trained.signal = signals.received();
  progress.reset();
  screen.erase();
  std::cout << words.table(trained.outcomes) << std::flush;
  for (const auto& [key, outcome] : trained.outcomes)
    if (outcome.version != models::program_version())
      warn(text(key, " was trained by orrery ", outcome.version, ", but this is ", models::program_version(),
                "; --retrain trains it again"));
  for (const auto& [key, outcome] : trained.outcomes)
    if (!outcome.why.empty())
      talk(text(for_terminal(rows.named.at(key).first), " seed=", rows.named.at(key).second, ": ",
                for_terminal(outcome.why)));
  return trained;
}

int64_t count_failed(const Outcomes& outcomes) {
  return std::count_if(outcomes.begin(), outcomes.end(),
                       [](const auto& each) { return each.second.kind == Outcome::Kind::failed; });
}

void check_many_runs(const std::string& what, size_t runs, bool yes) {
  constexpr size_t most_without_yes = 1000;
  check(runs <= most_without_yes || yes, what, runs, " runs, more than 1,000; confirm with --yes");
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
  for (const auto& [key, outcome] : outcomes)
    for (const auto& [name, value] : outcome.figures)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  std::vector<std::string> header = {"row", "seed", "run", "outcome", "step", "seconds", "why"};
  header.insert(header.end(), names.begin(), names.end());
  std::string all = models::csv_line(header);
  for (const RunRow& row : rows.rows)
    for (const auto& [seed, key] : row.key_of_seed) {
      const auto found = outcomes.find(key);
      if (found == outcomes.end()) continue;
      const Outcome& o = found->second;
      std::vector<std::string> fields = {row.label,           seed, key, name(o.kind), std::to_string(o.step),
                                         fixed(o.seconds, 1), o.why};
      for (const std::string& each : names)
        fields.push_back(o.figures.contains(each) ? print_number(o.figures.at(each)) : "");
      all += models::csv_line(fields);
    }
  return all;
}

}  // namespace orrery::program
