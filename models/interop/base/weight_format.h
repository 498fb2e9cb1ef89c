// Import and export of other programs' weights. A format is a file in models/interop with a line
// REGISTER_WEIGHT_FORMAT. It maps source tensors to target tensors once, for both directions.
// An imported run is a checkpoint of step 0 in f32: `generate`, `train --resume=yes` accept it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/settings/registry.h"
#include "models/architectures/gpt.h"
#include "models/data/tokenizer.h"
#include "models/interop/base/stored_tensors.h"
#include "models/training/settings.h"

namespace orrery::models {

// Mapping of source tensors (the other program's) to a target tensor, `target` (orrery's).
struct TensorMapping {
  std::string target;
  std::vector<std::string> sources = {};  // stacked along axis 0
  std::vector<int64_t> rows = {};         // target rows per source tensor; empty: one source tensor has all rows
  // Order of the axes, except for biases: axis i of the target is axis axes[i] of the source.
  std::vector<int> axes = {};
  bool squeeze = false;  // the source has an additional first axis of size 1
  // For export. Not 0: size of heads whose rotary pairs are adjacent in the target and half a head
  // apart in the source. Reorders all of `sources` except the last one, the values.
  int64_t interleaved_head = 0;
  std::optional<Shape> zeros = {};  // written if the model lacks the tensor: shape of a bias that the format always has
  bool optional = false;            // the source tensor may be absent; the target is then zeros
};
const std::vector<int> transposed = {1, 0};  // source layout (inputs, outputs)

struct ImportedModel {
  Assignments settings = {};  // run settings, for make_settings
  std::vector<TensorMapping> mappings = {};
  std::vector<StoredTensor> tensors = {};
  std::map<std::string, std::string> ignored = {};  // source tensor that is not needed -> why
  std::vector<std::string> classes = {};            // class names of an image model, which has no tokenizer
  std::vector<std::string> notes = {};              // assumptions and differences from the source program
  std::string tokenizer_path = {};                  // file or folder that may hold its tokenizer; empty: none
  std::string saved_tokenizer = {};                 // written by Tokenizer::save, if orrery exported it
  // Around a text, if the source names them; the tokenizer's files may name another end.
  std::optional<int64_t> begin_token = {}, end_token = {};
  std::optional<bool> begins_texts = {};  // the source program puts begin_token before texts
  std::vector<int64_t> ends = {};         // tokens at which the source program stops generating
};

struct ExportedModel {
  const TrainSettings& settings;
  nn::Module& model;
  const std::string& tokenizer;  // see Task::tokenizer
};

struct WeightFormat {
  std::string name, description;
  bool (*reads)(const std::string& path);          // checks if `read` supports this path
  ImportedModel (*read)(const std::string& path);  // errors name the file and the key
  // For export: class of the models and their only position; empty: import only.
  std::string model = {}, position = {};
  // Writes into an existing empty folder. Errors name the setting that the format does not support.
  void (*write)(const ExportedModel& what, const std::string& folder) = nullptr;
};
Registry<WeightFormat>& weight_formats();
#define REGISTER_WEIGHT_FORMAT(id, ...) \
  [[maybe_unused]] static const bool registered_weight_format_##id = (weight_formats().add(__VA_ARGS__), true)

struct ImportReport {
  struct Line {
    std::string target, sources, how;  // how: conversions, "" if none
  };
  std::string format = {}, checkpoint = {}, tokenizer = {};  // tokenizer: empty for image models
  int64_t classes = 0;
  std::vector<std::string> notes = {};  // differences from the folder, and assumptions
  int64_t parameters = 0;
  std::vector<Line> mapped = {};
  std::vector<std::pair<std::string, std::string>> unused = {};  // unused source tensors, and why
  std::optional<double> largest_difference = {};                 // from reference logits, if there are any
};

// Imports `path` as the run `out`, which must have no checkpoints. `tokenizer` is a setting; empty:
// the folder's. `check_file` (empty: the folder's logits.safetensors, if any) has `tokens` (B, T)
// and `logits` (B, T, V), or model inputs `pixel_values` (B, channels, height, width) and `logits`
// (B, classes). Writes nothing unless all tensors fit.
ImportReport import_model(const std::string& path, const std::string& out, const std::string& tokenizer,
                          const std::string& check_file);

// Writes the model into `folder`, which must not exist; it is complete or absent afterwards.
// Returns the name of the format, chosen by the model if `format` is empty.
std::string export_model(const ExportedModel& what, const std::string& folder, const std::string& format);

// ---- helpers for formats

// Returns the settings of a run of this model class. Throws an error that begins with `what` if a
// value is out of range, before anything is allocated.
Assignments imported_settings(Assignments of_model, std::string_view model, const std::string& what);
// Throws an error with the run's setting: "export: the gpt2 format does not support
// parallel=yes; ...".
[[noreturn]] void refuse_setting(std::string_view format, const TrainSettings& run, std::string_view key);

// Returns target tensors by path. Errors name the source tensor, its shape and the expected one.
std::vector<NamedTensor> target_tensors(const ImportedModel& from, nn::Module& model, ImportReport& report);
// Returns the model's tensors under source names. Throws if a parameter is in none of `mappings`.
std::vector<NamedTensor> source_tensors(const std::vector<TensorMapping>& mappings, nn::Module& model);

}  // namespace orrery::models
