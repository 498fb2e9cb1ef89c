// The models of tests/golden/hugging_face.py, imported and changed, and models that orrery makes for an
// export.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/autograd/autograd.h"
#include "models/interop/base/weight_format.h"
#include "models/model.h"
#include "models/training/run_folder.h"
#include "tests/support/folder.h"
#include "tests/support/random_tensors.h"

namespace orrery::testing::interop_models {

inline const std::string golden = ORRERY_SOURCE_DIR "/tests/golden/hugging_face/";

inline models::ImportReport imported(const std::string& from, const std::string& to) {
  return models::import_model(from, to, "", "");
}

struct LoadedRun {
  models::TrainSettings settings;
  std::string tokenizer;
  std::unique_ptr<nn::Module> model;
  models::ExportedModel exported() const { return {settings, *model, tokenizer}; }
};
inline LoadedRun read_run(const std::string& run) {
  const std::string checkpoint = models::latest_checkpoint(run);
  const models::CheckpointState state = models::read_state(checkpoint);
  LoadedRun read{models::make_settings(state.settings), state.tokenizer, nullptr};
  read.model = models::make_model(read.settings);
  models::load_weights(checkpoint, *read.model);
  return read;
}
// Makes a decoder with random weights that no checkpoint holds.
inline LoadedRun made(std::vector<std::pair<std::string, std::string>> changes) {
  changes.insert(changes.begin(), {{"model", "gpt"},
                                   {"layers", "2"},
                                   {"heads", "2"},
                                   {"width", "16"},
                                   {"context", "12"},
                                   {"vocabulary", "256"},
                                   {"tokenizer", "byte"}});
  LoadedRun run{models::make_settings(changes), R"({"name":"byte"})", nullptr};
  run.model = models::make_model(run.settings);
  int seed = 0;
  for (const nn::NamedParameter& p : nn::parameters_of(*run.model))
    p.parameter->value.copy_from(random_tensor(p.parameter->value.shape(), ++seed, Dtype::f32));
  return run;
}
inline Tensor logits(nn::Module& model) {
  const NoGrad guard;
  nn::ForwardPass pass;
  return model(Tensor::from(Shape{1, 6}, std::vector<int32_t>{1, 4, 2, 8, 5, 7}), pass);
}

// Copies a golden folder and changes its config.json.
std::string changed(const Folder& folder, const std::string& name, const std::function<void(nlohmann::json&)>& change);

}  // namespace orrery::testing::interop_models
