// From tensors as they are given to what the kernels take: float or double, head sizes padded to whole vectors; and the
// memory of a task.
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "engine/attention/problem.h"
#include "engine/base/parallel.h"
#include "engine/tensor/storage.h"

namespace orrery::detail::attention {

constexpr int64_t padded(int64_t size) { return (size + padding - 1) / padding * padding; }

// Tokens (rows, heads, size), where `rows` counts those of all sequences.
struct Extent {
  int64_t rows, heads, size;
};

// The tensors of a problem become padded copies of A where they are not that already; finish() writes results back.
template <class A>
class PaddedTensors {
 public:
  explicit PaddedTensors(bool is_bf16) : is_bf16_(is_bf16) {}
  PaddedTensors(const PaddedTensors&) = delete;
  PaddedTensors& operator=(const PaddedTensors&) = delete;

  void read(Tokens<const A>& tokens, const Extent& extent) {
    if (!is_needed(tokens, extent)) return;
    const Tokens<A> copy = memory_for(extent);
    if (is_bf16_)
      copy_in(reinterpret_cast<const bf16*>(tokens.data), tokens.stride, copy, extent);
    else
      copy_in(tokens.data, tokens.stride, copy, extent);
    tokens = {copy.data, copy.stride};
  }
  void write(Tokens<A>& tokens, const Extent& extent) {
    if (!is_needed(tokens, extent)) return;
    results_.push_back({tokens, memory_for(extent), extent});
    tokens = results_.back().padded;
  }
  void finish() const {
    for (const Result& r : results_)
      if (is_bf16_)
        copy_out(r.padded, reinterpret_cast<bf16*>(r.given.data), r.given.stride, r.extent);
      else
        copy_out(r.padded, r.given.data, r.given.stride, r.extent);
  }

 private:
  struct Result {
    Tokens<A> given, padded;
    Extent extent;
  };

  template <class B>
  bool is_needed(Tokens<B> tokens, const Extent& extent) const {
    return tokens.data && (is_bf16_ || extent.size != padded(extent.size));
  }
  Tokens<A> memory_for(const Extent& extent) {
    const int64_t stride = extent.heads * padded(extent.size);
    memory_.emplace_back(Device::cpu, extent.rows * stride * int64_t{sizeof(A)});
    return {reinterpret_cast<A*>(memory_.back().data()), stride};
  }
  // body(row, head) for all of them
  template <class Body>
  static void each_head(const Extent& extent, const Body& body) {
    parallel_for(extent.rows, 1 + (1 << 14) / (extent.heads * extent.size), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        for (int64_t head = 0; head < extent.heads; ++head) body(row, head);
    });
  }
  template <class T>
  static void copy_in(const T* data, int64_t stride, Tokens<A> copy, const Extent& extent) {
    each_head(extent, [&](int64_t row, int64_t head) {
      const T* const from = data + row * stride + head * extent.size;
      A* const to = copy.data + row * copy.stride + head * padded(extent.size);
      for (int64_t c = 0; c < extent.size; ++c) to[c] = static_cast<A>(static_cast<Arithmetic<T>>(from[c]));
      std::fill(to + extent.size, to + padded(extent.size), A(0));
    });
  }
  template <class T>
  static void copy_out(Tokens<A> copy, T* data, int64_t stride, const Extent& extent) {
    each_head(extent, [&](int64_t row, int64_t head) {
      const A* const from = copy.data + row * copy.stride + head * padded(extent.size);
      T* const to = data + row * stride + head * extent.size;
      for (int64_t c = 0; c < extent.size; ++c) to[c] = static_cast<T>(static_cast<Arithmetic<T>>(from[c]));
    });
  }

  bool is_bf16_;
  std::deque<Buffer> memory_;
  std::vector<Result> results_;
};

// The problem with padded tensors, and what holds them.  Those of `outputs` are written by forward, and read otherwise.
template <class A>
struct PaddedProblem {
  Problem<A> problem;
  PaddedTensors<A> tensors;

  PaddedProblem(const AttentionProblem<A>& given, const AttentionWeighting& weighting, bool writes_output)
      : problem{given, weighting}, tensors(given.is_bf16) {
    Problem<A>& p = problem;
    AttentionGradients<A>& d = p.gradients;
    const int64_t queries = int64_t{p.batch} * p.queries, keys = int64_t{p.batch} * p.keys;
    const auto both = [&](Tokens<const A>& operand, Tokens<A>& gradient, const Extent& extent) {
      tensors.read(operand, extent), tensors.write(gradient, extent);
    };
    both(p.query, d.query, {queries, p.query_heads, p.head_size});
    both(p.key, d.key, {keys, p.key_heads, p.head_size});
    both(p.value, d.value, {keys, p.key_heads, p.value_size});
    both(p.slot_key, d.slot_key, {p.slots, p.key_heads, p.head_size});
    both(p.slot_value, d.slot_value, {p.slots, p.key_heads, p.value_size});
    both(p.relative_embedding, d.relative_embedding, {p.distances, 1, p.head_size});
    const Extent output = {queries, p.query_heads, p.value_size};
    tensors.read(p.output_gradient, output);
    Tokens<const A> kept = {p.output.data, p.output.stride};
    if (writes_output)
      tensors.write(p.output, output);
    else
      tensors.read(kept, output), p.output = {const_cast<A*>(kept.data), kept.stride};
    p.head_size = static_cast<int>(padded(p.head_size)), p.value_size = static_cast<int>(padded(p.value_size));
  }
};

// The memory of one task, laid out.
template <class A>
class TaskMemory {
 public:
  explicit TaskMemory(const Problem<A>& problem)
      : memory_(Device::cpu, lay_out(problem, nullptr) * int64_t{sizeof(A)}) {
    lay_out(problem, reinterpret_cast<A*>(memory_.data()));
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
    take(w.query_columns, p.head_size * query_block);
    take(w.gradient_columns, p.value_size * query_block);
    for (A** tile : {&w.scores, &w.score_gradients, &w.places}) take(*tile, key_block * query_block);
    take(w.slopes, key_block * query_block, p.soft_cap > 0);
    take(w.spare, key_block * query_block, p.span || statistics.sum_gradient || statistics.entropy_gradient);
    take(w.factors, (key_block + 8) * query_block, p.dropout.kept > 0);
    take(w.band, (key_block + query_block) * query_block, p.distances > 0);
    take(w.distance_row, key_block + query_block, p.relative_bias);
    take(w.output, query_block * p.value_size);
    for (A** row : {&w.spans, &w.span_gradients}) take(*row, query_block);
    for (A*& row : w.rows) take(row, query_block);
    return used;
  }

  Workspace<A> workspace_ = {};
  Buffer memory_;
  int64_t work_ = 0;
};

}  // namespace orrery::detail::attention
