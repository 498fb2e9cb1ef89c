// Comparison of runs: settings, metrics and parameters.
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
  std::vector<std::optional<std::string>> values;  // one per run; none: the run lacks the setting
};
// Returns the settings that differ once every spec is completed, without `out` and the settings of
// resuming. Values are as written (shorter), or completed if the written ones are equal.
std::vector<DifferingSetting> differing_settings(std::span<const TrainSettings> runs);

struct DifferingMetric {
  std::string name;
  double first = 0, second = 0;
};
struct LogComparison {
  int64_t steps = 0, last = 0;           // number of common steps, and the last of them
  int64_t first_difference = -1;         // first common step where a metric differs; -1: none
  std::vector<DifferingMetric> metrics;  // metrics that differ there: of the whole model, then of its modules
};
// Compares the metrics that both logs have at a step bit for bit, without timings. Rows must be
// ordered by step, as runs write them.
LogComparison compare_logs(const RunLog& first, const RunLog& second);

struct ParameterDifference {
  std::string name;
  double relative = 0;  // ||a - b|| / ||a||, infinite if ||a|| is 0
  double largest = 0;   // |a - b|
};
struct ParameterComparison {
  std::vector<ParameterDifference> differing;  // largest relative difference first
  std::vector<std::string> same;               // all values are equal
  std::vector<std::string> first_alone, second_alone;
  std::vector<std::string> other_shape;  // "head.weight (65, 128) and (65, 64)"
};
// Compares tensors of equal names, bit for bit, on the CPU.
ParameterComparison compare_parameters(std::span<const NamedTensor> first, std::span<const NamedTensor> second);

}  // namespace orrery::models
