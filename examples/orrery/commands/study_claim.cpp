#include "examples/orrery/commands/study_claim.h"

#include <chrono>
#include <filesystem>
#include <iostream>
#include <set>

#include "engine/system/files.h"
#include "engine/system/folder_lock.h"
#include "engine/system/folders.h"
#include "engine/system/hash.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/study_measures.h"
#include "examples/orrery/commands/study_runs.h"
#include "examples/orrery/terminal/messages.h"
#include "examples/orrery/terminal/table.h"
#include "models/formats/csv.h"
#include "models/formats/shell_words.h"
#include "models/formats/unicode.h"
#include "models/settings/settings_file.h"
#include "models/study/claim_plot.h"
#include "models/study/statistics.h"

namespace orrery::program {
namespace {

using models::Claim;
using models::StudyVerdict;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr const char *study_columns = "metric,variant,at,samples,mean,deviation,low,high\n",
                     *samples_header = "metric,variant,swept,sample,value\n";

// Outputs besides verdict.json, which is renamed, not rejected, if it is unreadable.
const Outputs& study_outputs() {
  static const Outputs all = {"study",
                              {{"table.csv", models::marked_kind("a table of a study", study_columns)},
                               {"samples.csv", models::marked_kind("samples of a study", samples_header)},
                               {"runs.csv", runs_csv_kind()},
                               {"samples.svg", models::plot_kind()}}};
  return all;
}

std::string number_text(double x) {
  return x == 0 || (std::abs(x) >= 0.01 && std::abs(x) < 1e5) ? fixed(x, 4) : significant(x, 4);
}

std::vector<double> existing(const std::vector<std::optional<double>>& samples) {
  std::vector<double> all;
  for (const auto& each : samples)
    if (each) all.push_back(*each);
  return all;
}

std::string samples_text(const Claim& claim) {
  const bool timed = claim.kind == Claim::Kind::timed;
  const size_t count = timed ? static_cast<size_t>(claim.rounds) : claim.seeds.size();
  return std::to_string(count) + (timed ? " round" : " seed") + (count == 1 ? "" : "s");
}

// Returns a table per metric, with a row per compared sample and chosen learning rates.
std::string measured_text(const Claim& claim, const std::vector<models::SampleRow>& rows, const StudyRuns& studied) {
  std::string all;
  const auto lr_of = [&](const std::string& variant) {
    for (const auto& [name, lr] : studied.learning_rates)
      if (name == variant) return print_number(lr);
    return std::string();
  };
  for (size_t m = 0; m < claim.metrics.size(); ++m) {
    Table table({"", "", humanize(print(claim.metrics[m])), claim.kind == Claim::Kind::timed ? "rounds" : "seeds",
                 studied.learning_rates.empty() ? "" : "learning rate"},
                "llrrr");
    for (const models::SampleRow& row : rows) {
      if (row.metric != m) continue;
      const std::vector<double> samples = existing(row.samples);
      std::string mean = "-";
      if (!samples.empty()) {
        const models::Spread spread = models::spread_of(samples);
        mean = number_text(spread.mean) + (samples.size() > 1 ? " +- " + number_text(spread.deviation) : "");
      }
      table.add({row.variant, row.at, mean, std::to_string(samples.size()), lr_of(row.variant)});
    }
    all += table.print();
  }
  return all;
}

std::string table_csv(const Claim& claim, const std::vector<models::SampleRow>& rows) {
  std::string all = study_columns;
  for (const models::SampleRow& row : rows) {
    const std::vector<double> samples = existing(row.samples);
    std::vector<std::string> fields = {
        print(claim.metrics[row.metric]), row.variant, row.at, std::to_string(samples.size()), "", "", "", ""};
    if (!samples.empty()) {
      const models::Spread spread = models::spread_of(samples);
      fields[4] = print_number(spread.mean), fields[5] = print_number(spread.deviation);
    }
    if (const auto interval = models::confidence_interval(samples))
      fields[6] = print_number(interval->low), fields[7] = print_number(interval->high);
    all += models::csv_line(fields);
  }
  return all;
}

// Returns all values behind the verdict, one per run, before aggregation over a sweep.
std::string samples_csv(const Claim& claim, const models::Measurements& measured) {
  std::string all = samples_header;
  for (size_t m = 0; m < claim.metrics.size(); ++m)
    for (size_t v = 0; v < claim.variants.size(); ++v)
      for (size_t s = 0; s < claim.swept_values(); ++s)
        for (size_t i = 0; i < measured.values[m][v][s].size(); ++i) {
          const auto& value = measured.values[m][v][s][i];
          const int64_t sample = claim.kind == Claim::Kind::timed ? static_cast<int64_t>(i) + 1 : claim.seeds[i];
          all += models::csv_line({print(claim.metrics[m]), claim.variants[v].name, claim.swept_text(s),
                                   std::to_string(sample), value ? print_number(*value) : ""});
        }
  return all;
}

// Returns the command that repeats the study; data may be in another folder.
std::string repeat_command(const StudySettings& s, const std::string& file, const std::string& out) {
  std::vector<std::string> words = {"study", file, "--out=" + out, "--runs=" + s.runs};
  if (!s.data.empty()) words.push_back("--data=FOLDER");
  return models::command_line(words);
}

// Returns the versions of the programs that trained the runs.
std::string versions_of(const Outcomes& outcomes) {
  std::set<std::string> all;
  for (const auto& [key, outcome] : outcomes) all.insert(outcome.version);
  return all.empty() ? models::program_version() : join(std::vector<std::string>(all.begin(), all.end()));
}

// Throws if the folder has the verdict on another claim, or one that a smoke run would replace.
// Renames an unreadable file.
void check_replaceable(const StudySettings& s, const std::string& out, const Claim& claim) {
  const std::string path = out + "/verdict.json";
  if (!file_exists(path)) return;
  StudyVerdict before;
  try {
    before = models::read_verdict(path);
  } catch (const Error& error) {
    const std::string renamed = unused_name(path, ".damaged");
    rename_file(path, renamed);
    warn(text(error.what(), "; it is now ", renamed, ", and the claim is tested again"));
    return;
  }
  const auto same_file = [&] {
    std::error_code of_before, of_claim;
    const bool same = fs::weakly_canonical(before.file, of_before) == fs::weakly_canonical(claim.path, of_claim);
    return same && !of_before && !of_claim;
  };
  check(before.sentence == claim.sentence || !s.all.empty() || same_file(), "study: ", out,
        " has the verdict on another claim, ", before.file, "; choose another --out");
  check(before.smoke || !s.smoke, "study: ", out, " has a verdict, which --smoke would replace; choose another --out");
}

}  // namespace

int test_claim_file(const StudySettings& s, const std::string& file, const std::string& out, StudyVerdict& verdict) {
  const auto began = Clock::now();
  models::check_utf8(file, "study: the path " + file, "rename that file or folder");
  models::check_utf8_settings("study", {{"out", out}, {"runs", s.runs}, {"data", s.data}});
  study_outputs().check(out);
  const Claim whole = models::read_claim(file), claim = s.smoke ? models::for_smoke(whole) : whole;
  const bool timed = claim.kind == Claim::Kind::timed;
  const size_t runs = timed ? 0 : count_runs(claim);
  check_many_runs("study: " + file + " has ", runs, s.yes);
  print_message(text(for_terminal(claim.source), "\n\"", for_terminal(claim.sentence), "\"\n", name(claim.kind), ": ",
                     pluralize(static_cast<int64_t>(claim.variants.size()), "variant"), ", ",
                     claim.sweep.empty() ? "" : text(claim.swept_values(), " values of ", claim.sweep[0].key, ", "),
                     samples_text(claim), timed ? "" : ", " + std::to_string(runs) + " runs"));
  check_variants_differ(claim, s.data);
  check_edits(claim, s.data);
  check_few_shot_sets(claim, s.data);
  const std::vector<std::string> notes = notes_of_meaning(claim, s.data);
  if (!s.smoke) warn(notes);
  FolderLock lock(out, {"study"});
  check_replaceable(s, out, claim);
  const StudyRuns studied = as_content([&] {
    return timed ? time_claim(claim, out + "/timing", s.runs, s.data)
                 : train_claim(claim, {"study", s.runs, s.jobs, s.retrain}, s.data, lock);
  });
  if (studied.signal != 0) {
    print_message(text("stopped after ", studied.outcomes.size(), " runs; the same command resumes"));
    return 128 + studied.signal;
  }
  const int64_t failed = count_failed(studied.outcomes);
  check(failed == 0, "study: ", file, ": no verdict: ", pluralize(failed, "run"),
        " failed; the same command tries again");
  verdict = {.file = file,
             .source = claim.source,
             .sentence = claim.sentence,
             .kind = name(claim.kind),
             .metric = print(claim.metrics[0]),
             .version = versions_of(studied.outcomes),
             .reported = claim.reported,
             .smaller = claim.smaller,
             .main = claim.main,
             .claim = sha256_of_file(file),
             .meaning = models::claim_hash(file),
             .input_hashes = claim_inputs(claim, s.data),
             .command = repeat_command(s, file, out),
             .runs = s.runs,
             .smoke = s.smoke,
             .samples = samples_text(claim),
             .minutes = 0,
             .minutes_of_runs = studied.minutes,
             .result = {},
             .learning_rates = studied.learning_rates,
             .shared_lr = studied.shared_lr,
             .at_shared_lr = {},
             .missing = studied.measured.missing};
  const std::vector<models::SampleRow> rows = sample_rows(claim, studied.measured);
  std::cout << measured_text(claim, rows, studied);
  if (!s.smoke) verdict.result = test_claim(claim, studied.measured);
  if (!s.smoke && studied.at_shared_lr) verdict.at_shared_lr = test_claim(claim, *studied.at_shared_lr);
  verdict.minutes = std::chrono::duration<double>(Clock::now() - began).count() / 60;
  for (const models::ComparisonResult& each : verdict.result.comparisons)
    std::cout << for_terminal(each.sentence) << "\n";
  if (verdict.at_shared_lr) {
    std::cout << "all variants at the learning rate " << print_number(verdict.shared_lr) << ":\n";
    for (const models::ComparisonResult& each : verdict.at_shared_lr->comparisons)
      std::cout << "  " << for_terminal(each.sentence) << "\n";
  }
  const auto write = [&](const char* name, const std::string& content) { study_outputs().write(out, name, content); };
  write("table.csv", table_csv(claim, rows));
  write("samples.csv", samples_csv(claim, studied.measured));
  if (!timed) write("runs.csv", runs_csv(studied.rows, studied.outcomes));
  write_verdict(out + "/verdict.json", verdict);
  write("samples.svg", models::claim_plot(claim, studied.measured, verdict.label()));
  const std::string former_plot = out + "/picture.svg";  // as older versions named it
  if (file_exists(former_plot) && models::plot_kind().is_ours(former_plot)) remove_with_contents(former_plot);
  if (s.smoke) {
    for (const std::string& sentence : verdict.missing) std::cout << for_terminal(sentence) << "\n";
    const bool all = verdict.missing.empty();
    std::cout << "smoke: every run " << (all ? "ended as expected" : "was tried, and some failed")
              << "; two steps of one seed give no verdict" << std::endl;
    return all ? 0 : 1;
  }
  std::cout << "verdict: " << verdict.label() << ", after " << fixed(verdict.minutes, 1)
            << " minutes (the steps of all runs: " << fixed(verdict.minutes_of_runs, 1) << " minutes)\nfiles:\n";
  for (const char* written : {"verdict.json", "table.csv", "samples.csv", "runs.csv", "samples.svg"})
    if (file_exists(out + "/" + written)) std::cout << "  " << for_terminal(out) << "/" << written << "\n";
  std::cout << std::flush;
  if (!timed && s.all.empty()) print_message(pool_line(s.runs));
  return 0;
}

}  // namespace orrery::program
