// Cases that `orrery bench` times. Names, sizes and counts of work equal those of
// examples/benchmarks/pytorch_baseline.py, except for scaling.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/tensor/storage.h"
#include "engine/tensor/tensor.h"
#include "examples/orrery/terminal/timing.h"

namespace orrery::program {

struct BenchRun {  // options of a case
  double seconds;  // approximate time per measurement
  Device device = Device::cpu;
  Dtype dtype = Dtype::f32;  // dtype of all timed tensors
};

struct BenchResult {
  Timing time;
  std::vector<std::pair<std::string, std::string>> extra;  // more fields, as JSON
};

struct BenchCase {
  std::string name;  // "gemm/2048x2048x2048"
  double work;       // per call; work / time has unit `unit`
  std::string unit;
  bool on_device = true;                            // not only on the CPU
  std::function<BenchResult(const BenchRun&)> run;  // allocates its tensors and frees them
};

// N(0, 1), with different values for each index.
Tensor normal_tensor(const Shape& shape, uint64_t index, Device device = Device::cpu, Dtype dtype = Dtype::f32);

// Times f until the work that it queues is done.
template <class F>
Timing measure_on(const BenchRun& run, const F& f) {
  const auto whole = [&] { f(), synchronize(); };
  return measure(whole, run.seconds);
}

// The cases of each group of `orrery bench`.
std::vector<BenchCase> gemm_cases();
std::vector<BenchCase> row_cases();
std::vector<BenchCase> attention_cases();
std::vector<BenchCase> scaling_cases();  // orrery only
// Larger batches and longer texts on a GPU, which the CPU's sizes would not fill.
std::vector<BenchCase> train_cases(Device device);
std::vector<BenchCase> generate_cases();

}  // namespace orrery::program
