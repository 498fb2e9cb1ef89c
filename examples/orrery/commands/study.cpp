// orrery study: tests claims in files with runs trained for them.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <set>

#include "engine/system/files.h"
#include "engine/system/folder_lock.h"
#include "engine/system/hash.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/commands/study_claim.h"
#include "examples/orrery/commands/study_runs.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/messages.h"
#include "examples/orrery/terminal/table.h"
#include "models/study/verdict_table.h"

namespace orrery::program {
namespace {

using models::StudyVerdict;
namespace fs = std::filesystem;

// Files that list all verdicts.
const Outputs& list_outputs() {
  static const Outputs all = {
      "study", {{"verdicts.csv", models::verdicts_csv_kind()}, {"README.md", models::verdicts_page_kind()}}};
  return all;
}

std::string folder_of(const StudySettings& s, const std::string& file) {
  return s.out.empty() ? "runs/studies/" + fs::path(file).stem().string() : s.out;
}

// Returns true if the file has the text that was tested, or the same meaning.
bool is_of_claim(const StudyVerdict& before, const std::string& file) {
  if (before.claim == sha256_of_file(file)) return true;
  try {
    return before.meaning == models::claim_hash(file);
  } catch (const Error&) {  // reported when the claim is tested
    return false;
  }
}

// Returns the stored verdict if the claim and its inputs, as far as they exist, are unchanged.
std::optional<StudyVerdict> previous_verdict(const StudySettings& s, const std::string& file, const std::string& out) {
  const std::string path = out + "/verdict.json";
  if (s.retrain || s.smoke || !file_exists(path)) return {};
  StudyVerdict before;
  try {
    before = models::read_verdict(path);
  } catch (const Error& error) {
    warn(text(error.what(), "; the claim counts as not tested"));
    return {};
  }
  if (before.smoke || !is_of_claim(before, file)) return {};
  std::map<std::string, std::set<std::string>> now;
  try {
    now = claim_inputs(models::read_claim(file), s.data);
  } catch (const Error&) {  // its config is missing
  }
  for (const auto& [what, hashes] : before.input_hashes) {
    const auto found = now.find(what);
    if (found == now.end() || found->second == hashes) continue;
    print_message(text(for_terminal(file), ": its ", what, " has changed since the claim was tested"));
    return {};
  }
  return before;
}

// Returns every NAME.toml of the folder, and of its subfolders, which are groups of claims.
std::vector<models::ListedVerdict> claims_in(const std::string& folder) {
  std::vector<models::ListedVerdict> all;
  const auto add = [&](const std::string& group, const std::string& inside) {
    const bool has_readme = !group.empty() && file_exists(inside + "/README.md");
    for (const std::string& path : files_in(inside))
      if (path.ends_with(".toml")) all.push_back({group, fs::path(path).stem().string(), {}, {}, "", has_readme});
  };
  add("", folder);
  std::vector<std::string> groups;
  for (const std::string& path : files_in(folder))
    if (folder_exists(path)) groups.push_back(fs::path(path).filename().string());
  std::sort(groups.begin(), groups.end());
  for (const std::string& group : groups) add(group, folder + "/" + group);
  return all;
}

// Writes README.md and verdicts.csv after every verdict, because a long study may be interrupted.
void list_verdicts(const StudySettings& s, const std::string& to, const std::vector<models::ListedVerdict>& all) {
  std::error_code none;
  const std::string claims = to == s.all ? "." : fs::relative(s.all, to, none).generic_string();
  list_outputs().write(to, "verdicts.csv", models::verdicts_csv(all));
  list_outputs().write(to, "README.md", models::verdicts_page(all, claims));
}

// Returns 0, 1 if a claim has an error or no verdict, or 128 + the signal that stopped it.
int test_listed(const StudySettings& s, const std::string& to, std::vector<models::ListedVerdict>& all) {
  const auto file_of = [&](const models::ListedVerdict& listed) { return s.all + "/" + listed.path() + ".toml"; };
  std::vector<models::ListedVerdict*> order;
  for (models::ListedVerdict& each : all) {
    each.error = "not tested yet";
    order.push_back(&each);
    try {
      each.claim = models::read_claim(file_of(each));
    } catch (const Error&) {  // reported when the claim is tested
    }
  }
  int code = 0;
  std::stable_partition(order.begin(), order.end(), [](const models::ListedVerdict* each) { return each->main(); });
  const auto attempt = [&](models::ListedVerdict& listed, const auto& action) {
    try {
      action();
    } catch (const Error& error) {
      code = 1, listed.error = error.what();
      print_message(for_terminal(error.what()));
    }
  };
  for (models::ListedVerdict* listed : order)
    attempt(*listed, [&] { listed->verdict = previous_verdict(s, file_of(*listed), to + "/" + listed->path()); });
  for (models::ListedVerdict* listed : order) {
    if (listed->verdict) {
      const std::string& version = listed->verdict->version;
      print_message(text(for_terminal(file_of(*listed)), ": tested before",
                         version == models::program_version() ? "" : " by orrery " + for_terminal(version)));
      continue;
    }
    if (!s.test || code > 128) continue;
    print_message(for_terminal(file_of(*listed)));
    attempt(*listed, [&] {
      StudyVerdict verdict;
      const int its = test_claim_file(s, file_of(*listed), to + "/" + listed->path(), verdict);
      code = std::max(code, its);
      if (its <= 1) listed->verdict = std::move(verdict);
    });
    if (code <= 128 && !s.smoke) list_verdicts(s, to, all);
  }
  return code;
}

int test_all(const StudySettings& s) {
  check(folder_exists(s.all), "study: there is no folder ", s.all,
        "; give a folder of claims, as in --all=examples/studies");
  std::vector<models::ListedVerdict> all = claims_in(s.all);
  check(!all.empty(), "study: ", s.all, " has no claims; a claim is a file NAME.toml");
  const std::string to = s.out.empty() ? s.all : s.out;
  if (!s.smoke) list_outputs().check(to);
  const FolderLock lock(to, {"study"});
  const int code = test_listed(s, to, all);
  if (!s.smoke) list_verdicts(s, to, all);
  Table table({"study", "verdict", "core minutes", "claim"}, "llrl");
  for (const models::ListedVerdict& each : all)
    table.add({each.path(), each.verdict ? each.verdict->label() : "-",
               each.verdict ? fixed(each.verdict->minutes_of_runs, 1) : "",
               each.verdict ? each.verdict->sentence : each.error});
  std::cout << "\n" << table.print();
  if (!s.smoke)
    std::cout << "files:\n  " << for_terminal(to) << "/README.md\n  " << for_terminal(to) << "/verdicts.csv\n";
  std::cout << std::flush;
  if (s.test) print_message(pool_line(s.runs));
  return code;
}

}  // namespace

CommandHelp study_help(const Arguments&) {
  StudySettings settings;
  return {
      "The file gives the claim's source, the runs to train, the metrics to compare and what would refute the "
      "claim (models/study/claim.h has every key).  Missing runs are trained and differences are computed seed by "
      "seed.  The verdict is one of three: `shown`, `not shown` or `reversed`, a difference in the other direction.  "
      "The results are verdict.json, table.csv, samples.csv, runs.csv and samples.svg; `orrery report` shows them.  "
      "--all tests every new or changed claim of a folder, first those with main = true, and lists all verdicts in "
      "README.md and verdicts.csv.",
      describe(settings_of(settings)),
      "The exit code is 1 if a run failed: then there is no verdict, and the same command tries that run again.  A "
      "diverged run has not failed.  With --all the exit code is 1 if a claim could not be tested.",
      "orrery study examples/studies/all_attention/feed_forward_can_be_dropped.toml\n"
      "orrery report runs/studies/feed_forward_can_be_dropped"};
}

int study(const Arguments& arguments) {
  StudySettings s;
  const std::vector<std::string> words = read_arguments("study", arguments, settings_of(s));
  if (!s.all.empty()) {
    check_usage(words.empty(), "study: --all tests every claim of ", s.all, "; leave '", words.empty() ? "" : words[0],
                "' out");
    return test_all(s);
  }
  check_usage(s.test,
              "study: --test=no only lists verdicts and requires --all=FOLDER; leave it out, or add --all=FOLDER");
  check_usage(words.size() == 1, "study: give ", words.empty() ? "a claim" : "one claim",
              ", as in orrery study examples/studies/all_attention/feed_forward_can_be_dropped.toml, or --all=FOLDER");
  StudyVerdict verdict;
  return test_claim_file(s, words[0], folder_of(s, words[0]), verdict);
}

}  // namespace orrery::program
