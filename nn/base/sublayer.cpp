#include "nn/base/sublayer.h"

#include "engine/autograd/hooks.h"
#include "engine/ops/ops.h"

namespace orrery::nn {

Tensor Sublayer::onto(const Tensor& x, const Tensor& residual, Pass& pass) {
  return with_path([&] {
    const Tensor input = hook(path(), "input", x);
    if (!is_hooked(path(), "output")) return forward_onto(input, residual, pass);
    return residual + hook(path(), "output", forward_onto(input, {}, pass));
  });
}

}  // namespace orrery::nn
