// Kernels that a backward pass may launch later, together: the last additions of sums whose first
// step is done. Their results are gradient buffers of leaves, which no operation reads.
#pragma once

namespace orrery::cuda {

// A guard: while it lives on this thread, kernels may wait.
class WaitingKernels {
 public:
  WaitingKernels();
  ~WaitingKernels();  // drops those that wait, because they are left after an error only
  WaitingKernels(const WaitingKernels&) = delete;
  static bool allowed();

  // Launches the kernels that wait: all, or only those that write to `out` and others of their kind.
  static void launch();
  static void launch(const void* out);

  // Kernels of one kind that wait, on one thread.
  class Kind {
   public:
    Kind();
    virtual ~Kind();
    virtual void launch() = 0;
    virtual void drop() = 0;
    virtual bool writes(const void* out) const = 0;
  };
};

}  // namespace orrery::cuda
