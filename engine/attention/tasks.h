// Splits attention into tasks, each computed by one thread. The split depends on the sizes alone,
// and only the count of multiply-adds is atomic: results are bit-identical for any thread count.
// Context: the keys of a sequence. Slots: learned keys and values, shared by all sequences.
#pragma once

#include <atomic>
#include <vector>

#include "engine/attention/operands.h"

namespace orrery::detail::attention {

inline constexpr int64_t chunk_flops = 1 << 21;  // 2 per multiply-add, about 20 us; smaller tasks are joined
inline constexpr int64_t group_block = 128;      // tokens; groups of backward are multiples of it
inline constexpr int64_t tasks_of_round = 16;    // backward forms groups until a round has this many tasks
inline constexpr int64_t max_sums = 16;          // at most this many chunks of tasks have separate sums

inline int64_t blocks_of(int64_t tokens, int64_t block) { return (tokens + block - 1) / block; }

// Gradients that many tasks add to. Each chunk of a loop over tasks has its own sums for all rounds,
// in f64, since f32 loses digits over many tiles; write() adds them in the order of the chunks.
template <class A>
class ChunkSums {
 public:
  explicit ChunkSums(const Problem<A>& p)
      : embedding_(p.gradients.relative_embedding.data ? int64_t{p.distances} * p.head_size : 0),
        bias_(p.gradients.relative_bias ? int64_t{p.query_heads} * p.distances : 0),
        span_(p.gradients.span && !p.span_per_query ? p.query_heads : 0),
        parameters_(p.gradients.parameters ? int64_t{p.query_heads} * p.parameter_count : 0) {}

  bool is_needed() const { return size() > 0; }
  void reserve(int64_t chunks) {
    while (static_cast<int64_t>(chunks_.size()) < chunks) chunks_.emplace_back(size());
  }
  SharedSums of(int64_t chunk) {
    if (!is_needed()) return {};
    double* const first = chunks_[static_cast<size_t>(chunk)].data();
    return {embedding_ ? first : nullptr, bias_ ? first + embedding_ : nullptr,
            span_ ? first + embedding_ + bias_ : nullptr, parameters_ ? first + embedding_ + bias_ + span_ : nullptr};
  }
  void write(const AttentionGradients<A>& gradients, int64_t row) const {  // row: row size of relative_embedding
    write_part(0, embedding_, gradients.relative_embedding.data, row, gradients.relative_embedding.stride);
    write_part(embedding_, bias_, gradients.relative_bias, 1, 1);
    write_part(embedding_ + bias_, span_, gradients.span, 1, 1);
    write_part(embedding_ + bias_ + span_, parameters_, gradients.parameters, 1, 1);
  }

 private:
  size_t size() const { return static_cast<size_t>(embedding_ + bias_ + span_ + parameters_); }
  void write_part(int64_t first, int64_t n, A* to, int64_t row, int64_t stride) const {
    parallel_for(n, 1 << 14, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        double total = 0;
        for (const std::vector<double>& chunk : chunks_) total += chunk[static_cast<size_t>(first + i)];
        to[i / row * stride + i % row] = static_cast<A>(total);
      }
    });
  }

  int64_t embedding_, bias_, span_, parameters_;  // elements
  std::vector<std::vector<double>> chunks_;
};

// Runs task(i, workspace) for i in [0, n), each of about `flops`. Returns the multiply-adds done.
template <class A, class Task>
int64_t each_task(const Problem<A>& problem, int64_t n, double flops, ChunkSums<A>* sums, const Task& task) {
  int64_t grain = maximum(1, static_cast<int64_t>(static_cast<double>(chunk_flops) / (flops + 1)));
  if (sums && sums->is_needed()) {
    grain = maximum(grain, blocks_of(n, max_sums));
    sums->reserve(blocks_of(n, grain));
  }
  std::atomic<int64_t> done = 0;
  parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    TaskMemory<A> memory(problem);
    if (sums) memory.workspace().sums = sums->of(begin / grain);
    for (int64_t i = begin; i < end; ++i) task(i, memory.workspace());
    done += memory.multiply_adds();
  });
  return done;
}

// Runs a task per query block and head; last blocks first, since causal masks make them longest.
template <class A, class Task>
int64_t each_block(const Problem<A>& p, const Task& task) {
  const int64_t heads = int64_t{p.batch} * p.query_heads, blocks = blocks_of(p.queries, query_block);
  const double keys = static_cast<double>(p.keys) + p.slots;
  const double flops = 2. * minimum(query_block, p.queries) * keys * (p.head_size + p.value_size);
  return each_task<A>(p, heads * blocks, flops, nullptr, [&](int64_t i, const Workspace<A>& workspace) {
    const int64_t head = i % heads;
    task(head / p.query_heads, head % p.query_heads, blocks - 1 - i / heads, workspace);
  });
}

// Rounds that pair each group of queries with each group of keys. In a round no two tasks share a
// group, so gradients are added in the order of the rounds: without atomics, and bit-identical for
// any number of threads. The number of groups depends on the sizes only. It is one, in one round,
// if there are enough sequences and heads.
struct Rounds {
  int64_t heads;                     // independent items: pairs of a sequence and a key head, or key heads
  int64_t query_blocks, key_blocks;  // number of blocks, to be grouped
  int64_t groups;

  Rounds(int64_t heads, int64_t query_blocks, int64_t key_blocks)
      : heads(heads), query_blocks(query_blocks), key_blocks(key_blocks) {
    const int64_t max_groups = maximum(minimum(query_blocks, key_blocks), 1);
    groups = maximum(1, minimum(blocks_of(tasks_of_round, maximum(heads, 1)), max_groups));
  }
  Range group(int64_t g, int64_t blocks) const { return {blocks * g / groups, blocks * (g + 1) / groups}; }

  // Calls body(item, query blocks, key blocks, round, workspace). pairs: of query and key per item.
  template <class A, class Body>
  int64_t run(const Problem<A>& p, double pairs, ChunkSums<A>& sums, const Body& body) const {
    int64_t done = 0;
    const double flops = pairs / static_cast<double>(groups * groups) * 2 * (3 * p.head_size + 2 * p.value_size);
    for (int64_t round = 0; round < groups; ++round)
      done += each_task<A>(p, heads * groups, flops, &sums, [&](int64_t i, const Workspace<A>& w) {
        const int64_t key_group = i / heads, query_group = (round - key_group + groups) % groups;
        body(i % heads, group(query_group, query_blocks), group(key_group, key_blocks), round, w);
      });
    return done;
  }
};

inline Range tokens_of(Range blocks, int64_t tokens) {
  return {minimum(tokens, blocks.begin * group_block), minimum(tokens, blocks.end * group_block)};
}

template <class A>
Rounds rounds_of_context(const AttentionProblem<A>& p) {
  return {int64_t{p.batch} * p.kv_heads, blocks_of(p.queries, group_block), blocks_of(p.keys, group_block)};
}
// Returns true if no two tasks add to one gradient of bf16 tokens, so that each can round its own.
template <class A>
bool can_round_in_tasks(const AttentionProblem<A>& p) {
  return p.is_bf16 && p.slots == 0 && rounds_of_context(p).groups == 1;
}

// Computes the gradients of queries and of the context. Returns the multiply-adds.
template <class A>
int64_t backward_of_context(const Problem<A>& p, const Kernels<A>& kernels, ChunkSums<A>& sums) {
  const Rounds rounds = rounds_of_context<A>(p);
  const double pairs = static_cast<double>(p.queries) * p.keys * (p.query_heads / p.kv_heads);
  return rounds.run(p, pairs, sums, [&](int64_t head, Range queries, Range keys, int64_t round, const Workspace<A>& w) {
    const bool first = round == 0;
    kernels.backward(p,
                     {.sequence = head / p.kv_heads,
                      .kv_head = head % p.kv_heads,
                      .queries = tokens_of(queries, p.queries),
                      .keys = tokens_of(keys, p.keys),
                      .clear_queries = first,
                      .clear_keys = first},
                     w);
  });
}

// Computes the gradients of slots, adds to those of queries, which backward_of_context has written,
// and returns the multiply-adds. The query blocks of all sequences form one list.
template <class A>
int64_t backward_of_slots(const Problem<A>& p, const Kernels<A>& kernels, ChunkSums<A>& sums) {
  const int64_t blocks = blocks_of(p.queries, group_block);
  const Rounds rounds(p.kv_heads, p.batch * blocks, blocks_of(p.slots, group_block));
  const double pairs = static_cast<double>(p.batch) * p.queries * p.slots * (p.query_heads / p.kv_heads);
  return rounds.run(p, pairs, sums,
                    [&](int64_t head, Range queries, Range slots, int64_t round, const Workspace<A>& w) {
                      BackwardCall call = {
                          .kv_head = head, .keys = tokens_of(slots, p.slots), .slots = true, .clear_keys = true};
                      if (round == 0) kernels.backward(p, call, w);
                      call.clear_keys = false;
                      for (int64_t block = queries.begin; block < queries.end;) {
                        call.sequence = block / blocks;
                        const int64_t before = call.sequence * blocks, end = minimum(queries.end, before + blocks);
                        call.queries = tokens_of({block - before, end - before}, p.queries);
                        kernels.backward(p, call, w);
                        block = end;
                      }
                    });
}

}  // namespace orrery::detail::attention
