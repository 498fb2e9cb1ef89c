// Fault injection: the n-th allocation, write, fsync, rename, ... of a command fails, for all n
// (here a sample; sh tests/fault_injection.sh takes all). The command must exit with 0, or with 1
// and a message. A run folder loses nothing; a resumed run is byte-identical to an undisturbed one.
// With an MPI the same holds for calls on one rank of two; none of its processes is left.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "tests/fault_injection/runs.h"

namespace {

namespace fs = std::filesystem;
using namespace fault_injection;

const char* const scale = std::getenv("ORRERY_FAILURES");
const bool take_all = scale && std::string(scale) == "all";
const long most = scale ? std::atol(scale) : 0;  // of a kind and command, instead of the sample
const char* const from = std::getenv("ORRERY_FAILURES_FROM");
const long first_allocation = from ? std::max(1L, std::atol(from)) : 1;

struct Sample {  // of the calls of a kind
  long allocations = 40, others = 40, lasting = 12;
};

struct Command {
  std::string name, from;  // initial folder
  Words words;
  bool uses_plugin = false;
  // Returns what is wrong with the files that the command left, or "".
  std::function<std::string(const std::string& folder, const RunResult& ran, const RunResult& undisturbed)> check;
  Sample sample = {};
  std::optional<FailingRank> rank = {};

  RunResult run(const std::string& folder, const Failure& failure) const {
    return rank ? run_on_ranks(folder, words, *rank, failure)
                : fault_injection::run(folder, words, failure, uses_plugin ? Templates::get().plugin : "");
  }
};

std::vector<Command> commands() {
  const Templates& t = Templates::get();
  const auto unchanged = [&t](const std::string& folder, const RunResult& ran,
                              const RunResult& undisturbed) -> std::string {
    if (files_of(folder + "/run") != files_of(t.done + "/run")) return "changes the run";
    return ran.code == 0 && ran.out != undisturbed.out ? "prints something else" : "";
  };
  const auto any = [](const std::string&, const RunResult&, const RunResult&) { return std::string(); };
  const auto checks = [](const Undisturbed& its, bool had_checkpoint) {
    return [&its, had_checkpoint](const std::string& folder, const RunResult& ran, const RunResult&) {
      return wrong_run(folder, ran, its, had_checkpoint);
    };
  };
  std::vector<Command> all = {
      {"train", t.fresh, train_words(), false, checks(t.one, false)},
      {"resume", t.begun, train_words() + Words{"--resume=yes"}, false, checks(t.one, true)},
      {"generate", t.done, {"generate", "--checkpoint=run", "--tokens=12", "--threads=1"}, false, unchanged},
      {"list", t.done, {"list"}, false, unchanged},
      {"try", t.done, {"try", "formula.cpp", "--data=text.txt", "--steps=2", "--out=plugins"}, true, any},
      {"two threads", t.fresh, train_words() + Words{"--threads=2", "--width=32", "--context=32", "--batch_size=8"},
       false, any},
  };
  const Sample sample = {.allocations = 8, .others = 3, .lasting = 2};  // a launcher takes most of a second
  for (const std::string& mpi : mpis()) {
    if (!scale && mpi != mpis()[0]) continue;
    for (const int rank : {0, 1}) {
      const std::string where = " on rank " + std::to_string(rank) + " of " + mpi;
      const FailingRank failing{mpi, rank};
      all.push_back({"ranks: train" + where, t.fresh, t.ranks.words, false, checks(t.ranks, false), sample, failing});
      if (scale)
        all.push_back({"ranks: resume" + where, t.ranks.begun, t.ranks.words + Words{"--resume=yes"}, false,
                       checks(t.ranks, true), sample, failing});
    }
  }
  return all;
}

// Returns all of first ... count, or an even sample with both ends.
std::vector<long> sampled_calls(const Sample& sample, const std::string& kind, long last, bool lasting) {
  const long first = kind == "allocation" ? std::min(first_allocation, last) : 1, count = last - first + 1;
  const long in_sample = lasting ? sample.lasting : kind == "allocation" ? sample.allocations : sample.others;
  const long some = most > 0 ? most : in_sample;
  const long limit = take_all ? count : std::min(count, some);
  std::set<long> all;
  for (long i = 0; i < limit; ++i) all.insert(limit == 1 ? first : first + i * (count - 1) / (limit - 1));
  return {all.begin(), all.end()};
}

struct Tally {
  std::mutex mutex;
  std::map<std::string, long> tried;
  std::vector<std::string> wrong;
};

// Each trial has its own folder and process, so trials run on all cores.
void try_all(const Command& command, const std::vector<Failure>& trials, const RunResult& undisturbed, Tally& tally) {
  const ScratchFolder scratch;
  std::atomic<size_t> next = 0;
  const auto work = [&](unsigned worker) {
    const std::string folder = scratch / std::to_string(worker);
    for (size_t i; (i = next++) < trials.size();) {
      const Failure& failure = trials[i];
      copy_folder(command.from, folder);
      const RunResult ran = command.run(folder, failure);
      std::string wrong = wrong_end(ran);
      const bool harmless = failure.kind == "short_write" || failure.kind == "interrupted";
      if (wrong.empty() && harmless && ran.code != 0) wrong = "gives up: " + ran.err;
      const std::string left = command.check(folder, ran, undisturbed);
      // A checkpoint that could not be removed is reported and stays until the next run.
      const bool warned = ran.err.find("warning: an old checkpoint was not removed") != std::string::npos;
      if (!left.empty() && !(warned && left.starts_with("leaves "))) wrong += (wrong.empty() ? "" : "; ") + left;
      fs::remove_all(folder);
      const std::lock_guard lock(tally.mutex);
      ++tally.tried[command.name + ", " + failure.kind];
      if (!wrong.empty())
        tally.wrong.push_back(command.name + ", " + failure.kind + " " + std::to_string(failure.at) +
                              (failure.lasting ? " and all after it" : "") + " fails: " + wrong);
    }
  };
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) workers.emplace_back(work, i);
  for (std::thread& worker : workers) worker.join();
}

void try_command(const Command& command, Tally& tally) {
  const ScratchFolder scratch;
  copy_folder(command.from, scratch / "counted");
  const RunResult counted = command.run(scratch / "counted", {});
  INFO(counted.err);
  REQUIRE(counted.code == 0);
  REQUIRE(counted.counts.size() > 10);
  std::vector<Failure> trials;
  for (const auto& [kind, count] : counted.counts)
    for (const bool lasting : {false, true})
      for (const long at : sampled_calls(command.sample, kind, count, lasting))
        if (!(lasting && (kind == "interrupted" || kind == "short_write" || kind == "close")))
          trials.push_back({kind, at, lasting});
  try_all(command, trials, counted, tally);
}

}  // namespace

TEST_CASE("failures: if the n-th call fails, every command succeeds or has an error message, and loses nothing") {
  Tally tally;
  for (const Command& command : commands()) {
    if (const char* const one = std::getenv("ORRERY_FAILURES_OF"); one && !command.name.starts_with(one)) continue;
    try_command(command, tally);
  }
  std::string tried;
  for (const auto& [what, n] : tally.tried) tried += "  " + what + ": " + std::to_string(n) + "\n";
  MESSAGE("failures tried:\n", tried, tally.wrong.size(), " ended wrong");
  for (const std::string& wrong : tally.wrong) FAIL_CHECK(wrong);
}
