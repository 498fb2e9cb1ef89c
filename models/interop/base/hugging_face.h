// Shared code for Hugging Face folders: config.json, tokenizer files, and one safetensors file or
// several with an index. Keys that orrery adds to config.json begin with orrery_.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "models/formats/json.h"
#include "models/interop/base/weight_format.h"

namespace orrery::models {

// A config.json or similar JSON file. null counts as absent. Errors name the file and the key.
class HuggingFaceConfig {
 public:
  // Reads config.json, or the file `name`, which may be absent; the config is then empty.
  explicit HuggingFaceConfig(const std::string& folder);
  HuggingFaceConfig(const std::string& folder, const char* name);
  // Wraps an object inside such a file.
  HuggingFaceConfig(std::string path, Json object) : path_(std::move(path)), json_(std::move(object)) {}
  bool has(const std::string& key) const { return find(key) != nullptr; }
  // Returns `otherwise` if the key is absent, or throws if that is empty.
  int64_t whole_number(const std::string& key, std::optional<int64_t> otherwise = {}) const;
  // Sets `target` to the value, or `otherwise`, and checks its range. Throws if both are absent.
  template <class Settings>
  void read(Settings& settings, const char* target, const std::string& source,
            std::optional<int64_t> otherwise = {}) const {
    read(settings_of(settings), target, source, otherwise);
  }
  void read(const std::vector<Setting>& settings, const char* target, const std::string& source,
            std::optional<int64_t> otherwise) const;
  // Reads the side of a square: a number, or a list of two equal numbers (height and width).
  template <class Settings>
  void read_side(Settings& settings, const char* target, const std::string& source, int64_t otherwise) const {
    set(settings_of(settings), target, source, side(source, otherwise));
  }
  double number(const std::string& key, std::optional<double> otherwise = {}) const;
  double positive(const std::string& key, double otherwise) const;  // throws for 0 and below
  bool flag(const std::string& key, bool otherwise) const;          // throws unless true or false
  // Throws unless the key is absent or has one of these values; others are not supported.
  void must_be(const std::string& key, std::initializer_list<Json> harmless) const;
  // Returns the activation under the key, by orrery's name.
  std::string activation(const std::string& key, const std::string& otherwise) const;
  std::vector<int64_t> tokens(const std::string& key) const;  // a number or a list; other values are skipped
  const Json* find(const std::string& key) const;             // null: absent
  std::vector<std::string> keys() const;                      // not null
  std::vector<std::string> true_flags() const;                // with value true
  const std::string& path() const { return path_; }

 private:
  int64_t side(const std::string& key, int64_t otherwise) const;
  void set(const std::vector<Setting>& settings, const char* target, const std::string& source, int64_t value) const;

  std::string path_;
  Json json_;
};

bool has_config(const std::string& folder);  // config.json may be compressed
bool has_model_type(const std::string& folder, const std::string& model_type);

// Reads the folder's tensors, its tokenizer's path and the tokens that begin and end texts.
void read_rest(const std::string& folder, ImportedModel& to);
// Returns tie_word_embeddings or `otherwise`; false if head and embedding are stored and differ.
bool has_tied_head(const HuggingFaceConfig& config, bool otherwise, const ImportedModel& from,
                   const std::string& embedding, const std::string& head, const std::vector<int64_t>& shape);

// Writes config.json and model.safetensors.
void write_hugging_face(const std::string& folder, Json config, const std::vector<NamedTensor>& tensors);
// Also writes the files and tokens of the tokenizer, a text that Tokenizer::save wrote.
void write_hugging_face(const std::string& folder, Json config, const std::vector<NamedTensor>& tensors,
                        const std::string& tokenizer);

// Returns the source name of an activation. If there is none, the error names feed_forward.
std::string source_activation(std::string_view format, const Spec& activation, const TrainSettings& run);

// Throws if a setting of this decoder is supported by neither GPT-2's nor Llama's format.
void check_plain_decoder(std::string_view format, const TrainSettings& run);
// Throws unless attention is plain softmax. Dropout is allowed: it is not part of the model.
void check_plain_attention(std::string_view format, const TrainSettings& run);
// Returns the normalization that all layers share, if it is `name`; else throws.
Spec common_normalization(std::string_view format, const TrainSettings& run, std::string_view name);
double epsilon_of(const Spec& normalization);  // 0: the normalization has none
// Returns the activation of the feed-forward `name`; throws for other feed-forwards.
Spec activation_of_feed_forward(std::string_view format, const TrainSettings& run, std::string_view name);

}  // namespace orrery::models
