// Parameters of bf16: the optimizer updates f32 master weights, the model uses their bf16 copy.
#include <doctest/doctest.h>

#include <map>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "nn/layers/linear.h"
#include "nn/optimizers/base/optimizer.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::largest_difference;
using orrery::testing::random_tensor;

namespace {

struct Two final : Module {  // a matrix longer than one chunk of the update, and a vector
  Parameter matrix, vector;
  explicit Two(Dtype dtype) : matrix({70, 60}, constant(0), dtype), vector({5}, constant(0), dtype) {
    for (Parameter* p : {&matrix, &vector})
      p->value.copy_from(random_tensor(p->value.shape(), static_cast<int>(p->value.numel())).to(Dtype::bf16));
  }
  Tensor forward(const Tensor& x, ForwardPass&) override { return x; }
  void visit(Visitor& v) override { v("matrix", matrix), v("vector", vector); }
};
struct Run {
  Two model;
  FlatParameters flat;
  std::unique_ptr<Optimizer> optimizer;
  Run(const std::string& spec, Dtype dtype)
      : model(dtype), flat(model), optimizer(make_optimizer(parse_spec(spec), flat)) {}
  void step(int number) {
    flat.zero_gradients();
    for (Parameter* p : {&model.matrix, &model.vector}) {
      const Tensor g = random_tensor(p->value.shape(), 100 * number).to(Dtype::bf16).to(p->value.dtype());
      backward(p->value * g, Tensor::full(g.shape(), 1, g.dtype()));
    }
    CHECK(optimizer->step(0.001));
  }
};

}  // namespace

TEST_CASE("every optimizer updates the values of bf16 parameters as those of f32 parameters") {
  for (const std::string& name : optimizers().names()) {
    INFO(name);
    Run wide(name, Dtype::f32), narrow(name, Dtype::bf16);
    CHECK(!wide.flat.bf16_copy());
    for (int i = 1; i <= 4; ++i) {
      wide.step(i), narrow.step(i);
      CHECK(largest_difference(narrow.flat.values(), wide.flat.values()) == 0);
      CHECK(narrow.flat.values().dtype() == Dtype::f32);
      for (const auto& [of_wide, of_narrow] :
           {std::pair(&wide.model.matrix, &narrow.model.matrix), std::pair(&wide.model.vector, &narrow.model.vector)}) {
        CHECK(of_narrow->value.dtype() == Dtype::bf16);
        CHECK(largest_difference(of_narrow->value, of_wide->value.to(Dtype::bf16)) == 0);
      }
    }
  }
}

TEST_CASE("steps that are lost in bf16 add up") {
  Two model(Dtype::bf16);
  fill(model.vector.value, constant(1), {});
  FlatParameters flat(model);
  const auto optimizer = make_optimizer(parse_spec("sgd(momentum=0)"), flat);
  for (int i = 0; i < 100; ++i) {
    flat.zero_gradients();
    sum(model.vector.value).backward();
    CHECK(optimizer->step(1. / 1024));
  }
  CHECK(model.vector.value.to_vector() == std::vector<double>(5, 0.90234375));  // 1 - 100 / 1024
}

TEST_CASE("gradients of bf16 parameters are accumulated in f32") {
  Two model(Dtype::bf16);
  FlatParameters flat(model);
  flat.zero_gradients();
  sum(model.vector.value * 256.0).backward();
  sum(model.vector.value).backward();
  CHECK(model.vector.value.grad().to_vector() == std::vector<double>(5, 257));  // not representable in bf16

  const Tensor x = random_tensor({9, 60}).to(Dtype::bf16), g = random_tensor({9, 70}, 2).to(Dtype::bf16);
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) backward(linear(x, model.matrix.value), g);
  const Tensor product = matmul(g.to(Dtype::f32), x.to(Dtype::f32), {.a = true});
  CHECK(largest_difference(model.matrix.value.grad(), product + product) <= 1e-5);
}

TEST_CASE("an optimizer's saved state continues bf16 parameters bit-identically") {
  for (const std::string& name : optimizers().names()) {
    INFO(name);
    Run first(name, Dtype::bf16), second(name, Dtype::bf16);
    first.step(1), first.step(2);
    second.optimizer->set_steps_done(2);
    const Optimizer::NamedMoments from = first.optimizer->state(), to = second.optimizer->state();
    std::map<std::string, Tensor> saved(from.begin(), from.end());
    CHECK(saved.contains("master.matrix"));
    CHECK(from.size() == first.optimizer->moments().size() + 2);
    for (const auto& [key, tensor] : to) tensor.copy_from(saved.at(key));
    for (const auto& [a, b] :
         {std::pair(&first.model.matrix, &second.model.matrix), std::pair(&first.model.vector, &second.model.vector)})
      b->value.copy_from(a->value);
    first.step(3), second.step(3);
    CHECK(largest_difference(first.flat.values(), second.flat.values()) == 0);
    CHECK(largest_difference(first.flat.bf16_copy(), second.flat.bf16_copy()) == 0);
    CHECK(Run(name, Dtype::f32).optimizer->state().size() == first.optimizer->moments().size());
  }
}
