// From what the caller stores to what the kernels take: float or double, head sizes padded to whole vectors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "engine/attention/problem.h"
#include "engine/base/parallel.h"
#include "engine/tensor/storage.h"

namespace orrery::detail::attend {

constexpr int64_t padded(int64_t size) { return (size + padding - 1) / padding * padding; }

// Tokens (rows, heads, size), where `rows` counts those of all sequences.
struct Extent {
  int64_t rows, heads, size;
};

template <class T>
bool is_direct(const Extent& extent) {
  return std::is_same_v<T, Arithmetic<T>> && extent.size == padded(extent.size);
}

// body(row, head) for all of them
template <class Body>
void each_head(const Extent& extent, const Body& body) {
  parallel_for(extent.rows, 1 + (1 << 14) / (extent.heads * extent.size), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t head = 0; head < extent.heads; ++head) body(row, head);
  });
}

template <class A>
std::unique_ptr<Buffer> padded_memory(const Extent& extent) {
  return std::make_unique<Buffer>(Device::cpu, extent.rows * extent.heads * padded(extent.size) * int64_t{sizeof(A)});
}

// A tensor that is read: as it lies, or a copy, padded with zeros.
template <class T>
class Source {
 public:
  using A = Arithmetic<T>;

  Source(Tokens<const T> tokens, const Extent& extent) {
    if constexpr (std::is_same_v<T, A>) tokens_ = {tokens.data, tokens.stride};
    if (is_direct<T>(extent) || !tokens.data) return;
    memory_ = padded_memory<A>(extent);
    A* const copy = reinterpret_cast<A*>(memory_->data());
    const int64_t size = padded(extent.size), stride = extent.heads * size;
    each_head(extent, [&](int64_t row, int64_t head) {
      const T* const from = tokens.data + row * tokens.stride + head * extent.size;
      A* const to = copy + row * stride + head * size;
      for (int64_t c = 0; c < extent.size; ++c) to[c] = static_cast<A>(from[c]);
      std::fill(to + extent.size, to + size, A(0));
    });
    tokens_ = {copy, stride};
  }
  Tokens<const A> tokens() const { return tokens_; }

 private:
  std::unique_ptr<Buffer> memory_;
  Tokens<const A> tokens_ = {};
};

// A tensor that is written: in place, or in padded memory, from which finish() writes it back.
template <class T>
class Destination {
 public:
  using A = Arithmetic<T>;

  Destination(Tokens<T> tokens, const Extent& extent) : result_(tokens), extent_(extent) {
    if constexpr (std::is_same_v<T, A>) tokens_ = tokens;
    if (is_direct<T>(extent) || !tokens.data) return;
    memory_ = padded_memory<A>(extent);
    tokens_ = {reinterpret_cast<A*>(memory_->data()), extent.heads * padded(extent.size)};
  }
  Tokens<A> tokens() const { return tokens_; }
  void finish() const {
    if (!memory_) return;
    each_head(extent_, [&](int64_t row, int64_t head) {
      const A* const from = tokens_.data + row * tokens_.stride + head * padded(extent_.size);
      T* const to = result_.data + row * result_.stride + head * extent_.size;
      for (int64_t c = 0; c < extent_.size; ++c) to[c] = static_cast<T>(from[c]);
    });
  }

 private:
  std::unique_ptr<Buffer> memory_;
  Tokens<T> result_;
  Tokens<A> tokens_ = {};
  Extent extent_;
};

// The memory of one task, laid out.
template <class A>
class TaskMemory {
 public:
  explicit TaskMemory(const Problem<A>& problem) {
    const int64_t elements = lay_out(problem, nullptr);
    memory_ = std::make_unique<Buffer>(Device::cpu, elements * int64_t{sizeof(A)});
    lay_out(problem, reinterpret_cast<A*>(memory_->data()));
    workspace_.work = &work_;
  }
  TaskMemory(const TaskMemory&) = delete;
  TaskMemory& operator=(const TaskMemory&) = delete;

  Workspace<A>& workspace() { return workspace_; }
  int64_t work() const { return work_; }

 private:
  int64_t lay_out(const Problem<A>& p, A* memory) {
    int64_t used = 0;  // every part is a multiple of query_block elements, so all begin at multiples of 64 bytes
    const auto take = [&](A*& part, int64_t elements, bool needed = true) {
      part = memory && needed ? memory + used : nullptr;
      used += needed ? elements : 0;
    };
    Workspace<A>& w = workspace_;
    const StatisticsGradients<A>& statistics = p.statistics_gradients;
    take(w.query_columns, p.sizes.head_size * query_block);
    take(w.gradient_columns, p.sizes.value_size * query_block);
    for (A** tile : {&w.scores, &w.score_gradients, &w.shares}) take(*tile, key_block * query_block);
    take(w.slopes, key_block * query_block, p.options.soft_cap > 0);
    take(w.spare, key_block * query_block, p.inputs.span || statistics.sum_gradient || statistics.entropy_gradient);
    take(w.factors, (key_block + 8) * query_block, p.dropout_factors);
    take(w.band, (key_block + query_block) * query_block, p.sizes.distances > 0);
    take(w.distance_row, key_block + query_block, p.inputs.relative_bias);
    take(w.output, query_block * p.sizes.value_size);
    for (A** row : {&w.spans, &w.span_gradients}) take(*row, query_block);
    for (A*& row : w.rows) take(row, query_block);
    return used;
  }

  std::unique_ptr<Buffer> memory_;
  Workspace<A> workspace_ = {};
  int64_t work_ = 0;
};

}  // namespace orrery::detail::attend
