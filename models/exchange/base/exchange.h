// Weights of others, in and out.  A format is a file in models/exchange with a line REGISTER_EXCHANGE.  It says which
// of its tensors make which of ours, once, for both directions; the rest stands here.
//
// A run that is imported is a checkpoint of step 0 in f32: `generate` and `train --resume=yes` take it as any other.
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
#include "models/exchange/base/stored_tensors.h"
#include "models/training/settings.h"

namespace orrery::models {

// Which of their tensors make one of ours.
struct TensorPlace {
  std::string ours;
  std::vector<std::string> theirs = {};  // one below the other
  std::vector<int64_t> rows = {};        // of ours, that each of them makes; empty: there is one, which makes all
  // Theirs have other axes: axis i of ours is axis axes[i] of theirs; not of a bias, which has one axis.
  std::vector<int> axes = {};
  bool within_one = false;  // theirs have an axis of size 1 before all
  // For export.  Not 0: the size of heads whose rotary pairs stand side by side with us and half a head apart with
  // them; all of `theirs` but the last, which are values, are put into that order.
  int64_t interleaved_head = 0;
  std::optional<Shape> zeros = {};  // what is written where the model has none: a bias that the format always has
  bool may_lack = false;            // theirs may not be there, which says that ours are zeros
};
const std::vector<int> transposed = {1, 0};  // theirs are (inputs, outputs)

struct ImportedModel {
  std::vector<std::pair<std::string, std::string>> settings = {};  // of a run, as make_settings takes them
  std::vector<TensorPlace> places = {};
  std::vector<StoredTensor> tensors = {};
  std::map<std::string, std::string> known_rest = {};       // tensors of theirs that are not needed, and why
  std::vector<std::string> classes = {};                    // of a model of images, which has no tokenizer
  std::vector<std::string> notes = {};                      // what is assumed, and what is not done as theirs does
  std::string tokenizer_path = {};                          // where its own may lie; empty: it has none
  std::string saved_tokenizer = {};                         // as Tokenizer::save wrote it, if it was ours
  std::optional<int64_t> begin_token = {}, end_token = {};  // of a text, where theirs are named
  std::optional<bool> begins_texts = {};                    // their programs put that token before each text
  std::vector<int64_t> ends = {};                           // where their programs end a text that they write
};

// What is exported.
struct ExportedModel {
  const TrainSettings& settings;
  nn::Module& model;
  const std::string& tokenizer;  // as Task::tokenizer says it
};

struct ExchangeFormat {
  std::string name, description;
  bool (*reads)(const std::string& path);          // whether it is for `read`
  ImportedModel (*read)(const std::string& path);  // Errors name the file and the key
  // For export: the class of models that it can say, and the one position; empty: it is read only.
  std::string model = {}, position = {};
  // Writes into a folder that is there and empty.  Errors name the setting that the format cannot say.
  void (*write)(const ExportedModel& what, const std::string& folder) = nullptr;
};
Registry<ExchangeFormat>& exchange_formats();
#define REGISTER_EXCHANGE(id, ...) \
  [[maybe_unused]] static const bool registered_exchange_##id = (exchange_formats().add(__VA_ARGS__), true)

struct ImportReport {
  struct Line {
    std::string ours, theirs, how;  // how: what was done with them, if anything
  };
  std::string format = {}, checkpoint = {}, tokenizer = {};  // without a tokenizer:
  int64_t classes = 0;
  std::vector<std::string> notes = {};  // what is not as in the folder, or assumed where it says nothing
  int64_t parameters = 0;
  std::vector<Line> placed = {};
  std::vector<std::pair<std::string, std::string>> left = {};  // theirs that were not used, and why
  std::optional<double> largest_difference = {};               // of the reference logits, if there are any
};

// Reads what lies at `path` and writes the run `out`, which must hold no checkpoint.  `tokenizer`: as the setting of
// that name, empty: that of the folder.  `check_file`: a safetensors file with `tokens` (B, T) and `logits` (B, T, V),
// or `pixel_values` (B, channels, height, width), as they are given to the model, and `logits` (B, classes); empty:
// logits.safetensors in the folder, if it is there.  Nothing is written unless every tensor fits.
ImportReport import_model(const std::string& path, const std::string& out, const std::string& tokenizer,
                          const std::string& check_file);

// Writes the model into that folder, which must not be there, in that format; empty: the one that suits.  Returns
// the name of the format.  The folder is complete or absent.
std::string export_model(const ExportedModel& what, const std::string& folder, const std::string& format);

// ---- for formats

// The settings of a run whose model is of that class; an Error that begins with `what` if one is out of its range,
// before anything is made of it.
std::vector<std::pair<std::string, std::string>> imported_settings(
    std::vector<std::pair<std::string, std::string>> of_model, std::string_view model, const std::string& what);
// An Error that names the setting of the run: "export: gpt2 cannot say parallel=yes of this model".
[[noreturn]] void refuse_setting(std::string_view format, const TrainSettings& run, std::string_view key);

// Tensors of theirs as ours, by our paths.  Errors name the tensor, its shape and the one that the model wants.
std::vector<NamedTensor> placed_tensors(const ImportedModel& from, nn::Module& model, ImportReport& report);
// The model's tensors under their names.  Parameters of ours that no place names are an Error.
std::vector<NamedTensor> tensors_for(const std::vector<TensorPlace>& places, nn::Module& model);

}  // namespace orrery::models
