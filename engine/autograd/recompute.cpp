#include "engine/autograd/recompute.h"

#include <utility>

#include "engine/autograd/autograd.h"

namespace orrery {
namespace {

struct Recomputation final : Node {
  Recomputation(std::function<Tensor(const Tensor&)> function, Saved s)
      : Node("recompute", std::move(s), 1), f(std::move(function)) {}
  std::vector<Tensor> backward(std::vector<Tensor>& dy) override {
    const NoGrad record_again(true);
    const Tensor x = saved[0].detach();
    x.set_requires_grad(saved.needs(0));
    orrery::backward(f(x), dy[0]);
    return {x.grad()};
  }
  std::function<Tensor(const Tensor&)> f;
};

}  // namespace

Tensor recompute(std::function<Tensor(const Tensor&)> f, const Tensor& x) {
  Saved saved;
  const Tensor* const inputs[] = {&x};
  saved.attach(inputs);
  saved.save(x);
  Tensor y;
  {
    const NoGrad guard;
    y = f(x.detach()).detach();
  }
  if (!is_recording()) return y;
  saved.seal();  // recorded even if x needs no gradient, because parameters inside f may need one
  detail::connect(std::make_shared<Recomputation>(std::move(f), std::move(saved)), {{y}});
  return y;
}

}  // namespace orrery
