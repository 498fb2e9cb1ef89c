// Numbers that travel between the host and a device while both work, and work that is recorded to be replayed.
//
// The host fills or reads memory of its own, several blocks in turn, and waits only for a block that is still on its
// way. On Device::cpu all of it is done at once.
#pragma once

#include <array>
#include <functional>
#include <memory>

#include "engine/tensor/tensor.h"

namespace orrery {

namespace detail {
class HostBlock {  // as large as a tensor
 public:
  explicit HostBlock(const Tensor& like);
  ~HostBlock();
  void* data();  // waits until the block is not in flight
  void send(const Tensor& to);
  void fetch(const Tensor& from);

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
};
}  // namespace detail

// To a tensor: fill what begin() returns, count() numbers, then send().
class HostToDevice {
 public:
  explicit HostToDevice(const Tensor& to);
  template <class T>
  T* begin() {
    check_dtype(dtype_of<T>);
    block_ = (block_ + 1) % blocks_.size();
    return static_cast<T*>(blocks_[block_]->data());
  }
  void send() { blocks_[block_]->send(to_); }  // what is queued from now on sees the new numbers
  void send(const Tensor& numbers);            // of the same shape and dtype, on the CPU
  const Tensor& tensor() const { return to_; }

 private:
  void check_dtype(Dtype dtype) const;
  Tensor to_;
  std::array<std::unique_ptr<detail::HostBlock>, 2> blocks_;
  size_t block_ = 0;
};

// From a tensor: fetch() queues a copy of its present numbers; read(fetch()) waits for them.  A ticket is good until
// two later ones have been given out.
class DeviceToHost {
 public:
  explicit DeviceToHost(const Tensor& from);
  size_t fetch() {
    blocks_[++fetched_ % blocks_.size()]->fetch(from_);
    return fetched_;
  }
  template <class T>
  const T* read(size_t ticket) {
    check_ticket(dtype_of<T>, ticket);
    return static_cast<const T*>(blocks_[ticket % blocks_.size()]->data());
  }

 private:
  void check_ticket(Dtype dtype, size_t ticket) const;
  Tensor from_;
  std::array<std::unique_ptr<detail::HostBlock>, 3> blocks_;
  size_t fetched_ = 0;
};

// What a function queues on the GPU, recorded once and replayed at the price of one launch (a CUDA graph).  The
// function is called once, and nothing is done yet; so it may not wait for the device, nor decide by numbers that
// change from step to step.  What it allocates comes from a pool of the graph's own, unused by others until
// the graph is destroyed; graphs of which one is replayed at a time may share a pool, and what `work` leaves there is
// good until another of them is replayed.  An Error without a GPU.
class Graph {
 public:
  explicit Graph(const std::function<void()>& work, const Graph* shares_memory_of = nullptr);
  void replay() const { replay_(recorded_.get()); }
  const Pool& memory() const { return *pool_; }

 private:
  std::shared_ptr<Pool> pool_;  // outlives the recording, which reads its blocks
  std::shared_ptr<void> recorded_;
  void (*replay_)(void* recorded) = nullptr;
};

}  // namespace orrery
