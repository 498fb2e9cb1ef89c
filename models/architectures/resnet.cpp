#include "models/architectures/resnet.h"

#include "engine/autograd/hooks.h"
#include "engine/ops/ops.h"
#include "models/settings/at_least_one.h"
#include "nn/normalizations/base/normalization.h"
#include "nn/vision/pooling.h"

namespace orrery::models {
namespace {

constexpr int64_t stages = 3;

ResnetSettings checked(ResnetSettings s) {
  check_at_least_one("resnet", {{"blocks", s.blocks}, {"width", s.width}});
  check_size_from_images("resnet", "channels", s.channels);
  check_size_from_images("resnet", "classes", s.classes);
  return s;
}

nn::InitialWeights weights_of(const ResnetSettings& s) { return nn::initial_weights(s.initialization, s.width); }

nn::Convolution convolution_3x3(int64_t inputs, int64_t outputs, int64_t stride, const nn::Initialization& weight) {
  return {inputs, outputs, 3, {.steps = {.stride = stride, .padding = 1}, .bias = false, .weight = weight}};
}
constexpr int64_t window = 9;  // pixels

}  // namespace

class Resnet::Block final : public nn::Module {
 public:
  Block(const ResnetSettings& s, int64_t inputs, int64_t outputs, int64_t stride)
      : activation_(nn::Activation(s.activation)),
        first_(convolution_3x3(inputs, outputs, stride,
                               weights_of(s).hidden(window * inputs, window * outputs, stages * s.blocks, 1))),
        second_(
            convolution_3x3(outputs, outputs, 1,
                            weights_of(s).residual_output(window * outputs, window * outputs, stages * s.blocks, 1))),
        first_norm_(nn::make_normalization(s.normalization, {outputs})),
        second_norm_(nn::make_normalization(s.normalization, {outputs})) {
    if (stride == 1 && inputs == outputs) return;
    shortcut_ = std::make_unique<nn::Convolution>(
        inputs, outputs, 1,
        nn::Convolution::Options{
            .steps = {.stride = stride}, .bias = false, .weight = weights_of(s).other(inputs, outputs)});
    if (s.shortcut == "option_b") shortcut_norm_ = nn::make_normalization(s.normalization, {outputs});
  }
  Tensor forward(const Tensor& before, nn::ForwardPass& pass) override {
    const Tensor x = hook(path(), "stream", before);
    const Tensor inner = activation_((*first_norm_)(first_(x, pass), pass));
    const Tensor update = (*second_norm_)(second_(inner, pass), pass);
    return hook(path(), "residual", activation_(update + shortcut(x, pass)));
  }
  void visit(nn::Visitor& v) override {
    v("first", first_);
    v("first_norm", first_norm_);
    v("second", second_);
    v("second_norm", second_norm_);
    activation_.visit(v);
    v("shortcut", shortcut_);
    v("shortcut_norm", shortcut_norm_);
  }

 private:
  Tensor shortcut(const Tensor& x, nn::ForwardPass& pass) {
    if (!shortcut_) return x;
    const Tensor projected = (*shortcut_)(x, pass);
    return shortcut_norm_ ? (*shortcut_norm_)(projected, pass) : projected;
  }

  nn::PointwiseFunction activation_;
  nn::Convolution first_, second_;
  std::unique_ptr<nn::Module> first_norm_, second_norm_, shortcut_norm_;
  std::unique_ptr<nn::Convolution> shortcut_;
};

Resnet::Resnet(const ResnetSettings& settings)
    : settings_(checked(settings)),
      activation_(nn::Activation(settings_.activation)),
      first_(convolution_3x3(settings_.channels, settings_.width, 1,
                             weights_of(settings_).other(window * settings_.channels, window * settings_.width))),
      norm_(nn::make_normalization(settings_.normalization, {settings_.width})),
      head_(settings_.width << (stages - 1), settings_.classes, {}) {
  const ResnetSettings& s = settings_;
  head_.weight.initialization = weights_of(s).head(s.width << (stages - 1), s.classes);
  head_.weight.is_lookup_table = true;
  int64_t inputs = s.width;
  for (int64_t stage = 0; stage < stages; ++stage)
    for (int64_t i = 0; i < s.blocks; ++i) {
      const int64_t outputs = s.width << stage;
      blocks_.push_back(std::make_unique<Block>(s, inputs, outputs, stage > 0 && i == 0 ? 2 : 1));
      inputs = outputs;
    }
  nn::name_paths(*this);
}

Tensor Resnet::forward(const Tensor& pixels, nn::ForwardPass& pass) {
  check(pixels.shape().rank() == 4 && pixels.size(3) == settings_.channels, "resnet: pixels of shape ", pixels.shape(),
        "; they must be (batch, height, width, ", settings_.channels, ")");
  Tensor x = activation_((*norm_)(first_(pixels.to(first_.weight.value.dtype()), pass), pass));
  for (const auto& block : blocks_) x = (*block)(x, pass);
  return hook(path(), "logits", head_(nn::global_average_pool(x), pass));
}

void Resnet::visit(nn::Visitor& v) {
  v("first", first_);
  v("norm", norm_);
  activation_.visit(v);
  for (size_t i = 0; i < blocks_.size(); ++i) v("blocks." + std::to_string(i), blocks_[i]);
  v("head", head_);
}

REGISTER_MODEL(Resnet);

[[maybe_unused]] static const bool registered_resnet_presets = [] {
  for (const auto& [name, blocks, parameters] : {std::tuple{"resnet8", 1, 77850}, {"resnet20", 3, 272282}}) {
    ResnetSettings s;
    s.blocks = blocks;
    presets().add({name,
                   text(6 * blocks + 2, " layers in three stages of 16, 32 and 64 channels"),
                   "resnet",
                   AnySettings(s),
                   parameters,
                   {{"channels", "3"}, {"classes", "10"}}});
  }
  return true;
}();

}  // namespace orrery::models
