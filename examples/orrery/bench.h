// Cases that `orrery bench` times: but for those of scaling, the same names, sizes and counts of work as
// examples/benchmarks/pytorch_peer.py.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/tensor.h"
#include "examples/orrery/measure.h"

namespace orrery::program {

struct BenchFigure {
  Measured time;
  std::vector<std::pair<std::string, std::string>> extra;  // further fields, as JSON
};

struct BenchCase {
  std::string name;  // "gemm/2048x2048x2048"
  double work;       // of one call, in units of `unit` times a second
  std::string unit;
  std::function<BenchFigure(double seconds)> run;  // makes its tensors, spends about `seconds`, frees them
};

Tensor normal_tensor(const Shape& shape, uint64_t index);  // N(0, 1), f32; another for every index

std::vector<BenchCase> gemm_cases();
std::vector<BenchCase> row_cases();
std::vector<BenchCase> attention_cases();
std::vector<BenchCase> scaling_cases();  // of ours alone
std::vector<BenchCase> train_cases();

}  // namespace orrery::program
