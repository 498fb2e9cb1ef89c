// What a kernel is told, and what the kernels of one instruction set offer.
#pragma once

#include "engine/attention/attention.h"

namespace orrery::detail::attend {

// A tile of scores: its lanes are queries, so that what belongs to a query (maximum, sum, log-sum) is a plain vector,
// and only q and do have to be transposed.  32 KB in f32.
inline constexpr int64_t query_block = 64, key_block = 128;

inline constexpr int64_t padding = 16;  // head sizes are multiples of it: one vector of the widest registers

template <class A>
struct Problem {
  AttendSizes sizes;  // head_size and value_size padded
  AttendOptions options;
  Weighting<A> weighting;
  AttendInputs<A> inputs = {};
  Tokens<A> output = {};  // forward
  A* log_sum = nullptr;
  const A* kept_log_sum = nullptr;  // backward and statistics
  Tokens<const A> kept_output = {}, output_gradient = {};
  AttendGradients<A> gradients = {};
  StatisticsGradients<A> statistics_gradients = {};
  RowStatistics<A> statistics = {};
  // Writes d_ij of a tile, (keys, width), whose first query has the row `row` of (batch, heads, queries), into `memory`
  // and returns where it begins there; null without dropout.
  const A* (*dropout_factors)(const Problem& problem, int64_t row, int64_t width, int64_t key, int64_t keys,
                              A* memory) = nullptr;
};
template <class A>
const A* dropout_factors(const Problem<A>& problem, int64_t row, int64_t width, int64_t key, int64_t keys, A* memory);

// Gradients to which the queries of many tasks add: each task has sums of its own.  Null where nobody wants them.
template <class A>
struct SharedSums {
  A *relative_embedding = nullptr, *relative_bias = nullptr,
    *span = nullptr;  // as in AttendGradients; span: per head only
};

// Memory of one task; each part begins at a multiple of 64 bytes.
template <class A>
struct Workspace {
  A *query_columns, *gradient_columns;  // (head_size, query_block), (value_size, query_block)
  A *scores, *score_gradients;          // tiles: (key_block, query_block)
  A *shares, *slopes, *spare;           // tiles: m, the derivative of the soft cap, what comes in between
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

// Queries that meet keys in backward, in one sequence and for all query heads that read one key head.
struct TilePair {
  int64_t sequence, key_head;
  Range queries, keys;
  bool slots;                      // the keys are persistent slots
  bool clear_queries, clear_keys;  // start from zero instead of adding to what stands in their gradients
};

// A task is serial.  `block` numbers blocks of query_block queries.
template <class A>
struct Kernels {
  void (*forward)(const Problem<A>& problem, int64_t sequence, int64_t head, int64_t block,
                  const Workspace<A>& workspace);
  void (*statistics)(const Problem<A>& problem, int64_t sequence, int64_t head, int64_t block,
                     const Workspace<A>& workspace);
  void (*backward)(const Problem<A>& problem, const TilePair& pair, const Workspace<A>& workspace);
};

struct InstructionSet {
  const char* name;
  Kernels<float> f32;
  Kernels<double> f64;
};
extern const InstructionSet avx2, avx512;

}  // namespace orrery::detail::attend
