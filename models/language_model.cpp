#include "models/language_model.h"

#include "engine/ops/ops.h"

namespace orrery::models {

Tensor last_of(const Tensor& states) {
  const int64_t tokens = states.size(1);
  return tokens == 1 ? states : slice(states, 1, tokens - 1, tokens);
}

Tensor LanguageModel::next(const Tensor& tokens, nn::Pass& pass) {
  const Tensor last = last_of((*this)(tokens, pass));
  return last.reshape(Shape{last.size(0), last.size(2)});
}

}  // namespace orrery::models
