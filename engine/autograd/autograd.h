// Automatic differentiation: what an operation saves for backward, and how gradients propagate.
//
// An operation is a value with its hyper-parameters, a `forward` and a `backward`:
//
//   struct Scale {
//     static constexpr const char* name = "scale";
//     double factor;
//     Tensor forward(Saved&, const Tensor& x) const;
//     Gradients<1> backward(const Saved&, const Tensor& dy) const;   // one gradient for each input
//   };
//   Tensor scale(const Tensor& x, double factor) { return record(Scale{factor}, x); }
//
// forward may return std::array<Tensor, M> or a vector; backward then takes gradients in the same
// form, undefined where unused. An undefined input is absent; an undefined gradient is zero.
#pragma once

#include <array>
#include <concepts>
#include <span>
#include <utility>
#include <vector>

#include "engine/autograd/profile.h"
#include "engine/tensor/tensor.h"

namespace orrery {

template <int N>
using Gradients = std::array<Tensor, N>;

class Saved {  // tensors that forward saves for backward
 public:
  // Saves detached values, so an operation may save its own output. Undefined tensors are allowed.
  void save(std::same_as<Tensor> auto const&... x) { (tensors_.push_back({x ? x.detach() : Tensor(), 0}), ...); }
  const Tensor& operator[](int i) const;  // throws if the value was changed in place since
  // Returns a tensor to overwrite: the saved one if nothing else owns its data, else a new one.
  Tensor take(int i) const;
  bool needs(int input) const { return bool(inputs_[static_cast<size_t>(input)]); }  // false: no gradient required

  // The buffer for the gradient of an input: a leaf's gradient buffer if its dtype matches, else a
  // new tensor. bf16 gradients are written as f32, for leaves that accumulate in f32
  // (nn/optimizers/base/optimizer.h); as(bf16) rounds them for other inputs.
  struct GradientBuffer {
    Tensor gradient;
    bool accumulate;              // true: add to the gradient; false: overwrite it
    bool is_leaf_buffer = false;  // true: a leaf's gradient buffer
    Tensor as(Dtype dtype) const { return is_leaf_buffer ? gradient : gradient.to(dtype); }
  };
  GradientBuffer gradient_buffer(int input, const Shape& shape, Dtype dtype, Device device) const;
  // Takes the gradient that other consumers have sent to an input; backward adds it in its loop.
  // Undefined if there is none, and on a CPU: there `deliver` adds it, always in the same order.
  Tensor take_pending_gradient(int input) const;
  int64_t bytes() const;  // size of the saved values

  void attach(std::span<const Tensor* const> inputs);  // this and the functions below are for record and backward
  void seal();                                         // stores the versions of the saved values
  void release() { tensors_.clear(); }
  bool needs_any() const;
  std::vector<Edge>& edges() { return inputs_; }

 private:
  struct SavedTensor {
    Tensor value;
    uint64_t version;
  };
  const char* name_ = "";
  std::vector<SavedTensor> tensors_;
  std::vector<Edge> inputs_;
  friend struct Node;
};

struct Node {  // a node of the autograd graph: one recorded call
  Node(const char* name, Saved saved, int outputs);
  virtual ~Node();
  virtual std::vector<Tensor> backward(std::vector<Tensor>& dy) = 0;  // returns a gradient for each input
  uint64_t serial;  // larger than the serials of the nodes that made its inputs
  const char* name;
  Saved saved;
  int outputs;
  bool freed = false;
  std::shared_ptr<Node> next_dead;  // next in the list of nodes that wait to be freed, which needs no allocation
};

bool is_recording();  // false while a NoGrad lives on this thread
class NoGrad {        // stops recording on this thread while it lives; NoGrad(true) starts it again
 public:
  explicit NoGrad(bool record = false);
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;

 private:
  bool before_;
};

// Adds the gradients of sum(y * dy) to the leaves that y depends on, and frees the graph. Throws if
// y requires no gradient, or if dy differs from y in shape, dtype or device.
void backward(const Tensor& y, const Tensor& dy);

namespace detail {

inline std::vector<Tensor> as_vector(const Tensor& y) { return {y}; }
template <size_t M>
std::vector<Tensor> as_vector(const std::array<Tensor, M>& y) {
  return {y.begin(), y.end()};
}
inline std::vector<Tensor> as_vector(std::vector<Tensor> y) { return y; }

template <class Op>
concept HasBackward = requires {
  &Op::backward;
};

template <class Op, class Outputs, class GradientsOf>  // a node for one type of operation
struct Call final : Node {
  Call(const Op& o, Saved s, int n) : Node(Op::name, std::move(s), n), op(o) {}
  std::vector<Tensor> backward(std::vector<Tensor>& dy) override {
    if constexpr (std::same_as<Outputs, Tensor>) {
      return gradients(op.backward(saved, dy[0]));
    } else if constexpr (std::same_as<Outputs, std::vector<Tensor>>) {
      return gradients(op.backward(saved, dy));
    } else {
      Outputs all;
      for (size_t i = 0; i < all.size(); ++i) all[i] = std::move(dy[i]);
      return gradients(op.backward(saved, all));
    }
  }
  static std::vector<Tensor> gradients(GradientsOf g) {
    return as_vector(std::move(g));
  }  // a wrong number of gradients does not compile
  Op op;
};

void connect(std::shared_ptr<Node> node, std::span<const Tensor> outputs);
void check_fresh(const char* name, std::span<const Tensor* const> inputs, std::span<const Tensor> outputs);
[[noreturn]] void fail_without_backward(const char* name);

template <class GradientsOf, class Op, class Forward>
auto record(const Op& op, std::span<const Tensor* const> inputs, const Forward& forward) {
  Saved saved;
  saved.attach(inputs);
  ProfileSpan span(Op::name, "forward");
  auto y = [&] {
    const NoGrad guard;  // calls inside an operation are not recorded
    return forward(saved);
  }();
  const std::vector<Tensor> outputs = as_vector(y);
  check_fresh(Op::name, inputs, outputs);
  for (const Tensor* x : inputs) span.count({x, 1});
  span.count(outputs);
  if (saved.needs_any()) span.count_saved(saved.bytes());
  if (!saved.needs_any()) return y;
  if constexpr (HasBackward<Op>) {
    saved.seal();
    connect(
        std::make_shared<Call<Op, decltype(y), GradientsOf>>(op, std::move(saved), static_cast<int>(outputs.size())),
        outputs);
  } else {
    fail_without_backward(Op::name);
  }
  return y;
}

}  // namespace detail

// Runs an operation, and records it if recording is on and any input requires a gradient.
template <class Op, std::same_as<Tensor>... Input>
auto record(const Op& op, const Input&... x) {
  const std::array<const Tensor*, sizeof...(Input)> inputs = {&x...};
  return detail::record<Gradients<sizeof...(Input)>>(op, inputs, [&](Saved& saved) { return op.forward(saved, x...); });
}
// Runs an operation on any number of inputs; backward returns a vector of this many gradients.
template <class Op>
auto record(const Op& op, const std::vector<Tensor>& x) {
  std::vector<const Tensor*> inputs;
  for (const Tensor& t : x) inputs.push_back(&t);
  return detail::record<std::vector<Tensor>>(op, inputs, [&](Saved& saved) { return op.forward(saved, x); });
}

}  // namespace orrery
