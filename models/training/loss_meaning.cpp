#include "models/training/loss_meaning.h"

#include <algorithm>
#include <array>
#include <map>

#include "engine/settings/registry.h"
#include "engine/types/check.h"
#include "models/data/prepared.h"
#include "models/data/tokenizer.h"

namespace orrery::models {
namespace {

// Bits for the metrics whose meaning a setting changes; figures: accuracy, bits_per_character, BLEU.
struct Of {
  static constexpr unsigned validation = 1, figures = 2, sample = 4, steps = 8, held_out = validation | figures,
                            losses = validation | sample | steps, all = losses | figures;
};

struct MeaningSetting {
  std::string_view key;
  unsigned metrics;
  bool divides = false;  // it says how data are read and split
};
constexpr auto meaning_settings =
    std::to_array<MeaningSetting>({{"data", Of::all},
                                   {"translations", Of::all},
                                   {"validation_data", Of::held_out},
                                   {"validation_translations", Of::held_out},
                                   {"validation_fraction", Of::held_out | Of::sample, true},
                                   {"validation_tokens", Of::held_out, true},
                                   {"training_loss_tokens", Of::sample, true},
                                   {"training_loss_images", Of::sample, true},
                                   {"training_loss_pairs", Of::sample, true},
                                   {"source_column", Of::all, true},
                                   {"target_column", Of::all, true},
                                   {"document_column", Of::all, true},
                                   {"document_lines", Of::all, true},
                                   {"longest", Of::all, true},
                                   {"skip_broken", Of::all, true},
                                   {"tokenizer", Of::all},
                                   {"documents", Of::all},
                                   {"loss", Of::losses},
                                   {"label_smoothing", Of::steps},
                                   {"mixup", Of::steps},
                                   {"problem", Of::all},
                                   {"validation_sequences", Of::held_out},
                                   {"exchanged_sources", Of::held_out}});

const MeaningSetting* meaning_setting(std::string_view key) {
  const auto* const found = std::find_if(meaning_settings.begin(), meaning_settings.end(),
                                         [&](const MeaningSetting& each) { return each.key == key; });
  return found == meaning_settings.end() ? nullptr : found;
}

unsigned metric_bits(std::string_view metric) {
  if (metric == "validation_loss") return Of::validation;
  if (metric == "training_loss") return Of::sample;
  if (metric == "loss") return Of::steps;
  return metric == "accuracy" || metric == "bits_per_character" || metric == "BLEU" ? Of::figures : 0;
}

using ByKey = std::map<std::string, std::string, std::less<>>;

// Returns "" if a task has no such setting, or if it is no.
std::string listed_value(std::string_view key, const ByKey& settings) {
  const auto found = settings.find(key);
  return found == settings.end() || found->second == "no" ? std::string() : found->second;
}

// Returns a setting's value if it changes the meaning of a run's metric, else "".
std::string meaningful_value(const MeaningSetting& setting, const ByKey& settings, unsigned metric) {
  const auto value = [&](std::string_view key) { return listed_value(key, settings); };
  const std::string tokenizer = value("tokenizer");
  const bool separate = (metric & Of::held_out) != 0 && !value("validation_data").empty();
  if (setting.key == "validation_fraction" && separate) return "";
  if ((setting.key == "data" || setting.key == "translations") && separate) {
    // The data also make a learned vocabulary, or hold the tokens' own.
    const TokenizerEntry* const named = tokenizers().find(tokenizer.substr(0, tokenizer.find('(')));
    if (metric == Of::figures || ((!named || !named->train) && !is_prepared(value("data")))) return "";
  }
  const std::string tokens = value("validation_tokens");  // with a number of tokens, those of different texts
  if (setting.key == "tokenizer" && metric == Of::figures && (tokens.empty() || tokens == "0")) return "";
  return value(setting.key);
}

}  // namespace

bool gives_meaning(std::string_view setting) { return meaning_setting(setting) != nullptr; }
bool divides_data(std::string_view setting) {
  const MeaningSetting* const found = meaning_setting(setting);
  return found && found->divides;
}

bool is_loss(std::string_view metric) { return (metric_bits(metric) & Of::losses) != 0; }

std::vector<std::string> settings_of_other_meaning(const std::string& metric, std::span<const TrainSettings> runs) {
  const unsigned bits = metric_bits(metric);
  if (bits == 0 || runs.empty()) return {};
  std::vector<ByKey> all;
  for (const TrainSettings& run : runs) {
    const auto listed = list_settings(resolved(run));
    all.emplace_back(listed.begin(), listed.end());
  }
  const auto differ = [&](const auto& value_in) {
    const std::string first = value_in(all[0]);
    return std::any_of(all.begin(), all.end(), [&](const ByKey& run) { return value_in(run) != first; });
  };
  std::vector<std::string> differing;
  for (const MeaningSetting& each : meaning_settings)
    if ((each.metrics & bits) != 0 && differ([&](const ByKey& run) { return listed_value(each.key, run); }) &&
        differ([&](const ByKey& run) { return meaningful_value(each, run, bits); }))
      differing.emplace_back(each.key);
  return differing;
}

std::string note_of_other_meaning(const std::string& metric, std::span<const TrainSettings> runs) {
  const std::vector<std::string> differing = settings_of_other_meaning(metric, runs);
  if (differing.empty()) return "";
  const bool of_text = std::all_of(runs.begin(), runs.end(), [](const TrainSettings& run) {
    return !setting_of(run, "validation_tokens").empty();  // a validation has bits_per_character
  });
  const bool has_bits =
      metric == "validation_loss" && of_text && settings_of_other_meaning("bits_per_character", runs).empty();
  const bool has_data = (metric_bits(metric) & Of::held_out) != 0 &&
                        std::all_of(differing.begin(), differing.end(), [](const std::string& key) {
                          return key == "validation_fraction" || key == "data" || key == "translations" ||
                                 key == "validation_data" || key == "validation_translations";
                        });
  const bool has_all_bits =
      (metric_bits(metric) & Of::held_out) != 0 && of_text && differing == std::vector<std::string>{"tokenizer"};
  return text(metric, " has another meaning in runs that differ in ", join(differing), "; ",
              has_bits       ? "compare bits_per_character"
              : has_all_bits ? "compare bits_per_character of all that is held out, with --validation_tokens=0"
              : has_data     ? "give all of them the same --validation_data"
                             : "compare runs with the same value of each");
}

std::vector<std::string> notes_of_other_meanings(std::span<const TrainSettings> runs) {
  std::vector<std::string> notes, named;
  for (const char* const metric : {"validation_loss", "training_loss", "loss"}) {
    bool fresh = false;
    for (const std::string& key : settings_of_other_meaning(metric, runs))
      if (std::find(named.begin(), named.end(), key) == named.end()) fresh = true, named.push_back(key);
    if (fresh) notes.push_back(note_of_other_meaning(metric, runs));
  }
  return notes;
}

}  // namespace orrery::models
