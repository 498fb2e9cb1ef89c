#include "engine/autograd/autograd.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>

#include "engine/autograd/finite_guard.h"
#include "engine/autograd/waiting_kernels.h"
#include "engine/loops/tensor_sums.h"

namespace orrery {
namespace {

thread_local bool record_calls = true;
std::atomic<uint64_t> next_serial = 1;

Edge edge_of(const Tensor& x) {
  if (!x || !x.impl()->requires_grad) return {};
  if (x.impl()->edge) return x.impl()->edge;
  return {nullptr, 0, x.impl()};
}

bool sole_owner(const Tensor& x) { return x.impl().use_count() == 1 && x.impl()->buffer.use_count() == 1; }

}  // namespace

// ---- Saved

const Tensor& Saved::operator[](int i) const {
  const SavedTensor& saved_tensor = tensors_[static_cast<size_t>(i)];
  if (saved_tensor.value && saved_tensor.value.impl()->buffer->version != saved_tensor.version)
    fail("backward: ", name_, " saved a value of shape ", saved_tensor.value.shape(),
         " that was changed in place afterwards; change a clone() of it instead");
  return saved_tensor.value;
}
Tensor Saved::take(int i) const {
  const Tensor& saved_tensor = (*this)[i];
  return sole_owner(saved_tensor) ? saved_tensor : Tensor::empty_like(saved_tensor);
}
Saved::GradientBuffer Saved::gradient_buffer(int input, const Shape& shape, Dtype dtype, Device device) const {
  const std::shared_ptr<TensorImpl>& leaf = inputs_[static_cast<size_t>(input)].leaf;
  if (leaf && leaf->has_fixed_gradient && leaf->gradient.dtype() == dtype) {
    cuda::WaitingKernels::launch(leaf->gradient.raw());
    return {leaf->gradient, !std::exchange(leaf->stale, false), true};
  }
  return {Tensor::empty(shape, dtype, device), false};
}
int64_t Saved::bytes() const {
  int64_t total = 0;
  for (const SavedTensor& saved_tensor : tensors_) total += saved_tensor.value ? saved_tensor.value.bytes() : 0;
  return total;
}
void Saved::attach(std::span<const Tensor* const> inputs) {
  for (const Tensor* x : inputs) inputs_.push_back(record_calls ? edge_of(*x) : Edge{});
}
void Saved::seal() {
  for (SavedTensor& saved_tensor : tensors_)
    if (saved_tensor.value) saved_tensor.version = saved_tensor.value.impl()->buffer->version;
}
bool Saved::needs_any() const {
  return std::any_of(inputs_.begin(), inputs_.end(), [](const Edge& e) { return bool(e); });
}

// ---- Node

Node::Node(const char* n, Saved s, int count) : serial(next_serial++), name(n), saved(std::move(s)), outputs(count) {
  saved.name_ = n;
}

// Frees a long chain in a loop, because recursion would overflow the stack. The outermost call owns
// the list: a thread_local list would need a destructor, whose registration allocates memory.
Node::~Node() {
  static thread_local std::shared_ptr<Node>* waiting = nullptr;
  std::shared_ptr<Node> mine;
  const bool outermost = !waiting;
  if (outermost) waiting = &mine;
  std::shared_ptr<Node>& dead = *waiting;
  for (Edge& edge : saved.edges()) {
    if (edge.node.use_count() != 1) continue;  // the node has another owner
    edge.node->next_dead = std::exchange(dead, nullptr);
    dead = std::move(edge.node);
  }
  if (!outermost) return;
  while (dead) {
    const std::shared_ptr<Node> next = std::exchange(dead, nullptr);
    dead = std::exchange(next->next_dead, nullptr);
  }
  waiting = nullptr;
}

void detail::connect(std::shared_ptr<Node> node, std::span<const Tensor> outputs) {
  if (FiniteGuard* const guard = FiniteGuard::active()) guard->remember(*node);
  for (size_t i = 0; i < outputs.size(); ++i) {
    outputs[i].impl()->requires_grad = true;
    outputs[i].impl()->edge = {node, static_cast<int>(i), nullptr};
  }
}
void detail::check_fresh(const char* name, std::span<const Tensor* const> inputs, std::span<const Tensor> outputs) {
  for (const Tensor& y : outputs)
    for (const Tensor* x : inputs)
      if (y && y.impl() == x->impl())
        fail(name, ": forward returned its input; return x.detach(), which shares the memory");
  if (FiniteGuard* const guard = FiniteGuard::active()) guard->check_forward(name, inputs, outputs);
}
void detail::fail_without_backward(const char* name) {
  fail(name, ": has no backward, but an input requires a gradient; detach() it or run under NoGrad");
}

bool is_recording() { return record_calls; }
NoGrad::NoGrad(bool record) : before_(std::exchange(record_calls, record)) {}
NoGrad::~NoGrad() { record_calls = before_; }

// ---- backward

namespace {

class Backward {
 public:
  static inline thread_local Backward* running = nullptr;  // the innermost pass of this thread
  Backward() {
    if (guard_) guard_->enter_backward();
    if (!guard_) kernels_wait_.emplace();  // a guard reads each gradient at once
  }
  ~Backward() {
    running = outer_;
    if (guard_) guard_->leave_backward();
  }
  Backward(const Backward&) = delete;
  // Adds g to the gradients from other uses of the tensor. Its node runs after those of all uses.
  void deliver(const Edge& to, const Tensor& g) {
    if (!g || !to) return;
    if (to.leaf) {
      if (deliver_to_leaf(*to.leaf, g) && guard_) guard_->check_sum(to, to.leaf->gradient);
      return;
    }
    auto [found, fresh] = pending_.try_emplace(to.node.get());
    if (fresh) {
      found->second.resize(static_cast<size_t>(to.node->outputs));
      heap_.push_back(to.node);
      std::push_heap(heap_.begin(), heap_.end(), older);
    }
    Tensor& gradient = found->second[static_cast<size_t>(to.output)];
    const bool first = !gradient;
    gradient = first ? g : sum(gradient, g);
    if (guard_ && !first) guard_->check_sum(to, gradient);
  }
  Tensor take(const Edge& at) {
    const auto found = pending_.find(at.node.get());
    if (found == pending_.end()) return {};
    Tensor& gradient = found->second[static_cast<size_t>(at.output)];
    return gradient && gradient.device() == Device::cuda ? std::exchange(gradient, {}) : Tensor();
  }
  void run() {
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), older);
      const std::shared_ptr<Node> node = std::move(heap_.back());
      heap_.pop_back();
      std::vector<Tensor> dy = std::move(pending_.extract(node.get()).mapped());
      if (node->freed)
        fail("backward: the graph of ", node->name, " was freed by an earlier backward; run forward again");
      std::vector<Tensor> dy_copies = guard_ ? dy : std::vector<Tensor>();  // copies, because backward may move from dy
      std::vector<Tensor> gradients;
      {
        ProfileSpan span(node->name, "backward");
        span.count(dy);
        gradients = node->backward(dy);
        span.count(gradients);
      }
      if (guard_) guard_->check_backward(*node, node->saved.edges(), dy_copies, gradients);
      dy.clear(), dy_copies.clear();
      node->saved.release();
      node->freed = true;
      const std::vector<Edge>& inputs = node->saved.edges();
      for (size_t i = 0; i < inputs.size(); ++i) deliver(inputs[i], std::exchange(gradients[i], {}));
    }
    cuda::WaitingKernels::launch();
  }

 private:
  static bool older(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) { return a->serial < b->serial; }

  static Tensor sum(Tensor& a, const Tensor& b) {
    if (!sole_owner(a)) return sum_of(a, b);
    add_in_place(a, b);
    return a;
  }
  // Returns true if the gradient was added to an earlier one.
  static bool deliver_to_leaf(TensorImpl& leaf, const Tensor& g) {
    if (g.shape() != leaf.shape)
      fail("backward: a gradient of shape ", g.shape(), " must have the shape of its tensor, ", leaf.shape);
    if (leaf.has_fixed_gradient && leaf.gradient.impl() == g.impl()) return false;  // the operation wrote it there
    const bool empty = !leaf.gradient || leaf.stale;
    if (leaf.has_fixed_gradient) {
      cuda::WaitingKernels::launch(leaf.gradient.raw());
      empty ? leaf.gradient.copy_from(g) : add_in_place(leaf.gradient, g.to(leaf.gradient.dtype()));
    } else {
      leaf.gradient = empty ? g : sum(leaf.gradient, g);
    }
    leaf.stale = false;
    return !empty;
  }

  std::unordered_map<Node*, std::vector<Tensor>> pending_;
  std::vector<std::shared_ptr<Node>> heap_;  // the youngest node first
  FiniteGuard* const guard_ = FiniteGuard::active();
  Backward* const outer_ = std::exchange(running, this);
  std::optional<cuda::WaitingKernels> kernels_wait_;
};

}  // namespace

Tensor Saved::take_pending_gradient(int input) const {
  const Edge& edge = inputs_[static_cast<size_t>(input)];
  return Backward::running && edge.node ? Backward::running->take(edge) : Tensor();
}

void backward(const Tensor& y, const Tensor& dy) {
  check(y.defined() && y.requires_grad(),
        "backward: the tensor does not require a gradient; call set_requires_grad() on an input before forward");
  check(y.shape() == dy.shape(), "backward: a gradient of shape ", dy.shape(), " must have the shape of its tensor, ",
        y.shape());
  check_same_kind("backward", y, dy);
  const NoGrad guard;
  Backward pass;
  pass.deliver(edge_of(y), dy);
  pass.run();
}

void Tensor::backward() const {
  check(numel() == 1, "backward: the tensor has ", numel(),
        " elements instead of 1; use backward(y, dy) with its gradient");
  orrery::backward(*this, Tensor::full(shape(), 1, dtype(), device()));
}

}  // namespace orrery
