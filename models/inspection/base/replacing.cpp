#include "models/inspection/base/replacing.h"

namespace orrery::models {

Tensor in_place_of(const Tensor& value, const Tensor& numbers) {
  return numbers.reshape(value.shape()).to(value.dtype()).to(value.device());
}

Tensor run_changed(const Subject& subject, const std::string& name, const Change& change) {
  const Hooks hooks({name}, Hooks::Replace{[&](const std::string&, const Tensor& value) {
                      std::vector<double> numbers = value.to_vector();
                      change(value.shape(), numbers);
                      return in_place_of(value, Tensor::from(value.shape(), numbers, Dtype::f64));
                    }});
  return subject.run();
}

Tensor run_with(const Subject& subject, const std::string& name, const Tensor& numbers) {
  const Hooks hooks(
      {name}, Hooks::Replace{[&](const std::string&, const Tensor& value) { return in_place_of(value, numbers); }});
  return subject.run();
}

}  // namespace orrery::models
