// The settings that give a loss its meaning: its targets, and how it is computed from them. Losses
// of runs that differ in one of them measure different things; a resumed run may not change them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/training/checkpoint.h"
#include "models/training/settings.h"

namespace orrery::models {

// Returns true if the setting gives a loss, or another result of a validation, its meaning.
bool defines_loss(std::string_view setting);
// Returns true for settings that define how data are read and split, except their paths.
bool splits_data(std::string_view setting);

bool is_loss(std::string_view metric);  // validation_loss, training_loss or loss: nats of the targets
// Returns the losses, accuracy, bits_per_character and BLEU that a pattern with * ? [ab] matches.
std::vector<std::string> metrics_with_meaning(const std::string& pattern);

// A run whose losses are compared. Data and tokenizers are compared by their fingerprints where
// both runs have them, else by the settings that name them.
struct LossMeaning {
  TrainSettings settings;
  // Fingerprints of the inputs, as in Task::extra_inputs, by setting; also "data" and
  // "tokenizer". A missing entry is unknown.
  std::map<std::string, Fingerprint> fingerprints = {};
};
LossMeaning loss_meaning(const TrainSettings& settings, const CheckpointState& state);

// Returns the settings by which a metric has another meaning in some of the runs, or none if it has
// one meaning, or is neither a loss nor accuracy, bits_per_character or BLEU. The seed may differ,
// and so may the tokenizer for bits_per_character, if that is computed on all held-out data.
std::vector<std::string> differing_loss_settings(const std::string& metric, std::span<const LossMeaning> runs);
// Returns a sentence about differing_loss_settings with a way out, or "" if there are none.
std::string comparability_note(const std::string& metric, std::span<const LossMeaning> runs);
// Returns such sentences about the losses of runs, without one that repeats the same settings.
std::vector<std::string> comparability_notes(std::span<const LossMeaning> runs);

}  // namespace orrery::models
