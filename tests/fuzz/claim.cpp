// Claim files, and the verdicts that studies write.
#include "models/study/claim.h"

#include "models/reports/report_study.h"
#include "models/study/claim_result.h"
#include "models/study/verdict_file.h"
#include "tests/fuzz/format.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace {

using namespace fuzz;
using namespace orrery::models;

// Comparisons must name existing variants; metrics must be equal after printing and parsing.
void read_claim_file(const std::string& folder, std::string_view bytes) {
  const std::string path = folder + "/claim.toml";
  put(path, bytes);
  const Claim claim = read_claim(path);
  promise(!claim.source.empty() && !claim.sentence.empty() && !claim.variants.empty(),
          "a claim without source, sentence or variants");
  promise(!claim.refuted_if.empty(), "a claim without a refutation");
  promise(claim.kind == Claim::Kind::timed ? claim.rounds >= 2 : claim.seeds.size() >= 2,
          "a claim with fewer than two rounds or seeds");
  for (const MetricExpression& metric : claim.metrics)
    promise(print(parse_metric("again", print(metric))) == print(metric), "a printed metric is read back differently");
  const auto has = [&](const std::string& name) {
    return std::any_of(claim.variants.begin(), claim.variants.end(), [&](const auto& v) { return v.name == name; });
  };
  for (const Comparison& each : claim.refuted_if) {
    promise(has(each.left) && (!each.of_variants || has(each.right)), "a comparison with an unknown variant");
    promise(each.metric < claim.metrics.size(), "a comparison without a metric");
    promise(each.refuted != RefutedWhen::outside || each.bound > 0, "an equality without a margin");
  }
  const Claim smoke = for_smoke(claim);
  promise(smoke.variants.size() <= 2 && smoke.seeds.size() == 1 && smoke.swept_values() <= 2,
          "a smoke test with more than two variants, two values or one seed");
  for (size_t i = 0; i < claim.swept_values(); ++i)
    promise(!settings_of_run(claim, claim.variants[0], i, claim.seeds[0], 0).empty(), "a run without settings");
}

REGISTER_FORMAT(claim, {.name = "claim",
                        .readers = {"models/study/claim_file.cpp", "models/study/metric_expression.cpp",
                                    "models/study/refutation.cpp", "models/study/metric_inputs.cpp",
                                    "models/settings/settings_table.cpp", "models/settings/toml.cpp"},
                        .read = read_claim_file,
                        .memory_multiple = 4096,
                        .memory_base = 8 << 20,
                        .words = {"source = ",
                                  "sentence = ",
                                  "kind = ",
                                  "\"trained\"",
                                  "\"derived\"",
                                  "\"timed\"",
                                  "seeds = ",
                                  "[1, 2]",
                                  "metric = ",
                                  "validation_loss",
                                  "refuted_if = ",
                                  "relu",
                                  " > ",
                                  " != ",
                                  " +- ",
                                  " %",
                                  "[base]",
                                  "[sweep]",
                                  "[variants.",
                                  "]",
                                  "\n",
                                  "\"",
                                  "doubling(",
                                  "ratio(",
                                  "swept",
                                  ")",
                                  "0.01",
                                  "rounds = ",
                                  "1e999",
                                  "span/*: ",
                                  "steps = 4",
                                  "width",
                                  "learning_rates"}});

// Input: verdict.json, a line with a single =, table.csv.
void read_study(const std::string& folder, std::string_view bytes) {
  const size_t end = std::min(bytes.find("\n=\n"), bytes.size());
  put(folder + "/verdict.json", bytes.substr(0, end));
  bytes.remove_prefix(std::min(end + 3, bytes.size()));
  put(folder + "/table.csv", bytes);
  const StudyVerdict verdict = read_verdict(folder + "/verdict.json");
  write_verdict(folder + "/again.json", verdict);
  const StudyVerdict again = read_verdict(folder + "/again.json");
  promise(again.result.comparisons.size() == verdict.result.comparisons.size() && again.label() == verdict.label() &&
              again.sentence == verdict.sentence && again.missing == verdict.missing,
          "written and read again it is another verdict");
  Json sections = Json::array();
  add_study(sections, folder);
  promise(sections.size() >= 4, "a study has no claim, table or command");
}

REGISTER_FORMAT(study, {.name = "study",
                        .readers = {"models/study/verdict_file.cpp", "models/reports/report_study.cpp",
                                    "models/formats/csv.cpp", "models/formats/json.cpp"},
                        .read = read_study,
                        .memory_multiple = 4096,
                        .memory_base = 4 << 20,
                        .words = json_words({"\"verdict\":", "\"shown\"", "\"not shown\"", "\"comparisons\":",
                                             "\"missing\":", "\"low\":", "\n=\n", "metric,variant", "0.5", "false"})});

}  // namespace
