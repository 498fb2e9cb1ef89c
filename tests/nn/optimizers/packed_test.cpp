// Per-tensor operations of optimizers apply to each tensor of a packed parameter.
#include <doctest/doctest.h>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "nn/feed_forwards/base/feed_forward.h"
#include "nn/layers/linear.h"
#include "nn/optimizers/base/optimizer.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::largest_difference;
using orrery::testing::random_tensor;

namespace {

class Apart final : public Module {  // the layers of a packed layer, separately
 public:
  Apart() : first(4, 2, {.weight = normal(1)}), second(4, 3, {.weight = normal(1)}) { name_paths(*this); }
  Tensor forward(const Tensor& x, ForwardPass& pass) override {
    return concatenate({first.forward(x, pass), second.forward(x, pass)}, 1);
  }
  void visit(Visitor& v) override { v("first", first), v("second", second); }
  Linear first, second;
};

Tensor both(const Tensor& a, const Tensor& b) { return concatenate({a.detach(), b.detach()}, 0); }

}  // namespace

TEST_CASE("adagrad's clip and muon's step apply to each tensor of a packed parameter") {
  for (const char* spec : {"adagrad(grad_clip=0.05)", "muon", "muon(nesterov=no, weight_decay=0.1)"}) {
    CAPTURE(spec);
    Linear packed(4, 5, {.weight = normal(1), .packed_rows = {2, 3}});
    Apart apart;
    convert(packed, Dtype::f64), convert(apart, Dtype::f64);
    initialize(packed, 3);
    apart.first.weight.value.copy_from(packed.weight.value.slice(0, 2).detach());
    apart.second.weight.value.copy_from(packed.weight.value.slice(2, 5).detach());
    for (Parameter* bias : {&apart.first.bias, &apart.second.bias})
      zero_bytes(Device::cpu, bias->value.mutable_raw(), bias->value.bytes());
    FlatParameters together_parameters(packed), apart_parameters(apart);
    const auto together = make_optimizer(parse_spec(spec), together_parameters),
               separate = make_optimizer(parse_spec(spec), apart_parameters);
    for (uint64_t step = 0; step < 3; ++step) {
      const Tensor x = random_tensor({6, 4}, 10 + step), dy = random_tensor({6, 5}, 20 + step);
      ForwardPass pass;
      together_parameters.zero_gradients(), apart_parameters.zero_gradients();
      backward(packed.forward(x, pass), dy);
      backward(apart.forward(x, pass), dy);
      together->step(0.1), separate->step(0.1);
      CHECK(largest_difference(packed.weight.value.detach(),
                               both(apart.first.weight.value, apart.second.weight.value)) <= 1e-12);
      CHECK(largest_difference(packed.bias.value.detach(), both(apart.first.bias.value, apart.second.bias.value)) <=
            1e-12);
    }
  }
}

TEST_CASE("muon scales the step of a convolution as its source does, by the last two axes of (N, C, h, w)") {
  struct Convolution final : Module {
    explicit Convolution(const Shape& shape) : weight(shape, normal(1)) { name_paths(*this); }
    Tensor forward(const Tensor& x, ForwardPass&) override { return x; }
    void visit(Visitor& v) override { v("weight", weight); }
    Parameter weight;
  };
  // One matrix as 1 x 4 and 4 x 1 pixels of one channel: the second step is sqrt(4) times as long.
  const auto step_of = [](const Shape& shape) {
    Convolution wide(shape);
    convert(wide, Dtype::f64);
    const Tensor start = random_tensor({3, 4}, 1).reshape(shape), gradient = random_tensor({3, 4}, 2).reshape(shape);
    wide.weight.value.copy_from(start);
    FlatParameters parameters(wide);
    const auto optimizer = make_optimizer(parse_spec("muon"), parameters);
    parameters.zero_gradients();
    backward(wide.weight.value * 1.0, gradient);
    optimizer->step(0.1);
    return (wide.weight.value.detach() - start).reshape(Shape{3, 4});
  };
  CHECK(largest_difference(step_of(Shape{3, 4, 1, 1}), step_of(Shape{3, 1, 4, 1}) * 2.0) <= 1e-12);
}

TEST_CASE("attentions and gated feed-forwards state which projections they pack") {
  const auto rows_of = [](Module& module) {
    std::vector<std::vector<int64_t>> found;
    for (const NamedParameter& p : parameters_of(module))
      if (!p.parameter->packed_rows.empty()) found.push_back(p.parameter->packed_rows);
    return found;
  };
  using Parts = std::vector<std::vector<int64_t>>;
  const auto attention = make_attention(parse_spec("softmax"), {.width = 8, .heads = 4, .kv_heads = 2, .bias = false});
  CHECK(rows_of(*attention) == Parts{{8, 4, 4}});
  const auto gated = make_feed_forward(parse_spec("gated(silu)"), {.width = 4, .d_ff = 6, .bias = false});
  CHECK(rows_of(*gated) == Parts{{6, 6}});
}
