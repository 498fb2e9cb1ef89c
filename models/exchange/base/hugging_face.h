// What the folders of Hugging Face's transformers have in common: config.json, tensors in one safetensors file or in
// several with an index, and the tokenizer's files.  Keys of ours in config.json begin with orrery_.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "models/exchange/base/exchange.h"
#include "models/formats/json.h"

namespace orrery::models {

// A config.json, or another file of settings.  A key that is null counts as absent.  Errors name the file and the key.
class HuggingFaceConfig {
 public:
  // Of the folder, or another file of it, `name`, which may be absent and is empty then.
  explicit HuggingFaceConfig(const std::string& folder);
  HuggingFaceConfig(const std::string& folder, const char* name);
  // An object inside such a file.
  HuggingFaceConfig(std::string path, Json object) : path_(std::move(path)), json_(std::move(object)) {}
  bool has(const std::string& key) const { return find(key) != nullptr; }
  // An absent one is `otherwise`; without that it is an Error.
  int64_t whole_number(const std::string& key, std::optional<int64_t> otherwise = {}) const;
  // Sets the setting `ours` to it, whose range it must be in; an absent one is `otherwise`, without that an Error.
  template <class Settings>
  void read(Settings& settings, const char* ours, const std::string& theirs,
            std::optional<int64_t> otherwise = {}) const {
    read(settings_of(settings), ours, theirs, otherwise);
  }
  void read(const std::vector<Setting>& settings, const char* ours, const std::string& theirs,
            std::optional<int64_t> otherwise) const;
  // The same of a side of a square, which may be a list of two equal numbers, height and width.
  template <class Settings>
  void read_side(Settings& settings, const char* ours, const std::string& theirs, int64_t otherwise) const {
    set(settings_of(settings), ours, theirs, side(theirs, otherwise));
  }
  double number(const std::string& key, std::optional<double> otherwise = {}) const;
  double positive(const std::string& key, double otherwise) const;
  bool flag(const std::string& key, bool otherwise) const;
  // An Error unless the key is absent or one of these: it says something that this program cannot do.
  void must_be(const std::string& key, std::initializer_list<Json> harmless) const;
  // The activation under that key, by our name.
  std::string activation(const std::string& key, const std::string& otherwise) const;
  std::vector<int64_t> tokens(const std::string& key) const;  // a number or a list of them; no number: none
  const Json* find(const std::string& key) const;             // null: absent
  std::vector<std::string> keys() const;                      // those that are there
  std::vector<std::string> true_flags() const;                // the keys that are true
  const std::string& path() const { return path_; }

 private:
  int64_t side(const std::string& key, int64_t otherwise) const;
  void set(const std::vector<Setting>& settings, const char* ours, const std::string& theirs, int64_t value) const;

  std::string path_;
  Json json_;
};

bool has_config(const std::string& folder);  // whether it is a folder with a config.json, packed or not
// Whether it is a folder whose config.json has that model_type.
bool has_model_type(const std::string& folder, const std::string& model_type);

// Tensors of the folder, where its tokenizer is, and what stands around its texts.
void read_rest(const std::string& folder, ImportedModel& to);
// Whether the head is the embedding: unless config.json says otherwise, or both are there, of that shape, and differ.
bool has_tied_head(const HuggingFaceConfig& config, bool otherwise, const ImportedModel& from,
                   const std::string& embedding, const std::string& head, const std::vector<int64_t>& shape);

// Writes config.json and model.safetensors.
void write_hugging_face(const std::string& folder, Json config, const std::vector<NamedTensor>& tensors);
// The same and what there is of a tokenizer, as Tokenizer::save wrote it, with the tokens around its texts.
void write_hugging_face(const std::string& folder, Json config, const std::vector<NamedTensor>& tensors,
                        const std::string& tokenizer);

std::string shortened(const Json& value);  // as text, for errors

// Our activation by their name; an Error that names the setting feed_forward if they have none.
std::string their_activation(std::string_view format, const Spec& activation, const TrainSettings& run);

// What GPT-2's and Llama's folders both cannot say of a decoder.
void check_plain_decoder(std::string_view format, const TrainSettings& run);
// An Error if its attention is more than softmax; its dropout is no part of the model.
void check_plain_attention(std::string_view format, const TrainSettings& run);
// The normalization of attention, feed-forward and end, if it is the same one of that name; else refused.
Spec common_normalization(std::string_view format, const TrainSettings& run, std::string_view name);
double epsilon_of(const Spec& normalization);
// The activation of a feed-forward of that name, else refused.
Spec activation_of_feed_forward(std::string_view format, const TrainSettings& run, std::string_view name);

}  // namespace orrery::models
