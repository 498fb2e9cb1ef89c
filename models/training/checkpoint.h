// A checkpoint is a folder, complete or absent (run_folder.h says where it stands and how it comes there):
//   weights.safetensors     the parameters and buffers, by path; metadata: format alone
//   optimizer.safetensors   the moments, by name and path; of streams, what is carried to the next step;
//                           not there if the run wanted none
//   state.json              step, place in streams, settings, tokenizer, version: to go on and to generate; beside them
//                           the size and SHA-256 of both files, of the text that was learned and of this file itself,
//                           so that files of different steps, other files and a flipped bit are noticed
// Checkpoints of before, whose state.json names no format, have no sizes and hashes; they are read as well.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/data/text.h"
#include "models/formats/output_file.h"
#include "models/training/settings.h"
#include "nn/optimizers/base/optimizer.h"

namespace orrery::models {

struct CheckpointState {
  int64_t step = 0;       // updates done
  std::string tokenizer;  // as Tokenizer::save wrote it
  std::vector<std::pair<std::string, std::string>> settings;
  double validation_loss = 0;                     // the latest; 0 if there was none
  int64_t validated = -1;                         // the step after which it was computed; -1: none, or not recorded
  Fingerprint text = {};                          // of what was learned; without a hash: it was not recorded
  std::map<std::string, Fingerprint> beside = {};  // of what else was read (Task::read_beside); empty: not recorded
  std::map<std::string, Fingerprint> files = {};  // of the checkpoint, by name; empty: written before there were hashes
  int64_t position = 0;                           // tokens of each stream that were read; 0: batches are no streams
  std::string version = {};                       // of the program that wrote it, once it is read
  std::vector<nn::Cache> carried = {};            // of each micro-batch, from its streams; read by load_carried alone
};

constexpr const char *weights_name = "weights.safetensors", *optimizer_name = "optimizer.safetensors";
constexpr const char* checkpoint_format = "orrery checkpoint 2";  // what state.json calls it

// A weight or a number of the optimizer is infinite or not a number: such ones are neither written nor read.  (An
// infinite second moment leaves its weights finite, and where they are for good.)
class NotFinite : public Error {
 public:
  using Error::Error;
};

// Writes the three files into a folder without them and compares what the disk holds then with what was meant;
// state.files is filled here.  Without an optimizer it is none to resume.  NotFinite if a parameter, a buffer or a
// number of the optimizer is not finite.
void write_checkpoint(const std::string& folder, const CheckpointState& state, nn::Module& model,
                      const nn::Optimizer* optimizer);
// state.json alone, anew: the state as read_state gave it, with more known.
void write_state(const std::string& folder, const CheckpointState& state);
// Errors:
//   checkpoint: run/step_000010/state.json is damaged: its step is -5; it must be a whole number of at least 0
CheckpointState read_state(const std::string& checkpoint);
inline bool has_optimizer(const CheckpointState& s) { return s.files.empty() || s.files.contains(optimizer_name); }

// An Error if the file (weights_name or optimizer_name) is missing or not the one that was written with that state:
//   checkpoint: run/step_000010/weights.safetensors is damaged: it has 100 bytes, where 200 were written
// Without hashes only that it is there, and for its content that it can be read.
void check_size(const std::string& checkpoint, const CheckpointState& state, const std::string& file);
void check_content(const std::string& checkpoint, const CheckpointState& state, const std::string& file);

// After check_content.  Errors name the file, the tensor and the shapes or dtypes; nothing is changed unless every
// tensor fits and all are finite.  Weights of modules at the paths `fresh` stay as they are.
void load_weights(const std::string& checkpoint, nn::Module& model, const std::vector<std::string>& fresh = {});
void load_optimizer(const std::string& checkpoint, nn::Optimizer& optimizer);
// What is carried of each micro-batch, on that device; empty if nothing was.
std::vector<nn::Cache> load_carried(const std::string& checkpoint, Device device);

}  // namespace orrery::models
