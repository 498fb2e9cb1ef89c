// Values from other programs (tests/golden, each file with the command that made it).
#pragma once

#include <map>
#include <string>

#include "engine/tensor/safetensors.h"

namespace orrery::testing {

class Golden {
 public:
  explicit Golden(const std::string& file) {
    for (const NamedTensor& t : read_safetensors(std::string(ORRERY_SOURCE_DIR) + "/tests/golden/" + file).tensors)
      tensors_[t.name] = t.tensor;
  }
  const Tensor& operator()(const std::string& name) const {
    const auto found = tensors_.find(name);
    check(found != tensors_.end(), "golden: no tensor '", name, "'");
    return found->second;
  }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  Tensor leaf(const std::string& name) const { return (*this)(name).clone().set_requires_grad(); }
  const std::map<std::string, Tensor>& all() const { return tensors_; }

 private:
  std::map<std::string, Tensor> tensors_;
};

}  // namespace orrery::testing
