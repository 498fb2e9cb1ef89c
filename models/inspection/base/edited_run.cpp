#include "models/inspection/base/edited_run.h"

namespace orrery::models {

Tensor like_hooked(const Tensor& value, const Tensor& numbers) {
  return numbers.reshape(value.shape()).to(value.dtype()).to(value.device());
}

Tensor run_edited(const InspectedExample& example, const std::string& name, const Edit& edit) {
  const Hooks hooks({name}, Hooks::Replace{[&](const std::string&, const Tensor& value) {
                      std::vector<double> numbers = value.to_vector();
                      edit(value.shape(), numbers);
                      return like_hooked(value, Tensor::from(value.shape(), numbers, Dtype::f64));
                    }});
  return example.run();
}

Tensor run_replaced(const InspectedExample& example, const std::string& name, const Tensor& numbers) {
  const Hooks hooks(
      {name}, Hooks::Replace{[&](const std::string&, const Tensor& value) { return like_hooked(value, numbers); }});
  return example.run();
}

}  // namespace orrery::models
