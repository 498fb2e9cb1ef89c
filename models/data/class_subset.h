// A named part of a model's classes, to evaluate the model on these alone: a model of ImageNet-21k
// on the classes of ImageNet-1k. Only their images count, and only they compete for a prediction.
#pragma once

#include <string>
#include <vector>

#include "engine/tensor/tensor.h"
#include "models/data/images.h"

namespace orrery::models {

class ClassSubset {
 public:
  // Reads a file with one class per line: names of the model's classes `known`, where a name that
  // several classes have means all of them, or numbers of classes. Errors begin with "evaluate:"
  // and name the line: a class that the model was never trained on.
  ClassSubset(const std::string& path, const std::vector<std::string>& known);
  int64_t count() const { return count_; }
  bool contains(int32_t label) const { return contained_[static_cast<size_t>(label)]; }
  // Drops images of other classes from both splits and gives the rest the model's labels and class
  // names. Adds a sentence about their number to set.notes. `owner`: path of the set.
  void apply(ImageSet& set, const std::string& owner) const;
  // Returns the logits (B, classes) with minus infinity for all other classes.
  Tensor among(const Tensor& logits) const;

 private:
  std::vector<int32_t> labels_of(const ImageSet& set, const std::string& owner, std::vector<std::string>& notes) const;
  std::string path_;
  std::vector<std::string> known_;
  std::vector<bool> contained_;  // for each known class
  int64_t count_ = 0;
};

}  // namespace orrery::models
