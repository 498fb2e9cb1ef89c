// The arguments of the attention kernels, and the kernels of one instruction set.
#pragma once

#include "engine/attention/attention.h"
#include "engine/attention_formula/formula.h"

namespace orrery::detail::attention {

// The size of a tile of scores, 32 KB in f32. Its lanes are queries, so that the values of queries
// (maximum, sum, log-sum) are plain vectors, and only queries and output gradients are transposed.
inline constexpr int64_t query_block = 64, key_block = 128;

inline constexpr int64_t padding = 16;  // elements, one AVX-512 vector of f32; head sizes are padded to multiples of it

// A problem with padded head sizes. Inputs and output are in A, or in bf16 if `is_bf16`. Gradients
// are sums in A over tasks (tasks.h). With `sums_of_tasks` each task rounds its dq, dk, dv to bf16.
template <class A>
struct Problem : AttentionProblem<A> {
  AttentionWeighting weighting;
  bool sums_of_tasks = false;
  bool softmax() const { return weighting.softmax(); }
};

// Writes the dropout factors d_ij of a tile (keys, width) into `memory` and returns a pointer to
// the first. `row` is the index of the tile's first query in (batch, heads, queries).
template <class A>
const A* dropout_factors(const Problem<A>& p, int64_t row, int64_t width, int64_t key, int64_t keys, A* memory);

// Sums of gradients that many tasks add to: each chunk of tasks has its own. Null: not computed.
struct SharedSums {
  double *relative_embedding = nullptr, *relative_bias = nullptr, *span = nullptr, *parameters = nullptr;
};

// The scratch memory of one task; each array begins at a multiple of 64 bytes.
template <class A>
struct Workspace {
  A *query_columns, *gradient_columns;  // (head_size, query_block), (value_size, query_block)
  // bf16 only: rows and weights in the layout that the products read (tiles.h)
  A *query_rows, *gradient_rows;               // (query_block, head_size), (query_block, value_size)
  A *key_rows, *value_rows;                    // (key_block, size)
  A* pairs;                                    // a left operand: half of (key_block + query_block, query_block)
  A* distance_rows;                            // p, in bf16, or a tile's dp: (key_block + query_block, head_size)
  A *query_sums, *key_sums, *value_sums;       // the task's sums or null: (query_block, head_size), (keys, size)
  A *scores, *score_gradients;                 // tiles: (key_block, query_block)
  A *ramp_values, *cap_derivatives, *scratch;  // tiles: r, derivative of the soft cap, scratch
  A* dropout_factors;                          // a tile with room for 8 more keys
  A *band, *distance_row;                      // (key_block + query_block, query_block); (key_block + query_block)
  A* output;                                   // (query_block, value_size)
  A *spans, *span_gradients;                   // query_block elements each; each of `rows` too
  A* rows[8];                                  // named by BlockSoftmax, BackwardBlock or BlockSums of the kernel
  SharedSums sums;
  int64_t* multiply_adds;  // those done so far
};

struct Range {
  int64_t begin, end;
};

// The queries and keys of one call of backward: one sequence, all query heads of one key head.
struct BackwardCall {
  int64_t sequence = 0, kv_head = 0;
  Range queries = {}, keys = {};
  bool slots = false;                              // the keys are persistent slots
  bool clear_queries = false, clear_keys = false;  // zero the gradients first instead of adding to them
};

// Kernels for one dtype. A task runs on one thread; `block` counts blocks of query_block queries.
template <class A>
struct Kernels {
  using OfBlock = void(const Problem<A>& problem, int64_t sequence, int64_t head, int64_t block, const Workspace<A>&);
  OfBlock *forward, *statistics;
  void (*backward)(const Problem<A>& problem, const BackwardCall& call, const Workspace<A>& workspace);
};

struct InstructionSet {
  const char* name;
  Kernels<float> f32;
  Kernels<double> f64;
  Kernels<float> bf16;
};
extern const InstructionSet avx2, avx512;
extern const Kernels<float> bf16_pairs;  // kernels_avx512_bf16.cpp

}  // namespace orrery::detail::attention
