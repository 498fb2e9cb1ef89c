#include "models/interop/base/hugging_face.h"

#include <algorithm>

#include "engine/system/files.h"
#include "engine/system/version.h"
#include "models/data/text_ends.h"
#include "models/formats/gzip.h"
#include "models/interop/base/tokenizer_json.h"
#include "nn/attentions/base/attention.h"
#include "nn/normalizations/base/normalization.h"

namespace orrery::models {
namespace {

constexpr const char* config_name = "config.json";

// Source and target names. An export writes the first of several source names.
constexpr std::pair<const char*, const char*> activations[] = {
    {"gelu_new", "gelu_tanh"},
    {"gelu_pytorch_tanh", "gelu_tanh"},
    {"gelu_fast", "gelu_tanh"},
    {"gelu_python_tanh", "gelu_tanh"},
    {"gelu", "gelu"},
    {"gelu_python", "gelu"},
    {"silu", "silu"},
    {"swish", "silu"},
    {"relu", "relu"},
    {"relu2", "relu_squared"},
    {"relu6", "relu6"},
    {"leaky_relu", "leaky_relu"},
    {"quick_gelu", "quick_gelu"},
    {"sigmoid", "sigmoid"},
    {"tanh", "tanh"},
    {"mish", "mish"},
    {"hardswish", "hard_swish"},
    {"linear", "identity"},
};

GptSettings& decoder(const TrainSettings& run) { return run.model_settings.as<GptSettings>(); }

// Keys of generation_config.json that do not affect generation or that are read here.
constexpr std::string_view harmless_in_generation[] = {"eos_token_id",         "bos_token_id",       "pad_token_id",
                                                       "transformers_version", "_from_model_config", "use_cache"};

// Adds the tokens that begin and end a text to config.json. If generation stops at other tokens
// than the one between documents, writes a generation_config.json with them.
void add_marks(const std::string& folder, Json& config, const Tokenizer& tokenizer) {
  const auto number = [](const std::optional<int32_t>& token) { return token ? Json(*token) : Json(); };
  config["bos_token_id"] = number(tokenizer.begin()), config["eos_token_id"] = number(tokenizer.end_of_text());
  const std::vector<int32_t> ends = tokenizer.ends();
  if (ends.empty() && !tokenizer.end_of_text()) return;
  const Json all = ends.empty() ? Json() : ends.size() > 1 ? Json(ends) : Json(ends[0]);  // null: no token ends a text
  if (!ends.empty() && tokenizer.end_of_text() == ends[0]) {
    config["eos_token_id"] = all;
    return;
  }
  const Json generation = {{"bos_token_id", config["bos_token_id"]}, {"eos_token_id", all}};
  write_file_atomically(folder + "/generation_config.json", json_text(generation, 2) + "\n");
}

}  // namespace

HuggingFaceConfig::HuggingFaceConfig(const std::string& folder) : HuggingFaceConfig(folder, config_name) {
  check(!path_.empty(), "read: ", folder, " has no ", config_name, ", which describes the model");
}
HuggingFaceConfig::HuggingFaceConfig(const std::string& folder, const char* name)
    : path_(find_data_file(folder, {name})), json_(Json::object()) {
  if (path_.empty()) return;
  json_ = parse_json(read_data_file(path_, max_settings_bytes), path_);
  check(json_.is_object(), path_, ": the file must be an object {...}");
}
const Json* HuggingFaceConfig::find(const std::string& key) const {
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}
std::vector<std::string> HuggingFaceConfig::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json_.items())
    if (!value.is_null()) keys.push_back(key);
  return keys;
}
std::vector<std::string> HuggingFaceConfig::true_flags() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json_.items())
    if (value == true) keys.push_back(key);
  return keys;
}
int64_t HuggingFaceConfig::whole_number(const std::string& key, std::optional<int64_t> otherwise) const {
  return !has(key) && otherwise ? *otherwise : whole_number_member(json_, key, path_);
}
void HuggingFaceConfig::read(const std::vector<Setting>& settings, const char* target, const std::string& source,
                             std::optional<int64_t> otherwise) const {
  set(settings, target, source, whole_number(source, otherwise));
}
int64_t HuggingFaceConfig::side(const std::string& key, int64_t otherwise) const {
  const Json* const found = find(key);
  if (!found || !found->is_array()) return whole_number(key, otherwise);
  check(found->size() == 2 && found->front().is_number_unsigned() && found->front() == found->back(), path_, ": '", key,
        "' is ", shortened(*found), "; it must be one number or two equal ones; only square sizes are supported");
  return found->front().get<int64_t>();
}
void HuggingFaceConfig::set(const std::vector<Setting>& settings, const char* target, const std::string& source,
                            int64_t value) const {
  Setting named = *find_setting(settings, target);
  named.key = source;  // the name in errors
  set_setting(std::span<const Setting>(&named, 1), path_, source, std::to_string(value));
}
std::vector<int64_t> HuggingFaceConfig::tokens(const std::string& key) const {
  std::vector<int64_t> all;
  const Json* const found = find(key);
  const auto add = [&](const Json& one) {
    if (one.is_number_unsigned()) all.push_back(one.get<int64_t>());
  };
  if (found && found->is_array())
    for (const Json& one : *found) add(one);
  else if (found)
    add(*found);
  return all;
}
double HuggingFaceConfig::number(const std::string& key, std::optional<double> otherwise) const {
  return !has(key) && otherwise ? *otherwise : number_member(json_, key, path_);
}
double HuggingFaceConfig::positive(const std::string& key, double otherwise) const {
  const double found = number(key, otherwise);
  check(found > 0, path_, ": '", key, "' is ", print_number(found), "; it must be above 0");
  return found;
}
bool HuggingFaceConfig::flag(const std::string& key, bool otherwise) const {
  const Json* const found = find(key);
  if (found) check_form(found->is_boolean(), *found, key, path_, "true or false");
  return found ? found->get<bool>() : otherwise;
}
void HuggingFaceConfig::must_be(const std::string& key, std::initializer_list<Json> harmless) const {
  const Json* const found = find(key);
  std::string allowed;
  for (const Json& each : harmless) allowed += json_text(each) + " or ";
  check(!found || std::find(harmless.begin(), harmless.end(), *found) != harmless.end(), path_, ": '", key,
        "': ", found ? shortened(*found) : "", " is not supported; it must be ", allowed, "absent");
}
std::string HuggingFaceConfig::activation(const std::string& key, const std::string& otherwise) const {
  const std::string name = has(key) ? text_member(json_, key, path_) : otherwise;
  std::vector<std::string> all;
  for (const auto& [source, target] : activations) {
    if (name == source) return target;
    all.emplace_back(source);
  }
  fail(path_, ": '", key, "': \"", name, "\" is not supported; supported activations: ", join(all));
}

bool has_config(const std::string& folder) { return !find_data_file(folder, {config_name}).empty(); }
bool has_model_type(const std::string& folder, const std::string& model_type) {
  if (!has_config(folder)) return false;
  const std::string path = find_data_file(folder, {config_name});
  const Json json = parse_json(read_data_file(path, max_settings_bytes), path);
  return json.is_object() && json.contains("model_type") && json["model_type"] == model_type;
}

void read_rest(const std::string& folder, ImportedModel& to) {
  to.tensors = stored_tensors_of_folder(folder, {"lm_head.weight"});  // absent if it is the embedding
  const HuggingFaceConfig config(folder);
  if (const Json* const saved = config.find("orrery_tokenizer")) to.saved_tokenizer = json_text(*saved);
  to.tokenizer_path = folder;
  const auto first = [](const std::vector<int64_t>& tokens) {
    return tokens.empty() ? std::nullopt : std::optional(tokens[0]);
  };
  to.begin_token = first(config.tokens("bos_token_id")), to.end_token = first(config.tokens("eos_token_id"));
  const HuggingFaceConfig generation(folder, "generation_config.json");
  to.ends = (generation.path().empty() ? config : generation).tokens("eos_token_id");
  std::vector<std::string> not_done;
  for (const std::string& key : generation.keys())
    if (std::find(std::begin(harmless_in_generation), std::end(harmless_in_generation), key) ==
        std::end(harmless_in_generation))
      not_done.push_back(key + "=" + shortened(*generation.find(key)));
  if (!not_done.empty())
    to.notes.push_back(generation.path() + ": not imported: " + join(not_done) +
                       "; generate has its own settings (orrery generate --help)");
  to.begins_texts = text_ends(folder).begins;
}

bool has_tied_head(const HuggingFaceConfig& config, bool otherwise, const ImportedModel& from,
                   const std::string& embedding, const std::string& head, const std::vector<int64_t>& shape) {
  const auto find = [&](const std::string& name) -> const StoredTensor* {
    for (const StoredTensor& each : from.tensors)
      if (each.name == name) return &each;
    return nullptr;
  };
  const StoredTensor *const table = find(embedding), *const own = find(head);
  const bool tied = config.flag("tie_word_embeddings", otherwise);
  check(tied || own, config.path(), ": 'tie_word_embeddings' ",
        config.has("tie_word_embeddings") ? "is false" : "is absent, which means false for this family",
        ", but there is no tensor '", head, "'; set it to true if the head is the embedding");
  if (!tied || !own || !table || !dtype_of_name(own->dtype) || !dtype_of_name(table->dtype)) return tied;
  if (own->shape != table->shape) return false;
  if (own->shape != shape) return tied;  // target_tensors rejects it before it reads any values
  const Tensor own_values = with_values(*own).tensor, table_values = with_values(*table).tensor;
  for (int64_t row = 0; row < shape[0]; ++row)  // compares values, so dtypes may differ
    if (own_values.slice(row, row + 1).to_vector() != table_values.slice(row, row + 1).to_vector()) return false;
  return true;
}

void write_hugging_face(const std::string& folder, Json config, const std::vector<NamedTensor>& tensors,
                        const std::string& tokenizer) {
  const Json saved = parse_json(tokenizer, "export: the tokenizer");
  add_marks(folder, config, *restore_tokenizer(tokenizer));
  if (!write_tokenizer_files(folder, saved)) config["orrery_tokenizer"] = saved;
  write_hugging_face(folder, std::move(config), tensors);
}
void write_hugging_face(const std::string& folder, Json config, const std::vector<NamedTensor>& tensors) {
  config["dtype"] = "float32";
  config["torch_dtype"] = "float32";  // transformers 4
  config["orrery_version"] = build().version;
  write_safetensors(folder + "/model.safetensors", tensors, {{"format", "pt"}});
  write_file_atomically(folder + "/" + config_name, json_text(config, 2) + "\n");
}

std::string source_activation(std::string_view format, const Spec& activation, const TrainSettings& run) {
  for (const auto& [source, target] : activations)
    if (activation.name == target && activation.items.empty()) return source;
  refuse_setting(format, run, "feed_forward");
}

void check_plain_decoder(std::string_view format, const TrainSettings& run) {
  const GptSettings& s = decoder(run);
  const auto need = [&](bool holds, std::string_view key) {
    if (!holds) refuse_setting(format, run, key);
  };
  need(s.norm_place == "pre", "norm_place"), need(!s.parallel, "parallel");
  need(s.residual_gain.is_one(), "residual_gain");
  need(s.feed_forward_divisor.is_one(), "feed_forward_divisor");
  need(s.feed_forward_residual.is_one(), "feed_forward_residual");
  need(print(s.embedding_scale) == "none" || print(s.embedding_scale) == "1", "embedding_scale");
  need(s.mask == "causal", "mask");
  need(!s.head_bias, "head_bias"), need(s.attention_bias != "query_key", "attention_bias");
  check_plain_attention(format, run);
  need(s.width % s.heads == 0, "heads");
}

void check_plain_attention(std::string_view format, const TrainSettings& run) {
  Spec attention = nn::resolved_attention(setting_of<Spec>(run.model_settings, "attention"));
  set_item(attention, "dropout", parse_spec("0"));
  if (attention != nn::resolved_attention(parse_spec("softmax"))) refuse_setting(format, run, "attention");
}

Spec common_normalization(std::string_view format, const TrainSettings& run, std::string_view name) {
  const Spec all = setting_of<Spec>(run.model_settings, "normalization");
  if (all.name != name) refuse_setting(format, run, "normalization");
  for (const char* key : {"attention_normalization", "feed_forward_normalization", "final_normalization"}) {
    const Spec& own = setting_of<Spec>(run.model_settings, key);
    if (own.name != "same" && own != all) refuse_setting(format, run, key);
  }
  return all;
}

double epsilon_of(const Spec& normalization) {
  for (const Spec::Item& item : nn::resolved(nn::normalizations(), normalization).items)
    if (item.key == "epsilon") return parse_number("epsilon", item.value.name);
  return 0;
}

Spec activation_of_feed_forward(std::string_view format, const TrainSettings& run, std::string_view name) {
  const Spec all = nn::resolved(nn::feed_forwards(), setting_of<Spec>(run.model_settings, "feed_forward"));
  if (all.name != name) refuse_setting(format, run, "feed_forward");
  for (const Spec::Item& item : all.items)
    if (item.key == "activation") return item.value;
  refuse_setting(format, run, "feed_forward");
}

}  // namespace orrery::models
