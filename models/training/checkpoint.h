// A checkpoint is a folder, complete or absent:
//   weights.safetensors     the parameters and buffers, by path; metadata: format alone
//   optimizer.safetensors   the moments, by name and path
//   state.json              step, settings, tokenizer, version: what is needed to go on and to generate
// It is written under a temporary name, synced and renamed, so a crash or a full disk leaves the previous one intact.
#pragma once

#include <string>
#include <vector>

#include "models/training/settings.h"
#include "nn/optimizers/base/optimizer.h"

namespace orrery::models {

struct CheckpointState {
  int64_t step = 0;       // updates done
  std::string tokenizer;  // as Tokenizer::save wrote it
  std::vector<std::pair<std::string, std::string>> settings;
  double validation_loss = 0;  // the latest; 0 if there was none
};

// Writes `folder`/step_000050 and returns its path.
std::string write_checkpoint(const std::string& folder, const CheckpointState& state, nn::Module& model,
                             const nn::Optimizer& optimizer);
// The checkpoint with the most steps in `folder` that can be read whole; empty if there is none.
std::string latest_checkpoint(const std::string& folder);
CheckpointState read_state(const std::string& checkpoint);
// Errors name the file, the tensor and the shapes; nothing is changed unless every tensor fits.
void load_weights(const std::string& checkpoint, nn::Module& model);
void load_optimizer(const std::string& checkpoint, nn::Optimizer& optimizer);
// Removes all but the newest `keep` checkpoints; 0 keeps all.
void remove_old_checkpoints(const std::string& folder, int64_t keep);

}  // namespace orrery::models
