#include "models/architectures/residual_step.h"

#include "engine/autograd/hooks.h"
#include "engine/ops/ops.h"

namespace orrery::models {

ResidualStep::ResidualStep(std::unique_ptr<nn::Module> norm, std::unique_ptr<nn::Sublayer> layer, double dropout,
                           bool post)
    : norm_(std::move(norm)), layer_(std::move(layer)), p_(dropout), dropout_(dropout), post_(post) {
  if (layer_->adds_nothing()) norm_.reset(), layer_.reset();
}

Tensor ResidualStep::forward(const Tensor& before, nn::Pass& pass) {
  if (!layer_) return before;
  const Tensor x = hook(layer_->path(), "stream", before);
  const Tensor input = post_ ? x : (*norm_)(x, pass);
  const Tensor sum =
      p_ > 0 && pass.training ? x + dropout_((*layer_)(input, pass), pass) : layer_->onto(input, x, pass);
  const Tensor y = hook(layer_->path(), "residual", sum);
  return post_ ? (*norm_)(y, pass) : y;
}

void ResidualStep::visit(nn::Visitor& v) {
  v("norm", norm_);
  v("layer", layer_);
  v("dropout", dropout_);
}

}  // namespace orrery::models
