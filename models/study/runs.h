// Runs that studies share; each is known by its settings and inputs and trained once.
//
//   pool/ID.toml    settings that repeat the run
//   pool/ID.json    its outcome, after it has ended
//   pool/ID.log     output of the program that trained it
//   pool/ID/        its folder
//
// ID is RUN-SOURCES, such as 0123456789abcdef-0123456789ab: the run_hash, and the source_hash of the
// program that trains it (models/source_hash.h). Older versions wrote run_hash alone.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/system/hash.h"
#include "models/study/run_log.h"
#include "models/training/loss_settings.h"
#include "models/training/settings.h"

namespace orrery::models {

// Returns the fingerprints of a run's inputs, by setting: data, separate validation data, an
// external tokenizer, initial weights with their tokenizer; also the plug-ins that the settings
// use, as "plug-in PATH". Reads all these files.
std::map<std::string, Fingerprint> input_fingerprints(const TrainSettings& settings);

// Returns 16 hexadecimal digits: a hash of the resolved settings and their inputs (input_fingerprints). It
// leaves out settings that change no result: the run's folder, saving, threads, paths of the inputs.
std::string run_hash(const TrainSettings& settings);
struct IdentifiedRun {
  std::string hash;
  LossMeaning meaning;
};
IdentifiedRun identify_run(const TrainSettings& settings);  // reads the inputs once for both
// Returns a hash for a run whose inputs cannot be read, because of `why`; the run will fail.
std::string hash_of_unreadable(const TrainSettings& settings, const std::string& why);

bool is_run_id(std::string_view text);  // RUN-SOURCES, or RUN alone
std::string hash_of_id(const std::string& id);  // RUN

// The ids of runs in a pool's folder.
class RunIds {
 public:
  // `fresh`: ignores runs that programs of other sources trained.
  RunIds(std::string pool, bool fresh);
  // Returns the id under which this program trains the run. If only programs of other sources have
  // trained it, returns the id of their newest outcome.
  std::string of(const std::string& hash) const;

 private:
  std::string pool_;
  std::map<std::string, std::vector<std::string>> others_;  // by hash: ids of other sources
};

// Returns the version and source hash for outcomes and verdicts: "0.1.0 (sources 0123456789ab)".
std::string program_version();

struct Outcome {
  enum class Kind { done, diverged, failed };
  Kind kind = Kind::failed;
  int64_t step = 0;                       // the last; if diverged, where it was detected
  std::map<std::string, double> metrics;  // of the last validation, with validation_loss; finite values only
  double seconds = 0;                     // steps times the 10th percentile of the step time, to exclude other load
  std::string why;                        // if failed or diverged: the reason, a sentence
  std::string version;                    // program_version() of the program that trained it
};
std::string name(Outcome::Kind kind);

// Computes the outcome of a run that has ended from its rows. A run diverged if
// - its loss or gradients were not finite;
// - it ended worse than it began: the mean loss of the last tenth of the steps and the last
//   validation loss exceed the loss of the first step, before any update, by more than 0.5;
// - its gradient norm exceeded 1,000 times the median of the previous steps, and the loss did not
//   recover: the mean of the last tenth of the steps is not below the mean of the first tenth;
// - its gradient norm exceeded 10^8, and the mean loss of the last tenth is not below the mean of
//   the first tenth or the loss of the first step, or the median norm of the last tenth exceeds 10^8.
// With AdamW the loss of a diverged run stays bounded: it ends near that of predicting token frequencies.
Outcome outcome_of(const RunLog& log);

// Throws if the log of an ended run lacks steps, or has another last validation than the outcome.
void check_log(const std::string& run_folder, const Outcome& outcome);

// Returns true if the run has a loss after its last step: a diverged run that was not stopped has one.
bool is_complete(const std::string& run_folder, int64_t steps);

// Write and read pool/ID.json. Reading throws Error if the file is damaged, and returns nothing if
// it does not exist.
void write_outcome(const std::string& path, const Outcome& outcome);
std::optional<Outcome> read_outcome(const std::string& path);

}  // namespace orrery::models
