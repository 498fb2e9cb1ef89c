// Runs that studies share: each is known by what decides its numbers, is trained once, and has one outcome.
//
//   pool/ID.toml    settings that repeat it
//   pool/ID.json    its outcome, once it has ended
//   pool/ID.log     what the program that trained it has printed
//   pool/ID/        its folder
//
// ID is KEY-HASH, such as 0123456789abcdef-0123456789ab: the run's key, and the source_hash of the
// program that trains it (models/study/source_hash.h). Former programs wrote the key alone.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/system/hash.h"
#include "models/study/run_log.h"
#include "models/training/settings.h"

namespace orrery::models {

// What a run is made of beside its settings, by the setting that names it: the data, validation data of its own, a
// tokenizer made elsewhere, the weights and the tokenizer that it begins with; and by "plug-in PATH" those of which
// the settings name something.  Reads all of it.
std::map<std::string, Fingerprint> read_by(const TrainSettings& settings);

// 16 hexadecimal digits of the resolved settings and of what is read_by them, without what changes no number: where it
// is written, how often it is saved, how many threads it has, and by which paths that is found.
std::string run_key(const TrainSettings& settings);
// The same where that cannot be read, as `why` says: the run will fail by it.
std::string key_of_unreadable(const TrainSettings& settings, const std::string& why);

bool is_run_id(std::string_view text);  // KEY-HASH, or KEY alone
std::string key_of_id(const std::string& id);

// The ids of runs in a pool's folder.
class RunIds {
 public:
  // fresh: only runs of this program's sources count.
  RunIds(std::string pool, bool fresh);
  // The id under which this program trains the run. If a program of other sources has trained it and this one has not,
  // the id of that outcome, the newest of several.
  std::string of(const std::string& key) const;

 private:
  std::string pool_;
  std::map<std::string, std::vector<std::string>> others_;  // of each key, ids of other sources
};

// Version and sources of this program, as outcomes and verdicts name it: "0.1.0 (sources 0123456789ab)".
std::string program_version();

struct Outcome {
  enum class Kind { done, diverged, failed };
  Kind kind = Kind::failed;
  int64_t step = 0;                       // the last; of a diverged run the one at which it was seen
  std::map<std::string, double> figures;  // of the last validation, validation_loss among them; those that are numbers
  double seconds = 0;                     // of its steps, each as the fastest tenth of them: other work does not count
  std::string why;                        // of one that failed or diverged, a sentence
  std::string version;                    // program_version() of the program that trained it
};
std::string name(Outcome::Kind kind);

// What the rows of a run that has ended say.  A run diverged if
// - its loss or gradients were not finite;
// - it ended worse than it began: the mean loss of the last tenth of the steps and the last validation both lie more
//   than 0.5 above the loss of the first step, which is that of weights that have learned nothing here;
// - the norm of its gradients rose beyond 10^8, or beyond 1,000 times the median of the steps before, and the loss did
//   not come back: its last tenth lies above the first (AdamW bounds a run that is lost, and it ends at the loss of a
//   guess by frequency), or the norm was still beyond 10^8 at the end.
Outcome outcome_of(const RunLog& log);

// Throws if the log of a run that has ended lacks rows of steps, or has another last validation than the outcome.
void check_log(const std::string& run_folder, const Outcome& outcome);

void write_outcome(const std::string& path, const Outcome& outcome);
std::optional<Outcome> read_outcome(const std::string& path);  // none if there is no such file

}  // namespace orrery::models
