// Runs that studies share: each is known by what decides its numbers, is trained once, and has one outcome.
//
//   pool/0123456789abcdef.toml    settings that repeat it
//   pool/0123456789abcdef.json    its outcome, once it has ended
//   pool/0123456789abcdef.log     what the program that trained it has printed
//   pool/0123456789abcdef/        its folder
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "models/study/run_log.h"
#include "models/training/settings.h"

namespace orrery::models {

// 16 hexadecimal digits of the resolved settings and of the data, without what changes no number: where it is written,
// how often it is saved, how many threads it has, and by which path the data are found.  Reads the data.
std::string run_key(const TrainSettings& settings);

struct Outcome {
  enum class Kind { done, diverged, failed };
  Kind kind = Kind::failed;
  int64_t step = 0;                       // the last; of a diverged run the one at which it was seen
  std::map<std::string, double> figures;  // of the last validation, validation_loss among them; those that are numbers
  double seconds = 0;                     // of its steps
  std::string why;                        // of one that failed or diverged, a sentence
  std::string version;                    // of the program that trained it
};
std::string name(Outcome::Kind kind);

// What the rows of a run that has ended say.  A run diverged if its loss or gradients were not finite, or if the
// norm of the gradients rose beyond 1,000 times the median of the steps before and the last loss (the mean of the last
// tenth of the steps) lies above the first tenth's: AdamW bounds a run that is lost, and it ends at the loss of a guess
// by frequency.
Outcome outcome_of(std::span<const LogRow> log);

void write_outcome(const std::string& path, const Outcome& outcome);
std::optional<Outcome> read_outcome(const std::string& path);  // none if there is no such file

}  // namespace orrery::models
