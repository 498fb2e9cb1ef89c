// What a kernel is told, and what the kernels of one instruction set offer.
#pragma once

#include "engine/attend.h"

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
  RowStatistics<A> statistics = {};
  // Writes m_ij of a tile, (keys, width), whose first query has the row `row` of (batch, heads, queries); null without
  // dropout.
  void (*dropout_factors)(const Problem& problem, int64_t row, int64_t width, int64_t key, int64_t keys,
                          A* m) = nullptr;
};
template <class A>
void dropout_factors(const Problem<A>& problem, int64_t row, int64_t width, int64_t key, int64_t keys, A* m);

// Memory of one task; each part begins at a multiple of 64 bytes.
template <class A>
struct Workspace {
  A *query_columns, *gradient_columns;    // (head_size, query_block), (value_size, query_block)
  A *scores, *score_gradients, *factors;  // (key_block, query_block) each
  A* output;                              // (query_block, value_size)
  A* rows[7];                             // query_block each
};

struct Range {
  int64_t begin, end;
};

// A task is serial.  `block` numbers blocks of query_block queries.
template <class A>
struct Kernels {
  void (*forward)(const Problem<A>& problem, int64_t sequence, int64_t head, int64_t block,
                  const Workspace<A>& workspace);
  void (*statistics)(const Problem<A>& problem, int64_t sequence, int64_t head, int64_t block,
                     const Workspace<A>& workspace);
  // Adds what these queries, of all heads that read key_head, and these keys give one another.  `first`: instead of
  // adding to what stands in the gradients of these queries and keys, start from zero.
  void (*backward)(const Problem<A>& problem, int64_t sequence, int64_t key_head, Range queries, Range keys, bool first,
                   const Workspace<A>& workspace);
};

struct InstructionSet {
  const char* name;
  Kernels<float> f32;
  Kernels<double> f64;
};
extern const InstructionSet avx2, avx512;

}  // namespace orrery::detail::attend
