#include "models/interop/base/weight_format.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "engine/system/files.h"
#include "engine/system/machine_memory.h"
#include "engine/types/format.h"
#include "models/data/images.h"
#include "models/data/text_ends.h"
#include "models/formats/gzip.h"
#include "models/formats/json.h"
#include "models/image_model.h"
#include "models/language_model.h"
#include "models/model.h"
#include "models/settings/settings_file.h"
#include "models/training/memory_plan.h"
#include "models/training/run_folder.h"

namespace orrery::models {
namespace {

constexpr const char* reference_name = "logits.safetensors";
constexpr int64_t sequences_at_once = 8;  // batch size for reference logits

std::string listed(const std::vector<const WeightFormat*>& formats) {
  std::vector<std::string> all;
  for (const WeightFormat* one : formats) all.push_back(one->name + " (" + one->description + ")");
  return join(all);
}

const WeightFormat& format_of(const std::string& path) {
  std::vector<const WeightFormat*> all;
  for (const auto& [name, format] : weight_formats()) {
    if (format.reads(path)) return format;
    all.push_back(&format);
  }
  check(file_exists(path), "import: ", path, " does not exist; give the folder or file of a model");
  refuse_pickles(path);
  std::string kind;
  if (const std::string config = find_data_file(path, {"config.json"}); !config.empty())
    kind = " (its config.json has model_type '" +
           text_member(parse_json(read_data_file(config, max_settings_bytes), config), "model_type", config) + "')";
  fail("import: ", path, " is not in a supported format", kind, "; supported formats: ", listed(all));
}

// Returns a note about a LoRA adapter of peft, which is next to the weights that it changes.
// Throws if the folder has no such weights.
std::vector<std::string> notes_of_adapter(const std::string& path) {
  const std::string adapter = path + "/adapter_config.json", index = "model.safetensors.index.json",
                    advice = "; to import the model with it, merge it into the weights first (merge_and_unload() of "
                             "peft), and import the folder that the merged model is saved to";
  if (!folder_exists(path) || !file_exists(adapter)) return {};
  check(file_exists(path + "/model.safetensors") || !find_data_file(path, {index}).empty(), "import: ", path,
        " has an adapter (adapter_config.json), but no model", advice);
  return {adapter + ": the adapter is not read" + advice};
}

int64_t count_values(const std::vector<StoredTensor>& tensors) {
  int64_t all = 0;
  for (const StoredTensor& each : tensors) all += dtype_of_name(each.dtype) ? count_of(each) : 0;
  return all;
}

// Throws if the described model is far larger than the stored tensors, before it is allocated.
void check_described(const TrainSettings& run, const ImportedModel& from, const std::string& path) {
  const int64_t there = count_values(from.tensors), limit = 4 * there + 1'000'000;
  const std::optional<int64_t> parameters = count_parameters(run, limit);
  check(parameters.has_value(), "import: ", path, " describes a model of more than ", limit,
        " parameters, but its tensors have ", there, " values; check the sizes that it gives, such as the vocabulary");
  check_memory("import: the model that " + path + " describes", sizeof(float) * static_cast<double>(*parameters),
               out_of_memory_advice());
}

// Returns the allowed difference of logits, as a fraction of the largest one. It covers another
// order of summation and rounding to the dtype of the stored logits, including the model's weights.
double allowed_fraction(const std::string& dtype) { return dtype == "BF16" ? 0.05 : dtype == "F16" ? 0.01 : 1e-3; }

// Model input and expected output from a file of reference logits.
struct Reference {
  Tensor inputs, logits;
  double tolerance = 0;  // allowed difference as a fraction of the largest logit
};
Reference read_reference(nn::Module& model, const std::string& path) {
  const std::vector<StoredTensor> stored = stored_tensors(path);
  const auto find = [&](const char* name) -> const StoredTensor& {
    for (const StoredTensor& each : stored)
      if (each.name == name) return each;
    fail("import: ", path, " has no tensor '", name,
         "'; it must have tokens (B, T) and logits (B, T, V), or pixel_values (B, channels, height, width) and logits "
         "(B, classes)");
  };
  const auto has_floating_dtype = [](const StoredTensor& x) {
    const std::optional<Dtype> dtype = dtype_of_name(x.dtype);
    return dtype && is_floating(*dtype);
  };
  using Sizes = std::vector<int64_t>;
  const StoredTensor& logits = find("logits");
  check(has_floating_dtype(logits), "import: ", path, ": 'logits' has dtype ", logits.dtype,
        "; it must be a floating-point dtype (F32, F64, F16, BF16)");
  if (const auto* const images = dynamic_cast<const ImageModel*>(&model)) {
    const StoredTensor& pixels = find("pixel_values");
    const int64_t size = images->image_size();
    check(has_floating_dtype(pixels) && pixels.shape.size() == 4 &&
              pixels.shape == Sizes{pixels.shape[0], images->channels(), size, size} &&
              logits.shape == Sizes{pixels.shape[0], images->classes()},
          "import: ", path, ": pixel_values has shape ", shape_text(pixels), " and logits ", shape_text(logits),
          "; for this model they must be floating-point values of shapes (B, ", images->channels(), ", ", size, ", ",
          size, ") and (B, ", images->classes(), ")");
    return {permute(with_values(pixels).tensor, {0, 2, 3, 1}), with_values(logits).tensor,
            allowed_fraction(logits.dtype)};
  }
  constexpr const char* wanted = "a language or image model, so its logits cannot be compared";
  const int64_t vocabulary = model_as<LanguageModel>(model, "import", wanted).vocabulary();
  const StoredTensor& inputs = find("tokens");
  check(inputs.shape.size() == 2 && logits.shape == Sizes{inputs.shape[0], inputs.shape[1], vocabulary},
        "import: ", path, ": tokens has shape ", shape_text(inputs), " and logits ", shape_text(logits),
        "; for this model the shapes must be (B, T) and (B, T, ", vocabulary, ")");
  const Tensor tokens = as_tokens(with_values(inputs));
  for (const double token : tokens.to_vector()) check_token(static_cast<int32_t>(token), vocabulary);
  return {tokens, with_values(logits).tensor, allowed_fraction(logits.dtype)};
}

// Returns the largest absolute difference of the model's logits from the file's. Throws if
// rounding does not explain it.
double difference(nn::Module& model, const std::string& path) {
  const NoGrad guard;
  const Reference reference = read_reference(model, path);
  double largest = 0, max_logit = 0;
  for (int64_t begin = 0; begin < reference.inputs.size(0); begin += sequences_at_once) {
    const int64_t end = std::min(begin + sequences_at_once, reference.inputs.size(0));
    nn::ForwardPass pass;
    const std::vector<double> target = model(reference.inputs.slice(begin, end), pass).to_vector(),
                              source = reference.logits.slice(begin, end).to_vector();
    for (size_t i = 0; i < target.size(); ++i) {
      const double apart = std::abs(target[i] - source[i]);
      largest = std::isnan(apart) ? apart : std::max(largest, apart);
      if (std::isfinite(source[i])) max_logit = std::max(max_logit, std::abs(source[i]));
    }
  }
  const double allowed = reference.tolerance * max_logit;
  check(largest <= allowed, "import: ", path, ": the logits differ by ", scientific(largest),
        "; rounding explains at most ", scientific(allowed), " (", reference.tolerance,
        " of the largest logit); they were computed with other weights or settings (layers, heads, rotary base, "
        "activation, epsilon) or not in float32; recompute them from the imported model, or leave this file out");
  return largest;
}

std::optional<double> checked_difference(nn::Module& model, const std::string& path, const std::string& check_file) {
  const std::string in_folder = path + "/" + reference_name;
  if (!check_file.empty()) return difference(model, check_file);
  if (!folder_exists(path) || !file_exists(in_folder)) return std::nullopt;
  return difference(model, in_folder);
}

void copy_into(nn::Module& model, const std::vector<NamedTensor>& tensors) {
  std::map<std::string, Tensor> to;
  for (const nn::NamedParameter& p : nn::parameters_of(model)) to.emplace(p.path, p.parameter->value);
  for (const NamedTensor& each : tensors) to.at(each.name).copy_from(each.tensor);
}

std::string write_run(RunFolder& folder, const TrainSettings& run, nn::Module& model, const std::string& tokenizer) {
  const CheckpointState state{.tokenizer = tokenizer, .settings = list_settings(resolved(run))};
  const std::string checkpoint = folder.write(state, model, nullptr);
  try {
    write_settings_file(run.out + "/settings.toml", list_settings(run));
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove_all(checkpoint, ignored);
    throw;
  }
  return checkpoint;
}

struct FoundTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;
  std::string setting;                  // value of --tokenizer=... for later commands
  std::vector<std::string> notes = {};  // why it is not the folder's own, and unsupported parts
};

// Returns the requested tokenizer, the folder's, or "token_ids" if the folder has none that is
// supported. Throws if the folder's is damaged, because "token_ids" would hide that.
FoundTokenizer tokenizer_for(const ImportedModel& from, const std::string& requested, int64_t vocabulary) {
  const auto with_notes = [](std::unique_ptr<Tokenizer> tokenizer, const std::string& setting) {
    std::vector<std::string> notes = tokenizer->notes();
    return FoundTokenizer{std::move(tokenizer), setting, std::move(notes)};
  };
  if (!requested.empty()) {
    const auto no_text = [&]() -> std::string {
      fail("import: --tokenizer=", requested,
           " must be trained on a text, but import reads no text; give the path of a trained tokenizer, or byte");
    };
    return with_notes(make_tokenizer(requested, no_text), requested);
  }
  if (!from.saved_tokenizer.empty()) {
    auto saved = restore_tokenizer(from.saved_tokenizer);
    const std::string name = saved->name();
    return {std::move(saved), name};
  }
  std::vector<std::string> notes;
  if (has_tokenizer(from.tokenizer_path)) try {
      return with_notes(make_tokenizer(from.tokenizer_path, ""), from.tokenizer_path);
    } catch (const TokenizerNotSupported& error) {
      notes = {error.what()};
    } catch (const Error& error) {
      fail("import: ", error.what(), "; fix it, or give another one with --tokenizer=FOLDER");
    }
  else if (!from.tokenizer_path.empty())
    notes = {"tokenizer: " + from.tokenizer_path +
             " has no supported tokenizer; texts are token ids unless --tokenizer=PATH gives one"};
  return {restore_tokenizer(saved_token_ids(vocabulary)), "token_ids", notes};
}

// Returns true if the tokenizer's own files name the token between documents, and the model has it.
// The model's files name only the tokens at which generation stops.
bool has_own_end(const FoundTokenizer& found, int64_t known) {
  const Tokenizer& tokenizer = *found.tokenizer;
  if (!tokenizer.end_of_text() || *tokenizer.end_of_text() >= known) return false;
  return tokenizer.end() || (folder_exists(found.setting) && names_end(found.setting, tokenizer));
}

// Applies the source's begin and end tokens, if the model has them, and the number of its tokens.
void apply_conventions(FoundTokenizer& found, const ImportedModel& from, int64_t vocabulary) {
  const int64_t tokens = found.tokenizer->size(), known = std::min(tokens, vocabulary);
  const auto mark = [&](std::optional<int64_t> token) {
    return token && *token < known ? std::optional(static_cast<int32_t>(*token)) : std::nullopt;
  };
  // If the tokenizer's own files define how a text begins, they also name the token.
  const bool begins = found.tokenizer->begins_texts();
  TokenizerOverrides overrides{
      .begin = mark(begins ? std::optional<int64_t>(found.tokenizer->begin()) : from.begin_token),
      .end = has_own_end(found, known) ? std::nullopt : mark(from.end_token),
      .vocabulary = known};
  if (found.tokenizer->name() != "token_ids") overrides.begins_texts = from.begins_texts;  // "token_ids" never adds one
  if (begins && !overrides.begin) {
    overrides.begins_texts = false;
    found.notes.push_back(text("the tokenizer begins a text with token ", *found.tokenizer->begin(),
                               ", but the model's tokens are 0 to ", known - 1, "; no begin token is added here"));
  }
  if (found.tokenizer->name() != "token_ids" && overrides.begin && !from.begins_texts)
    found.notes.push_back(text("no file specifies whether texts begin with token ", *overrides.begin,
                               "; they do not here; --begin=yes adds it"));
  for (const int64_t end : from.ends)
    if (const auto token = mark(end))
      overrides.ends.emplace(overrides.ends.value_or(std::vector<int32_t>())).push_back(*token);
  std::vector<int64_t> ends = from.ends;
  if (const auto end = found.tokenizer->end_of_text()) ends.push_back(*end);
  if (const auto end = std::find_if(ends.begin(), ends.end(), [&](int64_t each) { return each >= known; });
      end != ends.end())
    found.notes.push_back(text("a text ends with token ", *end, ", but the model's tokens are 0 to ", known - 1,
                               "; this token ends no text here"));
  if (tokens > vocabulary)
    found.notes.push_back(text("the tokenizer has ", tokens, " tokens and the model ", vocabulary,
                               "; texts with a token that the model lacks are errors"));
  found.tokenizer = with_overrides(std::move(found.tokenizer), std::move(overrides));
  const auto without = static_cast<int64_t>(ids_without_token(*found.tokenizer, vocabulary).size());
  if (without > 0)
    found.notes.push_back(text("token ids of the model that the tokenizer lacks: ", without, " of ", vocabulary,
                               "; they are never sampled"));
}

const Spec* position_of(const TrainSettings& run) {  // null: the model has no such setting
  const std::vector<Setting> members = run.model_settings.members();
  const Setting* const found = find_setting(members, "position");
  return found ? std::get<Spec*>(found->value) : nullptr;
}

const WeightFormat& format_for(const TrainSettings& run, const std::string& name) {
  const std::string& model = named_model(run.model).model_class.name;
  const Spec* const position = position_of(run);
  const auto has_position = [&](const WeightFormat& one) { return position && position->name == one.position; };
  std::vector<const WeightFormat*> writers;
  std::vector<std::string> needed;
  for (const auto& [key, one] : weight_formats()) {
    if (!one.write) continue;
    writers.push_back(&one);
    if (name.empty() && one.model == model && has_position(one)) return one;
    if (one.model == model) needed.push_back(text(one.name, " requires position=", one.position));
  }
  if (!name.empty()) {
    const WeightFormat& format = weight_formats().at(name);
    check(format.write != nullptr, "export: the ", name,
          " format is for import only; formats for export: ", listed(writers));
    check(format.model == model, "export: the ", name, " format is for models of class ", format.model,
          ", but model=", run.model, " is of class ", model, "; leave out --format");
    if (!has_position(format)) refuse_setting(name, run, "position");
    return format;
  }
  check(!needed.empty(), "export: no format supports model=", run.model, ", which is of class ", model,
        "; formats for export: ", listed(writers));
  fail("export: no format supports position=", position ? print(*position) : "none", " of model=", run.model, "; ",
       join(needed));
}

}  // namespace

Registry<WeightFormat>& weight_formats() {
  static Registry<WeightFormat> all("format");
  return all;
}

Assignments imported_settings(Assignments of_model, std::string_view model, const std::string& what) {
  AnySettings settings = model_classes().at(std::string(model)).settings;
  for (const auto& [key, value] : of_model) set_setting(settings, what, key, value);
  of_model.emplace_back("model", model);
  return of_model;
}

void refuse_setting(std::string_view format, const TrainSettings& run, std::string_view key) {
  const std::vector<Setting> members = run.model_settings.members();
  const Setting* const found = find_setting(members, key);
  fail("export: the ", format, " format does not support ", key, "=", found ? print_value(*found) : "",
       "; train with another value, or choose another --format");
}

ImportReport import_model(const std::string& path, const std::string& out, const std::string& tokenizer,
                          const std::string& check_file) {
  check_utf8_settings("import", {{"out", out}});
  RunFolder folder(out, {"import"});
  check(!holds_checkpoints(out), "import: ", out, " holds checkpoints of a run; choose another --out");
  check_free(out, {"import"});
  std::vector<std::string> notes = notes_of_adapter(path);
  const WeightFormat& format = format_of(path);
  const ImportedModel from = format.read(path);
  const bool images = !from.classes.empty();
  check(!images || tokenizer.empty(), "import: ", path,
        " is an image model, which has no tokenizer; leave out --tokenizer");
  TrainSettings run = make_settings(from.settings);
  run.out = out;
  FoundTokenizer found;
  if (!images) {
    const int64_t vocabulary = setting_of<int64_t>(run.model_settings, "vocabulary");
    found = tokenizer_for(from, tokenizer, vocabulary);
    apply_conventions(found, from, vocabulary);
    setting_of<std::string>(run.task_settings, "tokenizer") = found.setting;
  }
  check_described(run, from, path);
  ImportReport report{.format = format.name,
                      .tokenizer = images ? "" : found.tokenizer->name(),
                      .classes = static_cast<int64_t>(from.classes.size()),
                      .notes = std::move(notes)};
  for (const std::vector<std::string>& more : {from.notes, found.notes})
    report.notes.insert(report.notes.end(), more.begin(), more.end());
  const auto model = make_model(run);
  copy_into(*model, target_tensors(from, *model, report));
  report.parameters = nn::count_parameters(*model);
  report.largest_difference = checked_difference(*model, path, check_file);
  report.checkpoint = write_run(folder, run, *model, images ? save_classes(from.classes) : found.tokenizer->save());
  return report;
}

std::string export_model(const ExportedModel& what, const std::string& folder, const std::string& name) {
  const std::string out = without_last_slashes(folder);
  const WeightFormat& format = format_for(what.settings, name);
  const std::string partial = out + ".partial";
  FolderLock lock(partial, {"export"});
  check(!file_exists(out), "export: ", out, " already exists; choose another --out");
  check(lock.has_only_lock(), "export: ", partial, " was left by an interrupted export; remove it");
  try {
    format.write(what, partial);
    sync_folder(partial);
    lock.rename_to(out);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove_all(partial, ignored);
    throw;
  }
  return format.name;
}

}  // namespace orrery::models
