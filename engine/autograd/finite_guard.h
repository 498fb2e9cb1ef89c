// A guard that throws at the first non-finite value, in the operation that produces it.
//
//   const FiniteGuard guard;                // checks this thread while it lives
//   loss(model, batch).backward();          // throws NonFiniteError: operation, module, tensor and values
//
// It checks the results of every operation, the gradients that its backward returns, and sums of
// gradients. Nested calls inside an operation are not checked. Buffers that a module updates
// without an operation, such as batch statistics, are checked when an operation reads them.
// Results do not change. On a GPU each is copied to the host, so no CUDA graph can be captured.
//
// One exception: a result may hold minus infinity if an input does, as in the scores that `where(mask, scores, minus
// infinity)` hides, because a mask is an intended constant. NaN and plus infinity in such a result are still reported.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/tensor/finite.h"
#include "engine/types/check.h"

namespace orrery {

// An operation as recorded by the guard.
struct OperationRecord {
  struct Value {
    std::string name;  // "input 0", "output", "gradient of input 1", or the leaf's name if it has one
    TensorStats stats;
    bool operator==(const Value&) const = default;
  };
  std::string operation, direction;  // forward, backward, or update (of an optimizer)
  std::string module;                // path of the innermost running module; empty: none
  std::vector<Value> inputs, outputs;
  size_t first_non_finite = 0;  // index in `outputs` of the non-finite value, if there is one
  bool operator==(const OperationRecord&) const = default;
};

constexpr const char* root_module = "model";  // path reported for the outermost module, whose own path is empty

class NonFiniteError : public Error {
 public:
  // "forward of exp in blocks.0.attention: output f32 (2, 8) has 3 NaN, ..."
  explicit NonFiniteError(OperationRecord call);
  const OperationRecord& record() const { return *record_; }

 private:
  std::shared_ptr<const OperationRecord> record_;  // shared, because copying an exception must not throw
};

class FiniteGuard {
 public:
  using Names = std::map<const TensorImpl*, std::string>;             // names of leaves, such as parameters
  using Observer = std::function<void(const OperationRecord& call)>;  // called for every operation with finite results
  explicit FiniteGuard(Names names = {}, Observer observer = {});
  ~FiniteGuard();
  FiniteGuard(const FiniteGuard&) = delete;
  static FiniteGuard* active();  // the guard of this thread; nullptr: none

  // autograd.cpp calls these functions.
  void check_forward(const char* operation, std::span<const Tensor* const> inputs, std::span<const Tensor> outputs);
  void remember(const Node& node);  // stores the module that recorded it
  void enter_backward() { ++backward_passes_; }
  void leave_backward() { --backward_passes_; }
  void check_backward(const Node& node, std::span<const Edge> inputs, std::span<const Tensor> dy,
                      std::span<const Tensor> dx);
  void check_sum(const Edge& to, const Tensor& sum);

 private:
  friend class ModuleScope;
  using Named = std::pair<std::string, Tensor>;
  std::string name_of(const TensorImpl* leaf, const std::string& otherwise) const;
  std::string name_of_gradient(const Edge& of, const std::string& otherwise) const;
  void check_values(const char* operation, const char* direction, const std::string& module,
                    const std::vector<Named>& inputs, const std::vector<Named>& outputs);

  const Names names_;
  const Observer observer_;
  std::unordered_map<uint64_t, std::string> modules_;  // module of each recorded call, by Node::serial
  const std::string* module_ = nullptr;
  int backward_passes_ = 0;    // number of running backward passes
  FiniteGuard* const before_;  // the guard that was active before; active again when this one ends
};

// A scope that sets the running module. Costs nothing without a guard.
class ModuleScope {
 public:
  explicit ModuleScope(const std::string& path);  // must outlive this object
  ~ModuleScope();
  ModuleScope(const ModuleScope&) = delete;

 private:
  FiniteGuard* const guard_;
  const std::string* before_ = nullptr;
};

// Returns the number of nested operations that run on this thread (profile.h).
int open_operations();

}  // namespace orrery
