#include "models/evaluation/features.h"

#include <algorithm>
#include <utility>

#include "engine/autograd/autograd.h"
#include "engine/autograd/hooks.h"
#include "engine/ops/ops.h"
#include "engine/types/ascii.h"
#include "engine/types/usage_error.h"
#include "models/architectures/stream_model.h"
#include "models/architectures/vit.h"
#include "models/hook_names.h"
#include "models/image_model.h"
#include "models/language_model.h"

namespace orrery::models {
namespace {

constexpr const char* of_module = ".output";

std::string full_name(const std::string& layer) {
  check_usage(layer.find_first_of("*?[@") == std::string::npos, "evaluate: features=", layer,
              " is a pattern; give one layer, as in --features=blocks.3");
  const std::vector<std::string> names = hook_patterns(std::vector<std::string>{layer});
  check_usage(names.size() == 1, "evaluate: features=", layer, " names ", names.size(), " values; give one of ",
              join(names));
  return names[0];
}

// Returns the paths of the modules of a model and of its blocks, from the names of all hook values.
std::vector<std::string> layers_in(const std::set<std::string>& names) {
  std::vector<std::string> layers;
  for (const std::string& name : names) {
    if (!name.ends_with(of_module)) continue;
    std::string path = name.substr(0, name.size() - std::string_view(of_module).size());
    const size_t dot = path.find('.');
    const bool is_block = dot != std::string::npos && std::all_of(path.begin() + static_cast<std::ptrdiff_t>(dot) + 1,
                                                                  path.end(), [](char c) { return is_digit(c); });
    if (!path.empty() && (dot == std::string::npos || is_block)) layers.push_back(std::move(path));
  }
  return layers;
}

}  // namespace

FeatureReader::FeatureReader(nn::Module& model, const std::string& layer,
                             std::function<void(const std::string& name)> when_read)
    : model_(model), when_read_(std::move(when_read)), images_(dynamic_cast<const ImageModel*>(&model) != nullptr) {
  check(images_ || dynamic_cast<const LanguageModel*>(&model),
        "evaluate: few_shot requires a model of images or a language model, and this model is neither; leave "
        "--few_shot out");
  const bool has_head = images_ || dynamic_cast<const StreamModel*>(&model);  // as a module
  layer_ = !layer.empty() ? full_name(layer) : has_head ? "head.input" : "norm.output";
  const auto* const vit = dynamic_cast<const Vit*>(&model);
  has_class_token_ = vit && vit->settings().pooling == "class_token";
}

Tensor FeatureReader::operator()(const Tensor& inputs) const {
  const NoGrad guard;
  Tensor states;
  std::string found;
  const Hooks hooks({layer_, layer_ + of_module}, [&](const std::string& name, const Tensor& value) {
    if (states.defined()) return;
    states = value.clone(), found = name;
    if (when_read_) when_read_(name);
  });
  nn::ForwardPass pass;
  model_(inputs.to(nn::device_of(model_)), pass);
  check_usage(states.defined(), "evaluate: the model has no hidden layer '", layer_, "'; its layers are ",
              join(layers_in(hooks.names())), "; `orrery inspect RUN --hooks=*` lists all values");
  if (states.dtype() != Dtype::f64) states = states.to(Dtype::f32);
  return of_inputs(states, found).to(Device::cpu);
}

Tensor FeatureReader::of_inputs(const Tensor& states, const std::string& name) const {
  const int rank = states.shape().rank();
  if (images_ && rank == 2) return states;
  if (images_ && rank == 3 && has_class_token_)
    return slice(states, 1, 0, 1).reshape(Shape{states.size(0), states.size(2)});
  if (images_ && rank == 3) return mean(states, {1});
  if (images_ && rank == 4 && !dynamic_cast<const Vit*>(&model_)) return mean(states, {1, 2});
  check_usage(!images_ && rank == 3, "evaluate: ", name, " has the shape ", states.shape(),
              ", so it is not the states of a layer; give a layer, as in --features=blocks.0");
  return last_of(states);
}

}  // namespace orrery::models
