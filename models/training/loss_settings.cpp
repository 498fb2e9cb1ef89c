#include "models/training/loss_settings.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <compare>
#include <set>

#include "engine/settings/registry.h"
#include "engine/types/check.h"
#include "models/data/text_format.h"
#include "models/data/tokenizer.h"
#include "models/tasks/base/task.h"

namespace orrery::models {
namespace {

// Bits for the metrics whose meaning a setting changes: losses; accuracy, bits_per_character, BLEU.
struct MetricKind {
  static constexpr unsigned validation = 1, metrics = 2, on_training = 4, steps = 8,
                            on_validation = validation | metrics, losses = validation | on_training | steps,
                            all = losses | metrics;
};

struct LossSetting {
  std::string_view key;
  unsigned metrics;
  bool splits = false;  // it defines how data are read and split
};
constexpr auto loss_settings =
    std::to_array<LossSetting>({{"data", MetricKind::all},
                                {"translations", MetricKind::all},
                                {"validation_data", MetricKind::on_validation},
                                {"validation_translations", MetricKind::on_validation},
                                {"validation_fraction", MetricKind::on_validation | MetricKind::on_training, true},
                                {"validation_tokens", MetricKind::on_validation, true},
                                {"training_loss_tokens", MetricKind::on_training, true},
                                {"training_loss_images", MetricKind::on_training, true},
                                {"training_loss_pairs", MetricKind::on_training, true},
                                {"source_column", MetricKind::all, true},
                                {"target_column", MetricKind::all, true},
                                {"document_column", MetricKind::all, true},
                                {"document_lines", MetricKind::all, true},
                                {"source_field", MetricKind::all, true},
                                {"target_field", MetricKind::all, true},
                                {"max_length", MetricKind::all, true},
                                {"skip_broken", MetricKind::all, true},
                                {"tokenizer", MetricKind::all},
                                {"documents", MetricKind::all},
                                {"loss", MetricKind::losses},
                                {"label_smoothing", MetricKind::steps},
                                {"mixup", MetricKind::steps},
                                {"problem", MetricKind::all},
                                {"validation_sequences", MetricKind::on_validation},
                                {"exchanged_sources", MetricKind::on_validation}});

const LossSetting* loss_setting(std::string_view key) {
  const auto* const found = std::find_if(loss_settings.begin(), loss_settings.end(),
                                         [&](const LossSetting& each) { return each.key == key; });
  return found == loss_settings.end() ? nullptr : found;
}

constexpr const char* metrics_of_targets[] = {"validation_loss", "training_loss", "loss",
                                              "accuracy",        "BLEU",          "bits_per_character"};

unsigned metric_bits(std::string_view metric) {
  if (metric == "validation_loss") return MetricKind::validation;
  if (metric == "training_loss") return MetricKind::on_training;
  if (metric == "loss") return MetricKind::steps;
  return metric == "accuracy" || metric == "bits_per_character" || metric == "BLEU" ? MetricKind::metrics : 0;
}

using ByKey = std::map<std::string, std::string, std::less<>>;

// Returns "" if a task has no such setting, or if it is no.
std::string listed_value(std::string_view key, const ByKey& settings) {
  const auto found = settings.find(key);
  return found == settings.end() || found->second == "no" ? std::string() : found->second;
}

struct Listed {
  ByKey settings;
  const std::map<std::string, Fingerprint>* fingerprints;  // LossMeaning::fingerprints
};

// A setting's value in a run, as text and as the fingerprint of what it names; empty: unknown.
struct Value {
  std::string setting, print;
  std::string division = {};  // how the data were read, if the fingerprint depends on it
  auto operator<=>(const Value&) const = default;
};
bool differ(const Value& a, const Value& b) {
  const bool known = !a.print.empty() && !b.print.empty() && a.division == b.division;
  return known ? a.print != b.print : a.setting != b.setting;
}

// Describes what a fingerprint includes: of a text all bytes, of pairs and images what was read.
std::string division_of(const ByKey& settings) {
  if (settings.contains("validation_tokens")) return "";
  std::string all = listed_value("validation_data", settings).empty() ? "" : "apart";
  for (const LossSetting& each : loss_settings)
    if (each.splits) all += text(" ", each.key, "=", listed_value(each.key, settings));
  return all;
}

Value setting_in(const Listed& run, std::string_view key) {
  Value value{listed_value(key, run.settings), ""};
  // The fingerprint of pairs includes their translations.
  const std::string_view named = key == "translations"              ? "data"
                                 : key == "validation_translations" ? "validation_data"
                                                                    : key;
  const auto found = run.fingerprints->find(std::string(named));
  if (found == run.fingerprints->end() || listed_value(named, run.settings).empty()) return value;
  const auto division = run.fingerprints->find(std::string(named) + division_mark);
  value.print = named != key ? "included" : found->second.sha256;
  if (named == key && division != run.fingerprints->end()) value.print += division->second.sha256;
  if (named != "tokenizer") value.division = division_of(run.settings);
  return value;
}

// Returns a setting's value if it changes the meaning of a run's metric, else an empty one.
// `tokenizers_known`: tokenizers are compared by their fingerprints.
Value relevant_value(const LossSetting& setting, const Listed& run, unsigned metric, bool tokenizers_known) {
  const auto value = [&](std::string_view key) { return listed_value(key, run.settings); };
  const std::string tokenizer = value("tokenizer");
  const bool separate = (metric & MetricKind::on_validation) != 0 && !value("validation_data").empty();
  if (setting.key == "validation_fraction" && separate) return {};
  if ((setting.key == "data" || setting.key == "translations") && separate) {
    // A vocabulary may be trained on the data, or come with their tokens.
    const TokenizerEntry* const named = tokenizers().find(tokenizer.substr(0, tokenizer.find('(')));
    if (metric == MetricKind::metrics || tokenizers_known || tokenizer.empty() ||
        ((!named || !named->train) && !has_tokens(value("data"))))
      return {};
  }
  const std::string tokens = value("validation_tokens");  // with a number of tokens, those of different texts
  if (setting.key == "tokenizer" && metric == MetricKind::metrics && (tokens.empty() || tokens == "0")) return {};
  return setting_in(run, setting.key);
}

bool is_of_data(std::string_view key) {
  return key == "validation_fraction" ||
         std::find(std::begin(paths_of_data), std::end(paths_of_data), key) != std::end(paths_of_data);
}

}  // namespace

bool defines_loss(std::string_view setting) { return loss_setting(setting) != nullptr; }
bool splits_data(std::string_view setting) {
  const LossSetting* const found = loss_setting(setting);
  return found && found->splits;
}

bool is_loss(std::string_view metric) { return (metric_bits(metric) & MetricKind::losses) != 0; }

std::vector<std::string> metrics_with_meaning(const std::string& pattern) {
  std::vector<std::string> all;
  for (const char* const metric : metrics_of_targets)
    if (::fnmatch(pattern.c_str(), metric, 0) == 0) all.emplace_back(metric);
  return all;
}

LossMeaning loss_meaning(const TrainSettings& settings, const CheckpointState& state) {
  LossMeaning run{settings, state.extra_inputs};
  if (!state.text.sha256.empty()) run.fingerprints["data"] = state.text;
  try {
    if (!setting_of(settings, "tokenizer").empty())
      run.fingerprints["tokenizer"] = fingerprint_of(*restore_tokenizer(state.tokenizer));
  } catch (const Error&) {
    run.fingerprints.erase("tokenizer");  // an imported run may have none
  }
  return run;
}

std::vector<std::string> differing_loss_settings(const std::string& metric, std::span<const LossMeaning> runs) {
  const unsigned bits = metric_bits(metric);
  if (bits == 0 || runs.empty()) return {};
  std::vector<Listed> all;
  for (const LossMeaning& run : runs) {
    const auto listed = list_settings(resolved(run.settings));
    all.push_back({{listed.begin(), listed.end()}, &run.fingerprints});
  }
  const bool tokenizers_known =
      std::all_of(all.begin(), all.end(), [](const Listed& run) { return run.fingerprints->contains("tokenizer"); });
  const auto any_differ = [&](const auto& value_of) {
    std::set<Value> values;
    for (const Listed& run : all) values.insert(value_of(run));
    return std::any_of(values.begin(), values.end(), [&](const Value& one) {
      return std::any_of(values.begin(), values.end(), [&](const Value& other) { return differ(one, other); });
    });
  };
  std::vector<std::string> differing;
  for (const LossSetting& each : loss_settings)
    if ((each.metrics & bits) != 0 && any_differ([&](const Listed& run) { return setting_in(run, each.key); }) &&
        any_differ([&](const Listed& run) { return relevant_value(each, run, bits, tokenizers_known); }))
      differing.emplace_back(each.key);
  return differing;
}

std::string comparability_note(const std::string& metric, std::span<const LossMeaning> runs) {
  const std::vector<std::string> differing = differing_loss_settings(metric, runs);
  if (differing.empty()) return "";
  const bool of_text = std::all_of(runs.begin(), runs.end(), [](const LossMeaning& run) {
    return !setting_of(run.settings, "validation_tokens").empty();  // a validation has bits_per_character
  });
  const bool by_loss = metric == "validation_loss" && of_text,
             has_bits = by_loss && differing_loss_settings("bits_per_character", runs).empty(),
             has_tokenizer = std::find(differing.begin(), differing.end(), "tokenizer") != differing.end();
  const bool has_data = (metric_bits(metric) & MetricKind::on_validation) != 0 &&
                        std::all_of(differing.begin(), differing.end(), [&](const std::string& key) {
                          return is_of_data(key) || (key == "tokenizer" && by_loss);
                        });
  const bool has_all_bits = (metric_bits(metric) & MetricKind::on_validation) != 0 && of_text &&
                            differing == std::vector<std::string>{"tokenizer"};
  std::vector<std::string> names;
  for (const std::string& key : differing) {
    const bool same = std::all_of(runs.begin(), runs.end(), [&](const LossMeaning& run) {
      return setting_of(run.settings, key) == setting_of(runs[0].settings, key);
    });
    names.push_back(same ? key + " (equal settings, other contents)" : key);
  }
  return text(metric, " has another meaning in runs that differ in ", join(names), "; ",
              has_bits       ? "compare bits_per_character"
              : has_all_bits ? "compare bits_per_character of all that is held out, with --validation_tokens=0"
              : has_data     ? "give all of them the same --validation_data"
                             : "compare runs with the same value of each",
              has_data && has_tokenizer && !has_bits && !has_all_bits ? " and compare bits_per_character" : "");
}

std::vector<std::string> comparability_notes(std::span<const LossMeaning> runs) {
  std::vector<std::string> notes, named;
  for (const char* const metric : {"validation_loss", "training_loss", "loss"}) {
    bool fresh = false;
    for (const std::string& key : differing_loss_settings(metric, runs))
      if (std::find(named.begin(), named.end(), key) == named.end()) fresh = true, named.push_back(key);
    if (fresh) notes.push_back(comparability_note(metric, runs));
  }
  return notes;
}

}  // namespace orrery::models
