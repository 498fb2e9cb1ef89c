// Asynchronous copies between the host and a device, and CUDA graphs.
//
// Each object copies through two or three blocks of host memory in turn, so the host waits only for
// a block whose earlier copy is not complete. On Device::cpu a copy is immediate.
#pragma once

#include <array>
#include <functional>
#include <memory>

#include "engine/tensor/tensor.h"

namespace orrery {

namespace detail {
class HostBlock {  // host memory as large as a tensor, page-locked for a GPU
 public:
  explicit HostBlock(const Tensor& like);
  ~HostBlock();
  void* data();  // waits until the latest copy is complete
  void send(const Tensor& to);
  void fetch(const Tensor& from);

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
};
}  // namespace detail

// Copies to a tensor: fill its numbers at begin(), then call send().
class HostToDevice {
 public:
  explicit HostToDevice(const Tensor& to);
  template <class T>
  T* begin() {
    check_dtype(dtype_of<T>);
    block_ = (block_ + 1) % blocks_.size();
    return static_cast<T*>(blocks_[block_]->data());
  }
  void send() { blocks_[block_]->send(to_); }  // work that is queued later reads the new numbers
  void send(const Tensor& numbers);            // `numbers`: a CPU tensor of the same shape and dtype
  const Tensor& tensor() const { return to_; }

 private:
  void check_dtype(Dtype dtype) const;
  Tensor to_;
  std::array<std::unique_ptr<detail::HostBlock>, 2> blocks_;
  size_t block_ = 0;
};

// Copies from a tensor: fetch() queues a copy of its present numbers and returns a ticket;
// read(ticket) waits for them. A ticket is valid until two later ones have been issued.
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

// The elements of a tensor in host memory, where messages to other processes read and write them: the
// tensor itself on the CPU; of a GPU's tensor a copy in page-locked memory.
class HostCopy {
 public:
  explicit HostCopy(const Tensor& of);
  const Tensor& tensor() const { return host_; }
  // Copy elements [begin, end) from the device, or to it, and return when that is done.
  void fetch(int64_t begin, int64_t end) const { copy(of_, host_, begin, end); }
  void send(int64_t begin, int64_t end) const { copy(host_, of_, begin, end); }

 private:
  void copy(const Tensor& from, const Tensor& to, int64_t begin, int64_t end) const;
  Tensor of_, host_;
};

// A CUDA graph: the GPU work that a function queues, captured once and replayed at the cost of one
// launch. The function is called once, and no work runs during capture; so it must not wait for the
// device or depend on numbers that change between steps. Its allocations come from the graph's own
// pool, unused by others until the graph is destroyed. Graphs that replay one at a time may share a
// pool; their results there are valid until another one replays. Throws without a GPU.
class Graph {
 public:
  explicit Graph(const std::function<void()>& work, const Graph* shares_memory_of = nullptr);
  void replay() const { replay_(recorded_.get()); }
  const Pool& memory() const { return *pool_; }

 private:
  std::shared_ptr<Pool> pool_;  // outlives the CUDA graph, which uses its blocks
  std::shared_ptr<void> recorded_;
  void (*replay_)(void* recorded) = nullptr;
};

}  // namespace orrery
