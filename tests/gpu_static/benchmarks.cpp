#include "tests/gpu_static/benchmarks.h"

#include "examples/orrery/commands/bench.h"
#include "tests/gpu_static/recorder.h"

using namespace orrery;
using program::BenchCase;

namespace {

// A benchmark calls its function at least five times and waits after each call. Work between two
// waits is one call if it is equal four times in a row; earlier work is preparation. Attention is
// timed twice, with and without backward.
std::vector<recorder::Entries> calls_of(const BenchCase& bench, Dtype dtype, program::BenchResult& result) {
  constexpr size_t min_calls = 4;
  std::vector<recorder::Entries> calls;
  size_t same = 0;
  recorder::Entries latest;
  recorder::at_synchronize = [&] {
    recorder::Entries now = std::exchange(recorder::entries, {});
    recorder::phase = "forward";
    same = now == latest ? same + 1 : 1;
    if (same == min_calls && now.has_work()) calls.push_back(now);
    latest = std::move(now);
  };
  recorder::active = true;
  result = bench.run({1e-9, Device::cuda, dtype});
  recorder::active = false;
  recorder::at_synchronize = {};
  return calls;
}

void record(const BenchCase& bench, Dtype dtype, std::FILE* file) {
  program::BenchResult result;
  const std::vector<recorder::Entries> calls = calls_of(bench, dtype, result);
  std::string parameters = "0";
  for (const auto& [key, value] : result.extra)
    if (key == "parameters") parameters = value;
  constexpr double both_to_forward = 3.5;  // operations of attention with backward, relative to forward
  check(!calls.empty() && calls.size() <= 2, bench.name, ": ", calls.size(), " kinds of calls were timed");
  for (size_t n = 0; n < calls.size(); ++n) {
    std::fprintf(file, "# benchmark\t%s\t%s%s\t%.9g\t%s\t%s\n", dtype == Dtype::bf16 ? "bf16" : "f32",
                 bench.name.c_str(), n ? "/forward" : "", n ? bench.work / both_to_forward : bench.work,
                 bench.unit.c_str(), parameters.c_str());
    calls[n].write(file);
  }
}

}  // namespace

void record_benchmarks(std::FILE* file) {
  for (const auto& [dtype, cases] : {std::pair(Dtype::f32, program::gemm_cases()),
                                     {Dtype::f32, program::row_cases()},
                                     {Dtype::f32, program::attention_cases()},
                                     {Dtype::bf16, program::gemm_cases()},
                                     {Dtype::bf16, program::attention_cases()},
                                     {Dtype::bf16, program::train_cases(Device::cuda)}})
    for (const BenchCase& bench : cases)
      if (!bench.name.starts_with("train/") || bench.name.starts_with("train/gpt")) record(bench, dtype, file);
}
