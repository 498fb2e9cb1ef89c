// The training data of runs, as checkpoints record them, and how much of other data they are.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/system/hash.h"

namespace orrery::models {

// Tokens [begin, end) of a text that are, from `offset` on, the tokens of other data with this
// fingerprint, which have `all` tokens: of a file, or of the text that tokens were made of.
struct TextPart {
  Fingerprint fingerprint;
  int64_t begin = 0, end = 0, offset = 0, all = 0;
};

// Tokens [begin, end) of data with this fingerprint.
struct TrainedPart {
  Fingerprint fingerprint;
  int64_t begin = 0, end = 0;
  bool operator==(const TrainedPart&) const = default;
};

// The data that a run was trained on. Tasks warn of a validation on them.
struct TrainingData {
  Fingerprint fingerprint = {};         // Task::fingerprint; without a hash: unknown
  double held_out = 0;                  // fraction that was kept for validation, if the data have no split for it
  std::vector<TrainedPart> parts = {};  // of a text: what else is known to hold its tokens
  bool of_init_from = false;            // else the run's own
  bool operator==(const TrainingData&) const = default;
};

// How much of a validation is training data.
struct TrainingOverlap {
  int64_t trained = 0;
  bool of_init_from = false;  // all of it is
  double held_out = 0;        // a validation_fraction without training data; 0: unknown
};

class Text;
// Counts the tokens [begin, end) of a text, training split first, that any of the runs trained on.
TrainingOverlap trained_tokens(const Text& text, int64_t begin, int64_t end, std::span<const TrainingData> runs);
// Returns the first tokens of a text, `trained` of them, as parts of other data; none if there are
// more than 1,000, because each checkpoint records them.
std::vector<TrainedPart> trained_parts(const Text& text, int64_t trained);

// Returns the overlap of the run with the most `trained` units.
TrainingOverlap most_trained(std::span<const TrainingData> runs,
                             const std::function<int64_t(const TrainingData&)>& trained);

}  // namespace orrery::models
