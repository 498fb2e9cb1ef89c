// Runs held against each other: their settings, their figures, their parameters.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/tensor/safetensors.h"
#include "models/study/run_log.h"
#include "models/training/settings.h"

namespace orrery::models {

struct DifferingSetting {
  std::string key;
  std::vector<std::optional<std::string>> values;  // of each run; none: it has no such setting
};
// Settings that, with every spec complete, are not the same in all runs; without `out` and what is said about
// resuming.  The values are as the runs have them, which is shorter, unless they differ only when they are complete.
std::vector<DifferingSetting> differing_settings(std::span<const TrainSettings> runs);

struct PartingFigure {
  std::string name;
  double first = 0, second = 0;
};
struct LogComparison {
  int64_t steps = 0, last = 0;         // that both have: how many, and the last of them
  int64_t parting = -1;                // the first of them in which a figure differs; -1: none does
  std::vector<PartingFigure> figures;  // that differ there; those of the whole model first, then those of its parts
};
// Compares the numbers that both logs have at a step, to the bit; durations are left out. The rows
// must be in the order of their steps, as runs write them.
LogComparison compare_logs(const RunLog& first, const RunLog& second);

struct ParameterDifference {
  std::string name;
  double relative = 0;  // ||a - b|| / ||a||, infinite if ||a|| is 0
  double largest = 0;   // |a - b|
};
struct ParameterComparison {
  std::vector<ParameterDifference> differing;  // the greatest relative difference first
  std::vector<std::string> same;               // every number is
  std::vector<std::string> first_alone, second_alone;
  std::vector<std::string> other_shape;  // "head.weight (65, 128) and (65, 64)"
};
ParameterComparison compare_parameters(std::span<const NamedTensor> first, std::span<const NamedTensor> second);

}  // namespace orrery::models
