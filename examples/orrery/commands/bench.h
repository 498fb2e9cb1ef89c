// Cases that `orrery bench` times: but for those of scaling, the same names, sizes and counts of work as
// examples/benchmarks/pytorch_peer.py.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/tensor/storage.h"
#include "engine/tensor/tensor.h"
#include "examples/orrery/terminal/measure.h"

namespace orrery::program {

struct BenchRun {  // how a case is run
  double seconds;  // to spend on a figure, about
  Device device = Device::cpu;
  Dtype dtype = Dtype::f32;  // of all that is timed
};

struct BenchFigure {
  Measured time;
  std::vector<std::pair<std::string, std::string>> extra;  // further fields, as JSON
};

struct BenchCase {
  std::string name;  // "gemm/2048x2048x2048"
  double work;       // of one call, in units of `unit` times a second
  std::string unit;
  bool on_device = true;                            // whether it runs on another device than the CPU as well
  std::function<BenchFigure(const BenchRun&)> run;  // makes its tensors, and frees them
};

// N(0, 1); another for every index
Tensor normal_tensor(const Shape& shape, uint64_t index, Device device = Device::cpu, Dtype dtype = Dtype::f32);

// measure(), to the end of the work that f queues.
template <class F>
Measured measure_on(const BenchRun& run, const F& f) {
  const auto whole = [&] { f(), synchronize(); };
  return measure(whole, run.seconds);
}

std::vector<BenchCase> gemm_cases();
std::vector<BenchCase> row_cases();
std::vector<BenchCase> attention_cases();
std::vector<BenchCase> scaling_cases();  // of ours alone
// Larger batches and longer texts on a GPU, which a CPU's sizes would leave idle.
std::vector<BenchCase> train_cases(Device device);
std::vector<BenchCase> generate_cases();

}  // namespace orrery::program
