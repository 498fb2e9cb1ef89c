// A residual convolutional network for CIFAR: a 3 x 3 convolution, three stages of n blocks with w,
// 2 w and 4 w channels, the mean over all pixels, a linear head. The second and third stages begin
// by halving the image.
//   block: y = F(N(C(F(N(C x)))) + S x)      C 3 x 3, N a normalization, F an activation
// He et al. 2016, arXiv:1512.03385 (section 4.2: 6 n + 2 layers). Convolutions have no biases
// because normalizations have them. S is the identity, except where channels or size change; there
// the setting `shortcut` is one of
//   projection   a 1 x 1 convolution alone, which is not an option of the paper
//   option_b     a 1 x 1 convolution and a normalization, as in the authors' code: the paper's option B
// The paper's option A, the identity with zeros for the new channels, is not available.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/settings/spec.h"
#include "models/image_model.h"
#include "models/model.h"
#include "nn/formulas/pointwise_function.h"
#include "nn/layers/initial_weights.h"
#include "nn/layers/linear.h"
#include "nn/vision/convolution.h"

namespace orrery::models {

struct ResnetSettings {
  int64_t blocks = 1, width = 16;
  int64_t image_size = 0, channels = 0, classes = 0;  // 0: from the data
  std::string shortcut = "projection";
  Spec normalization = parse_spec("batch"), activation = parse_spec("relu"), initialization = parse_spec("fan_in");

  template <class V>
  void visit(V& v) {
    v.common("blocks", blocks, "blocks per stage; there are three stages", between(1, 1024));
    v.common("width", width, "channels of the first stage; the next two have 2 and 4 times as many", between(1, 16384));
    v("image_size", image_size, "height and width in pixels, to which images are cropped and resized; 0: as they are",
      between(0, 16384));
    v("channels", channels, "channels of an image: 1 or 3; 0: as in the data", between(0, 3));
    v("classes", classes, "number of classes; 0: as in the data", between(0, 1048576));
    v("shortcut", shortcut,
      "shortcut if shapes differ; projection: 1 x 1 convolution; option_b: followed by a normalization",
      one_of({"projection", "option_b"}));
    v.common("normalization", normalization, "normalization from `orrery list normalization`; after each convolution",
             name_of_family("normalization"));
    v.common("activation", activation, "activation of every layer; learned parameters: one set per block");
    v("initialization|initial_std", initialization,
      text(nn::initialization_help, "; the width is that of the first stage"), nn::initialization_names());
  }
};

class Resnet final : public ImageModel {
 public:
  static inline const ModelInfo info{.name = "resnet",
                                     .description = "a residual convolutional network, in its form for CIFAR",
                                     .source = "He et al. 2016, arXiv:1512.03385",
                                     .task = "image_classification"};
  using Settings = ResnetSettings;

  explicit Resnet(const ResnetSettings& settings);
  Tensor forward(const Tensor& pixels, nn::ForwardPass& pass) override;  // (B, H, W, channels) -> (B, classes)
  void visit(nn::Visitor& v) override;
  int64_t image_size() const override { return 0; }
  int64_t channels() const override { return settings_.channels; }
  int64_t classes() const override { return settings_.classes; }

 private:
  class Block;
  ResnetSettings settings_;
  nn::PointwiseFunction activation_;
  nn::Convolution first_;
  std::unique_ptr<nn::Module> norm_;
  std::vector<std::unique_ptr<nn::Module>> blocks_;
  nn::Linear head_;
};

}  // namespace orrery::models
