#include "models/training/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/base/check.h"
#include "engine/base/files.h"
#include "engine/base/version.h"
#include "engine/tensor/safetensors.h"
#include "models/json.h"

namespace orrery::models {
namespace {

namespace fs = std::filesystem;

const std::map<std::string, std::string> metadata = {{"format", "pt"}};  // the one key that other readers ask for

std::string folder_name(int64_t step) {
  std::string digits = std::to_string(step);
  return "step_" + std::string(digits.size() < 6 ? 6 - digits.size() : 0, '0') + digits;
}
// The number of a folder that this file named; -1 for any other.
int64_t step_of(const std::string& name) {
  if (!name.starts_with("step_") || name.size() < 6 || name.find_first_not_of("0123456789", 5) != std::string::npos)
    return -1;
  return std::stoll(name.substr(5));
}
std::vector<std::pair<int64_t, fs::path>> checkpoints_in(const std::string& folder) {  // newest first
  std::vector<std::pair<int64_t, fs::path>> found;
  if (!fs::is_directory(folder)) return found;
  for (const auto& entry : fs::directory_iterator(folder))
    if (const int64_t step = step_of(entry.path().filename().string()); step >= 0)
      found.emplace_back(step, entry.path());
  std::sort(found.rbegin(), found.rend());
  return found;
}

std::vector<NamedTensor> weights_of(nn::Module& model) {
  std::vector<NamedTensor> all;
  for (const nn::NamedParameter& p : nn::parameters_of(model)) all.push_back({p.path, p.parameter->value.detach()});
  for (const auto& [path, buffer] : nn::buffers_of(model)) all.push_back({path, *buffer});
  return all;
}
std::vector<NamedTensor> moments_of(const nn::Optimizer& optimizer) {
  std::vector<NamedTensor> all;
  for (const auto& [path, tensor] : optimizer.state()) all.push_back({path, tensor});
  return all;
}

// Copies the tensors of a file into places of the same names, after checking every one.
void load(const std::string& path, const std::vector<NamedTensor>& places) {
  std::map<std::string, Tensor> stored;
  for (const NamedTensor& t : read_safetensors(path).tensors) stored.emplace(t.name, t.tensor);
  for (const NamedTensor& place : places) {
    const auto found = stored.find(place.name);
    check(found != stored.end(), "load: ", path, " has no tensor '", place.name, "'; it was written by another model");
    check(found->second.shape() == place.tensor.shape(), "load: ", path, ": '", place.name, "' has shape ",
          found->second.shape(), ", the model wants ", place.tensor.shape(),
          "; use the settings that the checkpoint was trained with");
  }
  check(stored.size() == places.size(), "load: ", path, " has ", stored.size(), " tensors, the model ", places.size());
  for (const NamedTensor& place : places) place.tensor.copy_from(stored.at(place.name));
}

}  // namespace

std::string write_checkpoint(const std::string& folder, const CheckpointState& state, nn::Module& model,
                             const nn::Optimizer& optimizer) {
  const fs::path final_path = fs::path(folder) / folder_name(state.step),
                 temporary = fs::path(folder) / (folder_name(state.step) + ".partial");
  Json json = {{"version", build().version}, {"step", state.step}, {"validation_loss", state.validation_loss}};
  json["tokenizer"] = Json::parse(state.tokenizer);
  Json& settings = json["settings"] = Json::object();
  for (const auto& [key, value] : state.settings) settings[key] = value;
  try {
    fs::remove_all(temporary);
    fs::create_directories(temporary);
    write_safetensors((temporary / "weights.safetensors").string(), weights_of(model), metadata);
    write_safetensors((temporary / "optimizer.safetensors").string(), moments_of(optimizer), metadata);
    write_file_atomically((temporary / "state.json").string(), json.dump(2) + "\n");
    sync_folder(temporary.string());
    fs::remove_all(final_path);
    fs::rename(temporary, final_path);
    sync_folder(folder);
  } catch (const fs::filesystem_error& error) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    fail("checkpoint: cannot write ", final_path.string(), ": ", error.code().message(),
         "; the previous checkpoint is intact");
  } catch (const Error& error) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    fail("checkpoint: ", error.what(), "; the previous checkpoint is intact");
  }
  return final_path.string();
}

std::string latest_checkpoint(const std::string& folder) {
  for (const auto& [step, path] : checkpoints_in(folder))
    if (fs::exists(path / "state.json") && fs::exists(path / "weights.safetensors")) return path.string();
  return {};
}

CheckpointState read_state(const std::string& checkpoint) {
  const std::string path = (fs::path(checkpoint) / "state.json").string();
  check(file_exists(path), "checkpoint: cannot read ", path, "; give the folder of a run or of one of its checkpoints");
  const std::string what = "checkpoint: " + path + " is damaged";
  const Json json = parse_json(read_file(path, largest_json), what);
  CheckpointState state;
  state.step = whole_number_member(json, "step", what);
  state.validation_loss = number_member(json, "validation_loss", what);
  state.tokenizer = member(json, "tokenizer", what).dump();
  const Json& settings = member(json, "settings", what);
  for (const auto& [key, value] : settings.items()) state.settings.emplace_back(key, text_member(settings, key, what));
  return state;
}

void load_weights(const std::string& checkpoint, nn::Module& model) {
  nn::ensure_paths(model);
  load((fs::path(checkpoint) / "weights.safetensors").string(), weights_of(model));
}
void load_optimizer(const std::string& checkpoint, nn::Optimizer& optimizer) {
  load((fs::path(checkpoint) / "optimizer.safetensors").string(), moments_of(optimizer));
}

void remove_old_checkpoints(const std::string& folder, int64_t keep) {
  const auto all = checkpoints_in(folder);
  for (size_t i = static_cast<size_t>(keep); keep > 0 && i < all.size(); ++i) fs::remove_all(all[i].second);
}

}  // namespace orrery::models
