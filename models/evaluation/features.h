// Features: the states of a hidden layer of a model, one row for each input.
#pragma once

#include <functional>
#include <string>

#include "nn/base/module.h"

namespace orrery::models {

class FeatureReader {
 public:
  // `layer`: the path of a module, whose output is read (blocks.3), or the name of a hook value
  // (engine/autograd/hooks.h). Empty: the last layer before the head, which is the head's input or,
  // in a GPT, the output of the final normalization. Errors begin with "evaluate:". `when_read` is
  // called in each pass with the name of the value when it is read, before later values are computed.
  FeatureReader(nn::Module& model, const std::string& layer,
                std::function<void(const std::string& name)> when_read = {});
  // Runs the model and returns (B, D), f32 or f64, on the CPU. States of positions (B, T, C) become,
  // for images, that of the class token or else their mean (also over the rows and columns of a
  // convolution's); for texts the last token's. Throws Error if the model has no such layer, and
  // names those that it has.
  Tensor operator()(const Tensor& inputs) const;
  const std::string& layer() const { return layer_; }

 private:
  Tensor of_inputs(const Tensor& states, const std::string& name) const;
  nn::Module& model_;
  std::string layer_;
  std::function<void(const std::string&)> when_read_;
  bool images_, has_class_token_;
};

}  // namespace orrery::models
