// Differentiation: what a recorded call keeps, and how gradients travel back.
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
// forward may return std::array<Tensor, M> or a vector; backward then takes the same form of gradients, undefined where
// unused.  An undefined input means absent; an undefined gradient means zero.
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

class Saved {  // what forward keeps for backward, nothing else
 public:
  // Values without history: an operation may keep its own output without a cycle.  Undefined tensors may be kept.
  void save(std::same_as<Tensor> auto const&... x) { (kept_.push_back({x ? x.detach() : Tensor(), 0}), ...); }
  const Tensor& operator[](int i) const;  // an error if the value has been changed in place since
  // The kept tensor, to be overwritten, if it is the only owner of its numbers; else a new one of its form.
  Tensor take(int i) const;
  bool needs(int input) const { return bool(inputs_[static_cast<size_t>(input)]); }

  // Where the gradient of an input may be written at once: a leaf's own place if that is of the dtype, or a new tensor.
  // Gradients of bf16 are written as f32, for a leaf that gathers them so (nn/optimizers/base/optimizer.h), and
  // handed on by as(bf16).
  struct Place {
    Tensor gradient;
    bool accumulate;       // add to what is there; else overwrite
    bool at_home = false;  // of a leaf
    Tensor as(Dtype dtype) const { return at_home ? gradient : gradient.to(dtype); }
  };
  Place place(int input, const Shape& shape, Dtype dtype, Device device) const;
  // What has already arrived at an input from its other readers, for a backward that adds it to its own gradient in the
  // walk that makes it.  Undefined if nothing has, and on a CPU, where a sum is no launch and keeps its bits.
  Tensor take_arrived(int input) const;
  int64_t bytes() const;  // held by the kept values

  void attach(std::span<const Tensor* const> inputs);  // the rest is for record and backward
  void seal();                                         // notes the versions of what was kept
  void release() { kept_.clear(); }
  bool any() const;
  std::vector<Edge>& edges() { return inputs_; }

 private:
  struct Kept {
    Tensor value;
    uint64_t version;
  };
  const char* name_ = "";
  std::vector<Kept> kept_;
  std::vector<Edge> inputs_;
  friend struct Node;
};

struct Node {  // one recorded call
  Node(const char* name, Saved saved, int outputs);
  virtual ~Node();
  virtual std::vector<Tensor> backward(std::vector<Tensor>& dy) = 0;  // a gradient for each input
  uint64_t serial;  // a call is always younger than the calls that made its inputs
  const char* name;
  Saved saved;
  int outputs;
  bool freed = false;
  std::shared_ptr<Node> next_dead;  // of those that wait to be freed: a list that needs no memory of its own
};

bool recording();
class NoGrad {  // nothing is recorded while one of these lives, on this thread
 public:
  explicit NoGrad(bool record = false);
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;

 private:
  bool before_;
};

// Adds the gradients of sum <y, dy> to the leaves that y was computed from, and frees the graph.
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

template <class Op, class Outputs, class GradientsOf>  // a Node for operations of one form
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
  }  // another number: no compilation
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
    const NoGrad guard;  // what an operation calls is not recorded
    return forward(saved);
  }();
  const std::vector<Tensor> outputs = as_vector(y);
  check_fresh(Op::name, inputs, outputs);
  for (const Tensor* x : inputs) span.count({x, 1});
  span.count(outputs);
  if (saved.any()) span.keep(saved.bytes());
  if (!saved.any()) return y;
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

// Runs an operation, and records it if recording is on and any input wants a gradient.
template <class Op, std::same_as<Tensor>... Input>
auto record(const Op& op, const Input&... x) {
  const std::array<const Tensor*, sizeof...(Input)> inputs = {&x...};
  return detail::record<Gradients<sizeof...(Input)>>(op, inputs, [&](Saved& saved) { return op.forward(saved, x...); });
}
// The same for any number of inputs; backward returns a vector of as many gradients.
template <class Op>
auto record(const Op& op, const std::vector<Tensor>& x) {
  std::vector<const Tensor*> inputs;
  for (const Tensor& t : x) inputs.push_back(&t);
  return detail::record<std::vector<Tensor>>(op, inputs, [&](Saved& saved) { return op.forward(saved, x); });
}

}  // namespace orrery
