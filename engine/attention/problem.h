// What a kernel is told, and what the kernels of one instruction set offer.
#pragma once

#include "engine/attention/attention.h"
#include "engine/attention_formula/formula.h"

namespace orrery::detail::attention {

// A tile of scores: its lanes are queries, so that what belongs to a query (maximum, sum, log-sum) is a plain vector,
// and only q and do have to be transposed.  32 KB in f32.
inline constexpr int64_t query_block = 64, key_block = 128;

inline constexpr int64_t padding = 16;  // head sizes are multiples of it: one vector of the widest registers

// Head sizes padded.  Tensors that are read, and the output, are of A, or of bf16 if the problem is.  Gradients are
// sums of A, to which tasks add; or of bf16 as well, if each task has all that is added up to its own.
template <class A>
struct Problem : AttentionProblem<A> {
  AttentionWeighting weighting;
  bool sums_of_tasks = false;
  bool softmax() const { return weighting.softmax(); }
};

// Writes d_ij of a tile, (keys, width), whose first query has the row `row` of (batch, heads, queries), into `memory`
// and returns where it begins there.
template <class A>
const A* dropout_factors(const Problem<A>& p, int64_t row, int64_t width, int64_t key, int64_t keys, A* memory);

// Gradients to which the queries of many tasks add: each task has sums of its own.  Null where none are wanted.
template <class A>
struct SharedSums {
  A *relative_embedding = nullptr, *relative_bias = nullptr, *span = nullptr;  // span: per head only
};

// Memory of one task; each part begins at a multiple of 64 bytes.
template <class A>
struct Workspace {
  A *query_columns, *gradient_columns;  // (head_size, query_block), (value_size, query_block)
  // Of bf16: rows and weights in the form in which they are multiplied (tiles.h).
  A *query_rows, *gradient_rows;              // (query_block, head_size), (query_block, value_size)
  A *key_rows, *value_rows, *distance_rows;   // (key_block, size), the last (key_block + query_block, head_size)
  A* factor;                                  // half of (key_block + query_block, query_block)
  A *query_sums, *key_sums, *value_sums;      // of its own, or null: (query_block, head_size), (keys, size)
  A *scores, *score_gradients;          // tiles: (key_block, query_block)
  A *places, *slopes, *spare;           // tiles: r, the derivative of the soft cap, what comes in between
  A* factors;                           // of dropout; a tile with room for 8 more keys
  A *band, *distance_row;               // (key_block + query_block, query_block); as many rows of one element
  A* output;                            // (query_block, value_size)
  A *spans, *span_gradients;            // query_block each, like the following
  A* rows[8];
  SharedSums<A> sums;
  int64_t* work;  // multiplications with additions so far
};

struct Range {
  int64_t begin, end;
};

// Queries and keys of backward, in one sequence and for all query heads that read one key head.
struct TilePair {
  int64_t sequence, key_head;
  Range queries, keys;
  bool slots;                      // the keys are persistent slots
  bool clear_queries, clear_keys;  // start from zero instead of adding to what stands in their gradients
};

// A task is serial.  `block` numbers blocks of query_block queries.
template <class A>
struct Kernels {
  using OfBlock = void(const Problem<A>& problem, int64_t sequence, int64_t head, int64_t block, const Workspace<A>&);
  OfBlock *forward, *statistics;
  void (*backward)(const Problem<A>& problem, const TilePair& pair, const Workspace<A>& workspace);
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
