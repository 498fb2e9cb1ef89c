// orrery bench: orrery's side of the comparison with PyTorch.
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "engine/matmul/matmul.h"
#include "engine/settings/registry.h"
#include "engine/system/parallel.h"
#include "engine/system/version.h"
#include "engine/tensor/storage.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/bench.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/progress.h"
#include "examples/orrery/terminal/table.h"
#include "models/formats/json.h"

namespace orrery::program {
namespace {

struct BenchSettings {
  std::string only, precision = "highest", device = "cpu";
  int64_t threads = 0;
  double seconds = 2;
  bool json = false;

  Dtype dtype() const { return precision == "medium" ? Dtype::bf16 : Dtype::f32; }

  template <class V>
  void visit(V& v) {
    v("only", only, "run only the cases whose name contains this text; if not given, all");
    v("precision", precision,
      "highest (f32), high (on a GPU: products and attention as bf16 terms) or medium (all in bf16)",
      one_of({"highest", "high", "medium"}));
    v("device", device, "cpu or cuda", one_of({"cpu", "cuda"}));
    v("threads", threads, "cores to use; 0: OMP_NUM_THREADS, else all", between(0, 1024));
    v("seconds", seconds, "seconds per measurement", above(0, 3600));
    v("json", json, "print one JSON object per line, as read by compare.py");
  }
};

struct Group {
  std::string name, content;
  std::vector<BenchCase> (*cases)(Device);
};
const std::vector<Group>& groups() {
  static const std::vector<Group> all = {
      {"gemm", "matrix products", [](Device) { return gemm_cases(); }},
      {"rows", "operations on the rows of a 4096 x 1024 matrix, forward and with backward",
       [](Device) { return row_cases(); }},
      {"attention", "fused attention, forward and backward", [](Device) { return attention_cases(); }},
      {"scaling",
       "attention layers at increasing lengths and under masks, and ReLU's backward with half of the keys at weight 0",
       [](Device) { return scaling_cases(); }},
      {"train", "whole training steps: forward, backward, clipping, AdamW", train_cases},
      {"generate", "incremental decoding with a KV cache", [](Device) { return generate_cases(); }},
  };
  return all;
}
std::vector<std::string> group_names() {
  std::vector<std::string> names;
  for (const Group& group : groups()) names.push_back(group.name);
  return names;
}
const Group& group_at(const std::string& name) {
  for (const Group& group : groups())
    if (group.name == name) return group;
  const std::vector<std::string> names = group_names();
  const std::string meant = nearest(name, names);
  fail_usage("bench: unknown group '", name, "'; ", meant.empty() ? "" : "did you mean '" + meant + "'? ",
             "available: ", join(names));
}

double rounded(double x) { return std::round(x * 1e3) / 1e3; }

std::string json_line(const BenchCase& c, const BenchResult& result, const BenchSettings& s) {
  models::Json line = {{"case", c.name},
                       {"backend", "orrery-" + build().version},
                       {"dtype", s.dtype() == Dtype::bf16 ? "bf16" : "f32-" + s.precision},
                       {"device", s.device},
                       {"threads", thread_count()},
                       {"ms", rounded(result.time.best * 1e3)},
                       {"ms_median", rounded(result.time.median * 1e3)},
                       {"rate", rounded(c.work / result.time.best)},
                       {"unit", c.unit}};
  for (const auto& [key, value] : result.extra) line[key] = models::parse_own_json(value);
  return models::json_text(line);
}

std::string readable_line(const BenchCase& c, const BenchResult& result) {
  const auto padded = [](std::string s, size_t width, bool left) {
    const std::string space(s.size() < width ? width - s.size() : 0, ' ');
    return left ? s + space : space + s;
  };
  std::string line = padded(c.name, 36, true) + padded(fixed(result.time.best * 1e3, 3), 11, false) +
                     padded(fixed(result.time.median * 1e3, 3), 11, false) +
                     padded(fixed(c.work / result.time.best, 1), 11, false) + "  " + padded(c.unit, 9, true);
  for (const auto& [key, value] : result.extra) line += "  " + key + " " + value;
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

CommandHelp bench_help(const Arguments&) {
  BenchSettings settings;
  std::string about = "Groups:\n";
  for (const Group& group : groups()) about += "  " + group.name + ": " + group.content + "\n";
  return {about, describe(settings_of(settings)), "", "orrery bench rows train --only gpt-char --threads 2",
          group_names()};
}

int bench(const Arguments& arguments) {
  BenchSettings s;
  const std::vector<std::string> words = read_arguments("bench", arguments, settings_of(s));
  check_usage(!words.empty(), "bench: no group is given; available: ", join(group_names()));
  const Device device = parse_device(s.device);
  check_available(device);
  check_usage(
      s.precision != "high" || device == Device::cuda,
      "bench: --precision=high requires --device=cuda, since it uses tensor cores; on the CPU use highest or medium");
  set_product_precision(s.precision == "high" ? ProductPrecision::high : ProductPrecision::highest);
  std::vector<BenchCase> cases;
  for (const std::string& word : words)
    for (BenchCase& c : group_at(word).cases(device))
      if (c.name.find(s.only) != std::string::npos && (c.on_device || device == Device::cpu))
        cases.push_back(std::move(c));
  // JSON output may be empty: compare.py may request a case that only PyTorch has.
  check_usage(s.json || !cases.empty(), "bench: no case of these groups on ", device, " has a name that contains '",
              s.only, "'; leave --only out to run all");
  if (s.threads > 0) set_thread_count(static_cast<int>(s.threads));
  if (!s.json && device == Device::cuda) std::cout << "GPU: " << description(device) << "\n";
  if (!s.json)
    std::cout << "case                                       ms best  ms median       rate  unit         ("
              << pluralize(thread_count(), "thread") << ")" << std::endl;
  Progress progress("timing", Progress::Results::shown_at_once);
  double done = 0;
  for (const BenchCase& c : cases) {
    progress.fraction("timed", done++ / static_cast<double>(cases.size()));
    const BenchResult result = c.run({s.seconds, device, s.dtype()});
    std::cout << (s.json ? json_line(c, result, s) : readable_line(c, result)) << std::endl;
  }
  return 0;
}

}  // namespace orrery::program
