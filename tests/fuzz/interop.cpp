// Weights of other programs: files that describe the tensors, and a file that holds everything.
#include "models/interop/base/weight_format.h"

#include <filesystem>

#include "engine/system/files.h"
#include "models/model.h"
#include "nn/base/initialization.h"
#include "tests/fuzz/format.h"

namespace {

using namespace fuzz;
using namespace orrery;
using namespace orrery::models;

// Returns a safetensors file of a small GPT-2, Llama and vision transformer, named like the corpus.
std::string small_tensors(const std::string& folder) {
  const std::string byte = R"({"name":"byte"})", classes = R"({"classes":["a","b"]})";
  const std::vector<std::vector<std::pair<std::string, std::string>>> models = {
      {{"model", "gpt"}, {"vocabulary", "256"}, {"context", "8"}, {"bias", "yes"}},
      {{"model", "gpt"},
       {"vocabulary", "256"},
       {"context", "8"},
       {"tied_head", "no"},
       {"position", "rotary"},
       {"normalization", "rms"},
       {"feed_forward", "gated(silu)"},
       {"d_ff", "12"}},
      {{"model", "vit"}, {"image_size", "8"}, {"channels", "3"}, {"classes", "2"}, {"pooling", "class_token"}}};
  std::vector<NamedTensor> all;
  for (auto settings : models) {
    settings.insert(settings.end(), {{"layers", "1"}, {"heads", "2"}, {"width", "8"}});
    const TrainSettings run = make_settings(settings);
    const auto model = make_model(run);
    nn::initialize(*model, 1);
    const std::string out = folder + "/exported";
    export_model({run, *model, settings[0].second == "vit" ? classes : byte}, out, "");
    for (const StoredTensor& each : stored_tensors(out)) all.push_back({each.name, with_values(each).tensor});
    std::filesystem::remove_all(out);
  }
  write_safetensors(folder + "/all.safetensors", all, {});
  const std::string bytes = read_file(folder + "/all.safetensors");
  std::filesystem::remove(folder + "/all.safetensors");
  return bytes;
}

void import_from(const std::string& path, const std::string& folder) {
  const std::string run = folder + "/run";
  try {
    const ImportReport report = import_model(path, run, "", "");
    promise(report.parameters > 0, "a model without parameters");
    promise(!report.checkpoint.empty(), "no checkpoint");
  } catch (const Error&) {
    promise(!std::filesystem::exists(run), "a failed import leaves a run");
    throw;
  }
}

void read_config(const std::string& folder, std::string_view bytes) {
  static const std::string tensors = small_tensors(folder);
  const std::string theirs = folder + "/theirs";
  std::filesystem::create_directory(theirs);
  put(theirs + "/config.json", bytes);
  put(theirs + "/model.safetensors", tensors);
  import_from(theirs, folder);
}
REGISTER_FORMAT(hugging_face,
                {.name = "hugging_face",
                 .readers = {"models/interop/base/hugging_face.cpp", "models/interop/base/weight_format.cpp",
                             "models/interop/vit.cpp", "models/data/tokenizers/token_ids.cpp",
                             "examples/orrery/commands/load_run.cpp"},
                 .read = read_config,
                 .memory_multiple = 256,
                 .memory_base = 1 << 26,
                 .words = {"\"model_type\"", "\"gpt2\"", "\"llama\"", "\"vit\"", "null", "true", "{}", "[]", "1e308",
                           "-1", "0", "\"rope_parameters\"", "\"rope_scaling\"", "\"hidden_act\"", "\"head_dim\""}});

void read_index(const std::string& folder, std::string_view bytes) {
  static const std::string tensors = small_tensors(folder);
  put(folder + "/model.safetensors.index.json", bytes);
  put(folder + "/model-00001-of-00001.safetensors", tensors);
  for (const StoredTensor& each : stored_tensors_of_folder(folder))
    promise(!each.name.empty(), "a tensor without a name");
}
REGISTER_FORMAT(tensor_index, {.name = "tensor_index",
                               .readers = {"models/interop/base/stored_tensors.cpp"},
                               .read = read_index,
                               .memory_multiple = 256,
                               .memory_base = 1 << 24,
                               .words = {"\"weight_map\"", "\"model-00001-of-00001.safetensors\"", "..", "/", "null"}});

void read_llama2c(const std::string& folder, std::string_view bytes) {
  put(folder + "/model.bin", bytes);
  import_from(folder + "/model.bin", folder);
}
REGISTER_FORMAT(llama2c, {.name = "llama2c",
                          .readers = {"models/interop/llama2c.cpp"},
                          .read = read_llama2c,
                          .memory_multiple = 64,
                          .memory_base = 1 << 26,
                          .words = {"24ka", std::string("\1\0\0\0", 4), std::string("\xff\xff\xff\xff", 4),
                                    std::string("\0\0\0\x80", 4), std::string("\0\0\xc0\x7f", 4)}});

}  // namespace
