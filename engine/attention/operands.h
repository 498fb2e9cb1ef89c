// Conversion of tensors to kernel operands: head sizes padded to whole vectors, f32 sums for bf16
// gradients. Also the memory of a task.
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "engine/attention/problem.h"
#include "engine/system/parallel.h"
#include "engine/tensor/storage.h"

namespace orrery::detail::attention {

constexpr int64_t padded(int64_t size) { return (size + padding - 1) / padding * padding; }

// The shape (rows, heads, size) of tokens; `rows` counts the tokens of all sequences.
struct Extent {
  int64_t rows, heads, size;
};

// Padded copies of tensors whose head size requires them, and f32 sums (add_up) for bf16 gradients
// of any size; finish() writes results back.
template <class A>
class PaddedTensors {
 public:
  explicit PaddedTensors(bool is_bf16) : is_bf16_(is_bf16) {}
  PaddedTensors(const PaddedTensors&) = delete;
  PaddedTensors& operator=(const PaddedTensors&) = delete;

  void read(TensorView<const A>& tokens, const Extent& extent) {
    if (!tokens.data || !is_padded(extent)) return;
    const TensorView<A> copy = memory_for(extent, is_bf16_);
    if (is_bf16_)
      copy_all<bf16, bf16>({tokens, extent.size}, {copy, padded(extent.size)}, extent);
    else
      copy_all<A, A>({tokens, extent.size}, {copy, padded(extent.size)}, extent);
    tokens = {copy.data, copy.stride};
  }
  void write(TensorView<A>& tokens, const Extent& extent) {
    if (tokens.data && is_padded(extent)) replace(tokens, extent, is_bf16_);
  }
  void add_up(TensorView<A>& gradients, const Extent& extent) {
    if (gradients.data && (is_bf16_ || is_padded(extent))) replace(gradients, extent, false);
  }
  void finish() const {
    for (const Result& r : results_) {
      const Heads<const A> from = {{r.copy.data, r.copy.stride}, padded(r.extent.size)};
      const Heads<A> to = {r.original, r.extent.size};
      if (!is_bf16_)
        copy_all<A, A>(from, to, r.extent);
      else if (r.narrow)
        copy_all<bf16, bf16>(from, to, r.extent);
      else
        copy_all<A, bf16>(from, to, r.extent);
    }
  }

 private:
  template <class B>
  struct Heads {  // heads are `size` apart; elements may be bf16 behind A pointers
    TensorView<B> tokens;
    int64_t size;
  };
  struct Result {
    TensorView<A> original, copy;
    Extent extent;
    bool narrow;  // `copy` is bf16
  };

  static bool is_padded(const Extent& extent) { return extent.size != padded(extent.size); }
  TensorView<A> memory_for(const Extent& extent, bool narrow) {
    const int64_t stride = extent.heads * padded(extent.size);
    memory_.emplace_back(Device::cpu, extent.rows * stride * (narrow ? int64_t{sizeof(bf16)} : int64_t{sizeof(A)}));
    return {reinterpret_cast<A*>(memory_.back().data()), stride};
  }
  void replace(TensorView<A>& tokens, const Extent& extent, bool narrow) {
    results_.push_back({tokens, memory_for(extent, narrow), extent, narrow});
    tokens = results_.back().copy;
  }
  // Copies the elements of every head and fills the padding with zeros.
  template <class From, class To>
  static void copy_all(const Heads<const A>& from, const Heads<A>& to, const Extent& extent) {
    parallel_for(extent.rows, 1 + (1 << 14) / (extent.heads * extent.size), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        for (int64_t head = 0; head < extent.heads; ++head) {
          const From* const x =
              reinterpret_cast<const From*>(from.tokens.data) + row * from.tokens.stride + head * from.size;
          To* const y = reinterpret_cast<To*>(to.tokens.data) + row * to.tokens.stride + head * to.size;
          for (int64_t c = 0; c < extent.size; ++c) y[c] = static_cast<To>(static_cast<Arithmetic<From>>(x[c]));
          std::fill(y + extent.size, y + maximum(to.size, extent.size), To(0));
        }
    });
  }

  bool is_bf16_;
  std::deque<Buffer> memory_;
  std::vector<Result> results_;
};

// A problem with padded tensors and their memory. `output` is written by forward, read otherwise.
template <class A>
struct PaddedProblem {
  Problem<A> problem;
  PaddedTensors<A> tensors;

  PaddedProblem(const AttentionProblem<A>& given, const AttentionWeighting& weighting, bool writes_output,
                bool sums_of_tasks = false)
      : problem{given, weighting, sums_of_tasks}, tensors(given.is_bf16) {
    Problem<A>& p = problem;
    AttentionGradients<A>& d = p.gradients;
    const int64_t queries = int64_t{p.batch} * p.queries, keys = int64_t{p.batch} * p.keys;
    const auto both = [&](TensorView<const A>& operand, TensorView<A>& gradient, const Extent& extent) {
      tensors.read(operand, extent), tensors.add_up(gradient, extent);
    };
    const auto per_task = [&](TensorView<const A>& operand, TensorView<A>& gradient, const Extent& extent) {
      if (!sums_of_tasks) return both(operand, gradient, extent);
      tensors.read(operand, extent), tensors.write(gradient, extent);
    };
    per_task(p.query, d.query, {queries, p.query_heads, p.head_size});
    per_task(p.key, d.key, {keys, p.kv_heads, p.head_size});
    per_task(p.value, d.value, {keys, p.kv_heads, p.value_size});
    both(p.slot_key, d.slot_key, {p.slots, p.kv_heads, p.head_size});
    both(p.slot_value, d.slot_value, {p.slots, p.kv_heads, p.value_size});
    both(p.relative_embedding, d.relative_embedding, {p.distances, 1, p.head_size});
    const Extent output = {queries, p.query_heads, p.value_size};
    tensors.read(p.output_gradient, output);
    TensorView<const A> saved = {p.output.data, p.output.stride};
    if (writes_output)
      tensors.write(p.output, output);
    else
      tensors.read(saved, output), p.output = {const_cast<A*>(saved.data), saved.stride};
    p.head_size = static_cast<int>(padded(p.head_size)), p.value_size = static_cast<int>(padded(p.value_size));
  }
};

// The workspace of one task and its memory.
template <class A>
class TaskMemory {
 public:
  explicit TaskMemory(const Problem<A>& problem)
      : memory_(Device::cpu, lay_out(problem, nullptr) * int64_t{sizeof(A)}) {
    lay_out(problem, reinterpret_cast<A*>(memory_.data()));
    workspace_.multiply_adds = &multiply_adds_;
  }
  TaskMemory(const TaskMemory&) = delete;
  TaskMemory& operator=(const TaskMemory&) = delete;

  Workspace<A>& workspace() { return workspace_; }
  int64_t multiply_adds() const { return multiply_adds_; }

 private:
  int64_t lay_out(const Problem<A>& p, A* memory) {
    int64_t used = 0;  // all sizes are multiples of `padding` elements, so all arrays begin at multiples of 64 bytes
    const auto take = [&](A*& part, int64_t elements, bool needed = true) {
      part = memory && needed ? memory + used : nullptr;
      used += needed ? elements : 0;
    };
    Workspace<A>& w = workspace_;
    const StatisticsGradients<A>& statistics = p.statistics_gradients;
    take(w.query_columns, p.head_size * query_block);
    take(w.gradient_columns, p.value_size * query_block);
    for (A** tile : {&w.scores, &w.score_gradients, &w.ramp_values}) take(*tile, key_block * query_block);
    take(w.cap_derivatives, key_block * query_block, p.soft_cap > 0);
    take(w.scratch, key_block * query_block,
         p.span || statistics.sum_gradient || statistics.entropy_gradient || p.gradients.parameters);
    take(w.dropout_factors, (key_block + 8) * query_block, p.dropout.kept > 0);
    take(w.band, (key_block + query_block) * query_block, p.distances > 0);
    take(w.distance_row, key_block + query_block, p.relative_bias);
    take(w.output, query_block * p.value_size);
    take(w.query_rows, query_block * p.head_size, p.is_bf16);
    take(w.gradient_rows, query_block * p.value_size, p.is_bf16);
    take(w.key_rows, key_block * p.head_size, p.is_bf16);
    take(w.value_rows, key_block * p.value_size, p.is_bf16);
    take(w.distance_rows, (key_block + query_block) * p.head_size, p.relative_embedding.data);
    take(w.pairs, (key_block + query_block) * query_block / 2, p.is_bf16);
    const AttentionGradients<A>& gradients = p.gradients;
    take(w.query_sums, query_block * p.head_size, p.sums_of_tasks && gradients.query.data);
    take(w.key_sums, p.keys * p.head_size, p.sums_of_tasks && gradients.key.data);
    take(w.value_sums, p.keys * p.value_size, p.sums_of_tasks && gradients.value.data);
    for (A** row : {&w.spans, &w.span_gradients}) take(*row, query_block);
    for (A*& row : w.rows) take(row, query_block);
    return used;
  }

  Workspace<A> workspace_ = {};
  Buffer memory_;
  int64_t multiply_adds_ = 0;
};

}  // namespace orrery::detail::attention
