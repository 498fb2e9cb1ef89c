#include "tests/gpu_static/figures.h"

#include "examples/orrery/commands/bench.h"
#include "tests/gpu_static/recorder.h"

using namespace orrery;
using program::BenchCase;

namespace {

// A benchmark calls its function at least five times and waits after each call. Work between two
// waits is one call if it is equal four times in a row; earlier work is preparation. Attention is
// timed twice, with and without backward.
std::vector<recorder::Entries> calls_of(const BenchCase& figure, Dtype dtype, program::BenchFigure& result) {
  constexpr size_t least = 4;
  std::vector<recorder::Entries> calls;
  size_t same = 0;
  recorder::Entries latest;
  recorder::at_synchronize = [&] {
    recorder::Entries now = std::exchange(recorder::entries, {});
    recorder::phase = "forward";
    same = now == latest ? same + 1 : 1;
    if (same == least && now.has_work()) calls.push_back(now);
    latest = std::move(now);
  };
  recorder::active = true;
  result = figure.run({1e-9, Device::cuda, dtype});
  recorder::active = false;
  recorder::at_synchronize = {};
  return calls;
}

void record(const BenchCase& figure, Dtype dtype, std::FILE* file) {
  program::BenchFigure result;
  const std::vector<recorder::Entries> calls = calls_of(figure, dtype, result);
  std::string parameters = "0";
  for (const auto& [key, value] : result.extra)
    if (key == "parameters") parameters = value;
  constexpr double both_to_forward = 3.5;  // operations of attention with backward, relative to forward
  check(!calls.empty() && calls.size() <= 2, figure.name, ": ", calls.size(), " kinds of calls were timed");
  for (size_t n = 0; n < calls.size(); ++n) {
    std::fprintf(file, "# figure\t%s\t%s%s\t%.9g\t%s\t%s\n", dtype == Dtype::bf16 ? "bf16" : "f32",
                 figure.name.c_str(), n ? "/forward" : "", n ? figure.work / both_to_forward : figure.work,
                 figure.unit.c_str(), parameters.c_str());
    calls[n].write(file);
  }
}

}  // namespace

void record_figures(std::FILE* file) {
  for (const auto& [dtype, cases] :
       {std::pair(Dtype::f32, program::gemm_cases()), {Dtype::f32, program::row_cases()},
        {Dtype::f32, program::attention_cases()}, {Dtype::bf16, program::gemm_cases()},
        {Dtype::bf16, program::attention_cases()}, {Dtype::bf16, program::train_cases(Device::cuda)}})
    for (const BenchCase& figure : cases)
      if (!figure.name.starts_with("train/") || figure.name.starts_with("train/gpt")) record(figure, dtype, file);
}
