// A checkpoint is a folder, complete or absent (run_folder.h: its location and how it is written):
//   weights.safetensors     parameters and buffers, by path; metadata: format alone
//   optimizer.safetensors   optimizer state, by name and path; stream state for the next step;
//                           absent if the run did not save it
//   state.json              step, stream position, settings, tokenizer, version: to resume and to generate;
//                           size and SHA-256 of both files and of the training data, to detect files
//                           of different steps and other files; SHA-256 of state.json without this
//                           member, to detect flipped bits
// A stream model reads text streams: each row of a batch continues one text from step to step. The
// stream state is the cache that it starts the next step with.
// Older checkpoints, whose state.json has no format, lack sizes and hashes; they are still read.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/data/text.h"
#include "models/data/training_data.h"
#include "models/formats/output_file.h"
#include "models/training/settings.h"
#include "nn/optimizers/base/optimizer.h"

namespace orrery::models {

struct CheckpointState {
  int64_t step = 0;       // updates done
  std::string tokenizer;  // as Tokenizer::save wrote it
  Assignments settings;
  double validation_loss = 0;              // nats, the latest; 0 if there was none
  int64_t validated = -1;                  // step of validation_loss; -1: none, or not recorded
  int64_t data_since = 0;                  // step at which allow_new_text last changed the data; 0: never
  Fingerprint text = {};                   // of the training data; without a hash: not recorded
  std::vector<TrainedPart> parts = {};     // other data with tokens of the training data (Task::trained_parts)
  // Training data before allow_new_text changed them, and those of the weights from init_from.
  std::vector<TrainingData> earlier = {};
  std::map<std::string, Fingerprint> extra_inputs = {};  // of other inputs (Task::extra_inputs); empty: not recorded
  std::map<std::string, Fingerprint> files = {};  // of the checkpoint, by name; empty: older format without hashes
  int64_t position = 0;                           // tokens read from each text stream; 0: batches are not streams
  std::string version = {};                       // of the program that wrote it; set by read_state
  std::vector<nn::Cache> stream_states = {};      // stream state of each micro-batch; read by load_stream_states alone
};

constexpr const char *weights_name = "weights.safetensors", *optimizer_name = "optimizer.safetensors";
constexpr const char* checkpoint_format = "orrery checkpoint 2";  // `format` in state.json

// An error for an infinity or NaN in weights or optimizer state; such values are neither written
// nor read. (An infinite second moment leaves its weights finite but frozen.)
class NonFiniteCheckpointError : public Error {
 public:
  using Error::Error;
};

// Writes the three files into a folder that lacks them, reads them back and compares. state.json
// gets their sizes and hashes in place of those in state.files. If `optimizer` is null, the
// checkpoint has no optimizer.safetensors and cannot be resumed. Throws NonFiniteCheckpointError if
// a parameter, a buffer or a value of the optimizer state is not finite.
void write_checkpoint(const std::string& folder, const CheckpointState& state, nn::Module& model,
                      const nn::Optimizer* optimizer);
// Rewrites state.json alone, from the state that read_state returned and the caller extended.
void write_state(const std::string& folder, const CheckpointState& state);
// Errors:
//   checkpoint: run/step_000010/state.json is damaged: its step is -5; it must be a whole number of at least 0
CheckpointState read_state(const std::string& checkpoint);
std::string state_text(const std::string& checkpoint);                                      // of its state.json
CheckpointState parse_state(const std::string& content, const std::string& checkpoint);  // of such a text
inline bool has_optimizer(const CheckpointState& s) { return s.files.empty() || s.files.contains(optimizer_name); }

// Throw if `file` (weights_name or optimizer_name) is missing or not as written with this state.
// Without hashes, the file must exist (check_size) or parse (check_content):
//   checkpoint: run/step_000010/weights.safetensors is damaged: it has 100 bytes, but 200 were written
void check_size(const std::string& checkpoint, const CheckpointState& state, const std::string& file);
void check_content(const std::string& checkpoint, const CheckpointState& state, const std::string& file);

// Call after check_content. Errors name the file, the tensor and the shapes or dtypes. Changes
// nothing unless all tensors fit and are finite. Skips modules at the paths `fresh`.
void load_weights(const std::string& checkpoint, nn::Module& model, const std::vector<std::string>& fresh = {});
void load_optimizer(const std::string& checkpoint, nn::Optimizer& optimizer);
// Returns the stream state of each micro-batch, on `device`; empty if the batches are not streams.
std::vector<nn::Cache> load_stream_states(const std::string& checkpoint, Device device);

}  // namespace orrery::models
