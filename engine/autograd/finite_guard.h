// Stops at the first value that is not finite, where it arises.
//
//   const FiniteGuard guard;                // looks for as long as it lives, on this thread
//   loss(model, batch).backward();          // throws NotFiniteFound: operation, module, tensor and numbers
//
// Looked at are the results of every operation, the gradients that its backward returns, and sums of gradients that
// meet.  What an operation calls within itself is its own business, and what a module sums up without one, such as
// statistics of a batch, is seen where an operation reads it.  Looking changes no bit.  On a GPU each result is copied
// to the host for it, and no graph can be recorded meanwhile.
//
// One exception: minus infinity may stand in a result if it stood in what was read, as in the scores that
// `where(mask, scores, minus infinity)` hides: what masks is a constant, and was put there on purpose.  A NaN or plus
// infinity beside it is found all the same.
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

// An operation as the guard has seen it.
struct LookedAt {
  struct Value {
    std::string name;  // "input 0", "output", "gradient of input 1"; of a leaf that has one, its own
    NumberFacts facts;
    bool operator==(const Value&) const = default;
  };
  std::string operation, direction;  // forward, backward, or update (of an optimizer)
  std::string module;                // the path of the innermost that was running; empty: none
  std::vector<Value> read, made;
  size_t found = 0;  // which of `made` is not finite, if one is
  bool operator==(const LookedAt&) const = default;
};

constexpr const char* root_module = "model";  // the path of the outermost module, which has none

class NotFiniteFound : public Error {
 public:
  // "forward of exp in blocks.0.attention: output f32 (2, 8) holds 3 NaN, ..."
  explicit NotFiniteFound(LookedAt what);
  const LookedAt& what_was_found() const { return *what_; }

 private:
  std::shared_ptr<const LookedAt> what_;  // an exception is copied without a throw
};

class FiniteGuard {
 public:
  using Names = std::map<const TensorBody*, std::string>;      // of leaves, such as parameters
  using Observer = std::function<void(const LookedAt& call)>;  // is told of every operation whose results are finite
  explicit FiniteGuard(Names names = {}, Observer observer = {});
  ~FiniteGuard();
  FiniteGuard(const FiniteGuard&) = delete;
  static FiniteGuard* active();  // of this thread; nullptr: there is none

  // What autograd.cpp tells it.
  void look_at_forward(const char* operation, std::span<const Tensor* const> inputs, std::span<const Tensor> outputs);
  void remember(const Node& call);  // where it was recorded
  void enter_backward() { ++backward_passes_; }
  void leave_backward() { --backward_passes_; }
  void look_at_backward(const Node& call, std::span<const Edge> inputs, std::span<const Tensor> read,
                        std::span<const Tensor> made);
  void look_at_sum(const Edge& to, const Tensor& sum);

 private:
  friend class InModule;
  using Named = std::pair<std::string, Tensor>;
  std::string name_of(const TensorBody* leaf, const std::string& otherwise) const;
  std::string name_of_gradient(const Edge& of, const std::string& otherwise) const;
  void look(const char* operation, const char* direction, const std::string& module, const std::vector<Named>& read,
            const std::vector<Named>& made);

  const Names names_;
  const Observer observer_;
  std::unordered_map<uint64_t, std::string> modules_;  // of recorded calls, by serial
  const std::string* module_ = nullptr;
  int backward_passes_ = 0;  // that are going on
  FiniteGuard* const before_;
};

// The module that runs while one of these lives.  Costs nothing without a guard.
class InModule {
 public:
  explicit InModule(const std::string& path);  // which outlives it
  ~InModule();
  InModule(const InModule&) = delete;

 private:
  FiniteGuard* const guard_;
  const std::string* before_ = nullptr;
};

// Operations that are open on this thread, one within the other (profile.h).
int open_operations();

}  // namespace orrery
