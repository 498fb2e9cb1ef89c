#include "models/architectures/residual_step.h"

#include "engine/autograd/hooks.h"
#include "engine/ops/ops.h"

namespace orrery::models {

LearnableScale::LearnableScale(const LearnableNumber& number) : fixed_(number.initial) {
  if (number.learned) parameter = nn::Parameter(Shape{1}, nn::constant(number.initial));
}
Tensor LearnableScale::times(const Tensor& x) const {
  if (parameter.value) return x * parameter.value;
  return fixed_ == 1 ? x : x * fixed_;
}
Tensor LearnableScale::divide(const Tensor& x) const {
  if (parameter.value) return x / parameter.value;
  return fixed_ == 1 ? x : x / fixed_;
}

ResidualStep::ResidualStep(std::unique_ptr<nn::Module> norm, std::unique_ptr<nn::Sublayer> layer,
                           const ResidualOptions& o)
    : norm_(std::move(norm)),
      layer_(std::move(layer)),
      p_(o.dropout),
      dropout_(o.dropout),
      post_(o.post),
      gain_(o.gain),
      divisor_(o.divisor),
      residual_(o.residual) {}

Tensor ResidualStep::stream(const Tensor& x) const { return hook(layer_->path(), "stream", x); }

// The layer itself adds x, unless dropout or a factor comes between.
Tensor ResidualStep::add(const Tensor& x, const Tensor& input, nn::ForwardPass& pass) {
  const bool dropping = p_ > 0 && pass.training;
  const auto sum = [&] {
    if (!dropping && gain_.is_one() && divisor_.is_one() && residual_.is_one())
      return layer_->call_with_residual(input, x, pass);
    const Tensor update = dropout_((*layer_)(input, pass), pass);
    return residual_.times(x) + divisor_.divide(gain_.times(update));
  };
  return hook(layer_->path(), "residual", sum());
}

Tensor ResidualStep::forward(const Tensor& before, nn::ForwardPass& pass) {
  const Tensor x = stream(before);
  return post_ ? normalize(add(x, x, pass), pass) : add(x, normalize(x, pass), pass);
}

void ResidualStep::visit(nn::Visitor& v, const std::string& norm, const std::string& layer, const std::string& others) {
  v(norm, norm_);
  v(layer, layer_);
  v(others + "dropout", dropout_);
  v(others + "gain", gain_.parameter);
  v(others + "divisor", divisor_.parameter);
  v(others + "residual", residual_.parameter);
}

}  // namespace orrery::models
