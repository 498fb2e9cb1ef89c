#include "models/language_model.h"

#include "engine/ops/ops.h"

namespace orrery::models {

Tensor last_of(const Tensor& states) {
  const int64_t tokens = states.size(1);
  const Tensor last = tokens == 1 ? states : slice(states, 1, tokens - 1, tokens);
  return last.reshape(Shape{last.size(0), last.size(2)});
}

Tensor LanguageModel::next(const Tensor& tokens, nn::ForwardPass& pass) { return last_of((*this)(tokens, pass)); }

}  // namespace orrery::models
