#include "models/training/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/system/files.h"
#include "engine/system/hash.h"
#include "engine/system/version.h"
#include "engine/tensor/finite.h"
#include "engine/tensor/safetensors.h"
#include "models/data/text_format.h"
#include "models/formats/json.h"
#include "models/model.h"

namespace orrery::models {
namespace {

constexpr int64_t max_step = 1'000'000'000'000'000;

const std::map<std::string, std::string> metadata = {{"format", "pt"}};  // the only key that other readers require

std::string file_of(const std::string& checkpoint, const std::string& name) { return checkpoint + "/" + name; }

std::vector<NamedTensor> weights_of(nn::Module& model) {
  std::vector<NamedTensor> all;
  for (const nn::NamedParameter& p : nn::parameters_of(model)) all.push_back({p.path, p.parameter->value.detach()});
  for (const auto& [path, buffer] : nn::buffers_of(model)) all.push_back({path, *buffer});
  return all;
}
std::vector<NamedTensor> optimizer_state_of(const nn::Optimizer& optimizer) {
  std::vector<NamedTensor> all;
  for (const auto& [path, tensor] : optimizer.state()) all.push_back({path, tensor});
  return all;
}
constexpr const char* extra_inputs_key = "beside";  // former name, which files keep

// Former name, which files keep. carried.1.blocks.0.attention: its stream state for micro-batch 1.
const std::string stream_prefix = "carried.";
void add_stream_states(const std::vector<nn::Cache>& stream_states, std::vector<NamedTensor>& all) {
  for (size_t i = 0; i < stream_states.size(); ++i)
    for (const auto& [path, entry] : stream_states[i].entries)
      all.push_back({stream_prefix + std::to_string(i) + "." + path, entry.states});
}
std::vector<NamedTensor> on_cpu(std::vector<NamedTensor> tensors) {
  for (NamedTensor& each : tensors) each.tensor = each.tensor.detach().to(Device::cpu);
  return tensors;
}

// Returns the name of the first tensor with an infinity or a NaN, or an empty string.
std::string first_non_finite(const std::vector<NamedTensor>& on_cpu) {
  for (const auto& [name, x] : on_cpu)
    if (!all_finite(x)) return name;
  return {};
}

// Older programs wrote text that is not UTF-8, such as a path, as {"bytes": "6c6174e9"}.
std::string text_of(const Json& settings, const std::string& key, const std::string& what) {
  if (!settings[key].is_object()) return text_member(settings, key, what);
  const std::string digits = text_member(settings[key], "bytes", what);
  check(digits.size() % 2 == 0 && digits.find_first_not_of("0123456789abcdef") == std::string::npos, what, ": '",
        digits, "' must be hexadecimal digits, two per byte");
  std::string value;
  for (size_t i = 0; i < digits.size(); i += 2)
    value.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  return value;
}

Json as_json(const Fingerprint& file) { return {{"bytes", file.bytes}, {"sha256", file.sha256}}; }
Fingerprint fingerprint(const Json& file, const std::string& what) {
  return {static_cast<uint64_t>(whole_number_member(file, "bytes", what)), text_member(file, "sha256", what)};
}

Json as_json(const std::vector<TrainedPart>& parts) {
  Json all = Json::array();
  for (const TrainedPart& part : parts)
    all.push_back({{"bytes", part.fingerprint.bytes},
                   {"sha256", part.fingerprint.sha256},
                   {"begin", part.begin},
                   {"end", part.end}});
  return all;
}
Json as_json(const TrainingData& data) {
  Json json = as_json(data.fingerprint);
  json["held_out"] = data.held_out, json["of_init_from"] = data.of_init_from;
  if (!data.parts.empty()) json["parts"] = as_json(data.parts);
  return json;
}
std::vector<TrainedPart> parts_in(const Json& json, const std::string& what) {
  std::vector<TrainedPart> parts;
  if (!json.contains("parts")) return parts;
  for (const Json& part : list_member(json, "parts", what)) {
    const int64_t begin = whole_number_member(part, "begin", what), end = whole_number_member(part, "end", what);
    check(begin >= 0 && begin <= end && end <= max_step, what, ": a part has the tokens ", begin, " to ", end,
          "; both numbers must be at least 0, in ascending order and at most ", max_step);
    parts.push_back({fingerprint(part, what), begin, end});
  }
  return parts;
}
std::vector<TrainingData> earlier_in(const Json& json, const std::string& what) {
  std::vector<TrainingData> all;
  if (!json.contains("earlier")) return all;
  for (const Json& data : list_member(json, "earlier", what)) {
    const Json& begun = member(data, "of_init_from", what);
    check(begun.is_boolean(), what, ": 'of_init_from' must be true or false");
    const double held_out = number_member(data, "held_out", what);
    check(held_out >= 0 && held_out < 1, what, ": 'held_out' is ", held_out, "; it must be at least 0 and below 1");
    all.push_back({fingerprint(data, what), held_out, parts_in(data, what), begun.get<bool>()});
  }
  return all;
}

std::string json_of(const CheckpointState& state) {
  Json json = {{"format", checkpoint_format},  {"version", build().version},
               {"step", state.step},           {"validation_loss", state.validation_loss},
               {"validated", state.validated}, {"text", as_json(state.text)}};
  if (!state.parts.empty()) json["parts"] = as_json(state.parts);
  Json earlier = Json::array();
  for (const TrainingData& data : state.earlier) earlier.push_back(as_json(data));
  if (!earlier.empty()) json["earlier"] = std::move(earlier);
  if (state.position > 0) json["position"] = state.position;
  if (state.data_since > 0) json["data_since"] = state.data_since;
  // Made as an object, because converting null to an object crashes without memory.
  Json& files = json["files"] = Json::object();
  for (const auto& [name, file] : state.files) files[name] = as_json(file);
  if (!state.extra_inputs.empty()) {
    Json& extra_inputs = json[extra_inputs_key] = Json::object();
    for (const auto& [key, data] : state.extra_inputs) extra_inputs[key] = as_json(data);
  }
  json["tokenizer"] = parse_own_json(state.tokenizer);
  Json& settings = json["settings"] = Json::object();
  for (const auto& [key, value] : state.settings) settings[key] = value;
  add_seal(json);
  return json_text(json, 2) + "\n";
}

int64_t step_in(const Json& json, const std::string& what) {
  const Json& step = member(json, "step", what);
  const bool whole = step.is_number_integer() && !(step.is_number_unsigned() && step.get<uint64_t>() > max_step);
  check(whole && step.get<int64_t>() >= 0 && step.get<int64_t>() <= max_step, what, ": its step is ", json_text(step),
        "; it must be a whole number of at least 0 and at most ", max_step);
  return step.get<int64_t>();
}

// Rewrites attend_to_self=default of older checkpoints, which meant yes under a fixed span, but no
// in a stream model; newer checkpoints store yes or no under any span (resolved_attention).
void name_own_token(Assignments& settings) {
  bool stream = false;
  for (const auto& [key, value] : settings)
    if (key == "model") {
      const Preset* const preset = presets().find(value);
      stream = (preset ? preset->model : value) == "stream";
    }
  for (auto& [key, value] : settings) {
    if (value.find("span=fixed(") == std::string::npos) continue;
    Spec spec = parse_spec(value);
    const auto own = std::find_if(spec.items.begin(), spec.items.end(), [](const Spec::Item& item) {
      return item.key == "attend_to_self" || item.key == "own";
    });
    if (own == spec.items.end() || own->value.name != "default") continue;
    own->value = parse_spec(stream ? "no" : "yes");
    value = print(spec);
  }
}

// Adds text_field= where an older run read files that have fields as plain text.
void name_text_field(Assignments& settings) {
  const auto has_fields = [](const std::string& path) {
    try {
      return !path.empty() && has_many_documents(TextPath(path));
    } catch (const Error&) {
      return false;  // the data are gone
    }
  };
  bool of_text = false, named = false, fields = false;
  for (const auto& [key, value] : settings) {
    of_text |= key == "validation_tokens", named |= key == "text_field";
    fields |= (key == "data" || key == "validation_data") && has_fields(value);
  }
  if (of_text && !named && fields) settings.emplace_back("text_field", "");
}

CheckpointState state_in(const std::string& content, const std::string& what) {
  Json json = parse_json(content, what);
  CheckpointState state;
  state.step = step_in(json, what);
  if (json.contains("version")) state.version = text_member(json, "version", what);
  if (json.contains("position")) state.position = whole_number_member(json, "position", what);
  if (json.contains("data_since")) state.data_since = whole_number_member(json, "data_since", what);
  state.validation_loss = number_member(json, "validation_loss", what);
  if (json.contains("validated")) state.validated = whole_number_member(json, "validated", what);
  const Json &tokenizer = member(json, "tokenizer", what), &settings = member(json, "settings", what);
  check(tokenizer.is_object(), what, ": 'tokenizer' must be an object {...}");
  state.tokenizer = json_text(tokenizer);
  check(settings.is_object(), what, ": 'settings' must be an object {...}");
  for (const auto& [key, value] : settings.items()) state.settings.emplace_back(key, text_of(settings, key, what));
  name_own_token(state.settings), name_text_field(state.settings);
  if (!json.contains("format")) {  // an older checkpoint
    for (const char* later : {"files", "text", "sha256"}) check(!json.contains(later), what, ": 'format' is missing");
    return state;
  }
  const std::string format = text_member(json, "format", what);
  check(format == checkpoint_format, what, ": its format is '", format, "', but this version reads '",
        checkpoint_format, "'; use the version of orrery that wrote it");
  const Json& files = member(json, "files", what);
  state.files[weights_name] = fingerprint(member(files, weights_name, what), what);
  if (files.contains(optimizer_name)) state.files[optimizer_name] = fingerprint(files[optimizer_name], what);
  state.text = fingerprint(member(json, "text", what), what);
  state.parts = parts_in(json, what), state.earlier = earlier_in(json, what);
  if (json.contains(extra_inputs_key)) {
    check(json[extra_inputs_key].is_object(), what, ": '", extra_inputs_key, "' must be an object {...}");
    for (const auto& [key, data] : json[extra_inputs_key].items()) state.extra_inputs[key] = fingerprint(data, what);
  }
  take_seal(json, what);
  return state;
}

struct Target {  // the destination of a tensor of a file
  std::string name;
  Tensor tensor;
  Dtype dtype;  // required in the file
};

bool within(const std::string& path, const std::vector<std::string>& modules) {
  return std::any_of(modules.begin(), modules.end(),
                     [&](const std::string& module) { return path.starts_with(module + "."); });
}

// Checks all tensors of a file, then copies them by name; skips `fresh` modules.
void load(const std::string& path, std::vector<Target> targets, const std::vector<std::string>& fresh = {}) {
  const SafetensorsFile file = read_safetensors(path);
  std::map<std::string, Tensor> stored;
  for (const NamedTensor& t : file.tensors)
    if (!t.name.starts_with(stream_prefix) && !within(t.name, fresh)) stored.emplace(t.name, t.tensor);
  std::erase_if(targets, [&](const Target& target) { return within(target.name, fresh); });
  for (const Target& target : targets) {
    const auto found = stored.find(target.name);
    check(found != stored.end(), "load: ", path, " has no tensor '", target.name,
          "'; use the settings of model and optimizer that it was written with");
    check(found->second.shape() == target.tensor.shape(), "load: ", path, ": '", target.name, "' has shape ",
          found->second.shape(), ", but these settings require ", target.tensor.shape(),
          "; use the settings that the checkpoint was trained with");
    const bool half = file.halves.contains(target.name);
    check(!half && found->second.dtype() == target.dtype, "load: ", path, ": '", target.name, "' has dtype ",
          half ? "f16" : name(found->second.dtype()), ", but a run with these settings writes ", name(target.dtype),
          "; the file does not belong to this checkpoint");
  }
  check(file.others.empty(), "load: ", path, ": '", file.others.empty() ? "" : file.others[0].name, "' has dtype ",
        file.others.empty() ? "" : file.others[0].dtype,
        ", which orrery never writes; the file does not belong to this checkpoint");
  check(stored.size() == targets.size(), "load: ", path, " has ", stored.size(),
        " tensors, but these settings require ", targets.size(), "; use the settings that it was written with");
  if (const std::string broken = first_non_finite(file.tensors); !broken.empty())
    throw NonFiniteCheckpointError(text("load: ", path, ": '", broken,
                                        "' is not finite, because training had diverged; use an earlier checkpoint"));
  for (const Target& target : targets) target.tensor.copy_from(stored.at(target.name));
}

// Returns the stored weights' dtype; the model may have another one, as in `generate`.
Dtype dtype_of_run(const CheckpointState& state) {
  std::string dtype = TrainSettings().dtype;
  for (const auto& [key, value] : state.settings)
    if (key == "dtype") dtype = value;
  return parse_dtype(dtype);
}

Fingerprint write_tensors(const std::string& path, const std::vector<NamedTensor>& tensors) {
  write_safetensors(path, tensors, metadata);
  check_written(path, tensors, metadata);
  return {FileReader(path).size(), sha256_of_file(path)};
}

}  // namespace

void write_checkpoint(const std::string& folder, const CheckpointState& given, nn::Module& model,
                      const nn::Optimizer* optimizer) {
  CheckpointState state = given;
  const auto write = [&](const char* name, const std::vector<NamedTensor>& tensors) {
    if (const std::string broken = first_non_finite(tensors); !broken.empty())
      throw NonFiniteCheckpointError("first: " + broken);
    state.files[name] = write_tensors(file_of(folder, name), tensors);
  };
  write(weights_name, on_cpu(weights_of(model)));
  if (optimizer) {
    std::vector<NamedTensor> state_tensors = optimizer_state_of(*optimizer);
    add_stream_states(state.stream_states, state_tensors);
    write(optimizer_name, on_cpu(std::move(state_tensors)));
  }
  write_state(folder, state);
}

void write_state(const std::string& folder, const CheckpointState& state) {
  const std::string path = file_of(folder, state_name), content = json_of(state);
  write_file_atomically(path, content);
  check(read_file(path) == content, "write: ", path, " differs from what was written when read back; check the disk");
}

std::string state_text(const std::string& checkpoint) {
  const std::string path = file_of(checkpoint, state_name);
  check(file_exists(path), "checkpoint: cannot read ", path, "; give the folder of a run or of one of its checkpoints");
  return read_file(path, max_json_bytes);
}
CheckpointState parse_state(const std::string& content, const std::string& checkpoint) {
  return state_in(content, "checkpoint: " + file_of(checkpoint, state_name) + " is damaged");
}
CheckpointState read_state(const std::string& checkpoint) { return parse_state(state_text(checkpoint), checkpoint); }

void check_size(const std::string& checkpoint, const CheckpointState& state, const std::string& file) {
  const std::string path = file_of(checkpoint, file);
  check(file_exists(path), "checkpoint: ", path, " is missing");
  const auto known = state.files.find(file);
  if (known == state.files.end()) return;
  const uint64_t bytes = FileReader(path).size();
  check(bytes == known->second.bytes, "checkpoint: ", path, " is damaged: it has ", bytes, " bytes, but ",
        known->second.bytes, " were written");
}

void check_content(const std::string& checkpoint, const CheckpointState& state, const std::string& file) {
  check_size(checkpoint, state, file);
  const std::string path = file_of(checkpoint, file);
  const auto known = state.files.find(file);
  if (known == state.files.end()) return void(read_safetensors(path));  // throws if the file is malformed
  const std::string hash = sha256_of_file(path);
  check(hash == known->second.sha256, "checkpoint: ", path, " is damaged, or does not belong to step ", state.step,
        ": its SHA-256 is ", hash, ", but ", known->second.sha256, " was written");
}

void load_weights(const std::string& checkpoint, nn::Module& model, const std::vector<std::string>& fresh) {
  nn::ensure_paths(model);
  const CheckpointState state = read_state(checkpoint);
  check_content(checkpoint, state, weights_name);
  const Dtype run = dtype_of_run(state);
  std::vector<Target> targets;
  for (const nn::NamedParameter& p : nn::parameters_of(model)) targets.push_back({p.path, p.parameter->value, run});
  for (const auto& [path, buffer] : nn::buffers_of(model))  // dtypes as nn::convert sets them
    targets.push_back({path, *buffer,
                       !is_floating(buffer->dtype()) ? buffer->dtype()
                       : run == Dtype::bf16          ? Dtype::f32
                                                     : run});
  load(file_of(checkpoint, weights_name), std::move(targets), fresh);
}

void load_optimizer(const std::string& checkpoint, nn::Optimizer& optimizer) {
  check_content(checkpoint, read_state(checkpoint), optimizer_name);
  std::vector<Target> targets;
  for (const auto& [path, tensor] : optimizer.state()) targets.push_back({path, tensor, tensor.dtype()});
  load(file_of(checkpoint, optimizer_name), std::move(targets));
}

std::vector<nn::Cache> load_stream_states(const std::string& checkpoint, Device device) {
  const int64_t position = read_state(checkpoint).position;
  std::vector<nn::Cache> stream_states;
  if (position == 0) return stream_states;
  for (const NamedTensor& t : read_safetensors(file_of(checkpoint, optimizer_name)).tensors) {
    if (!t.name.starts_with(stream_prefix)) continue;
    const size_t begin = stream_prefix.size(), end = std::min(t.name.find('.', begin), t.name.size() - 1);
    const auto micro_batch =
        static_cast<size_t>(parse_whole_number(checkpoint + ": " + t.name, t.name.substr(begin, end - begin)));
    check(micro_batch <= stream_states.size(), "load: ", checkpoint, ": the stream state of micro-batch ",
          stream_states.size(), " is missing");
    if (micro_batch == stream_states.size())
      stream_states.emplace_back(nn::Cache{.entries = {}, .length = position, .holds_states = true});
    stream_states[micro_batch].entries[t.name.substr(end + 1)].states = t.tensor.to(device);
  }
  return stream_states;
}

}  // namespace orrery::models
