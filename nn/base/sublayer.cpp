#include "nn/base/sublayer.h"

#include "engine/autograd/hooks.h"
#include "engine/ops/ops.h"
#include "nn/base/pass_scope.h"

namespace orrery::nn {

Tensor Sublayer::call_with_residual(const Tensor& x, const Tensor& residual, ForwardPass& pass) {
  const PassScope scope(pass);
  return with_path([&] {
    const Tensor input = hook(path(), "input", x);
    if (!is_hooked(path(), "output")) return forward_with_residual(input, residual, pass);
    return residual + hook(path(), "output", forward_with_residual(input, {}, pass));
  });
}

}  // namespace orrery::nn
