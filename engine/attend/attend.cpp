// Checks, and which task runs when.  The arithmetic is in kernels_*.cpp.
#include "engine/attend.h"

#include <atomic>
#include <cstring>

#include "engine/attend/operands.h"
#include "engine/check.h"
#include "engine/version.h"

namespace orrery {
namespace {

using namespace detail::attend;

// ---- instruction sets

std::atomic<const InstructionSet*>& chosen() {
  static std::atomic<const InstructionSet*> set = processor_has_avx512() ? &avx512 : &avx2;
  return set;
}

template <class A>
const Kernels<A>& kernels() {
  if constexpr (std::is_same_v<A, float>)
    return chosen().load()->f32;
  else
    return chosen().load()->f64;
}

// ---- checks

void check_sizes(const AttendSizes& s) {
  check(s.batch >= 0 && s.queries >= 0 && s.keys >= 0, "attend: batch (", s.batch, "), queries (", s.queries,
        ") and keys (", s.keys, ") must not be negative");
  check(std::max(s.queries, s.keys) < int64_t{1} << 29, "attend: ", std::max(s.queries, s.keys),
        " tokens given; at most 2^29 - 1 are possible");
  check(s.query_heads >= 1 && s.key_heads >= 1 && s.query_heads % s.key_heads == 0, "attend: query heads (",
        s.query_heads, ") must be a multiple of key heads (", s.key_heads, ")");
  check(s.head_size >= 1 && s.value_size >= 1, "attend: head size (", s.head_size, ") and value size (", s.value_size,
        ") must be at least 1");
}

void check_options(const AttendSizes& s, const AttendOptions& o) {
  check(o.window >= 0, "attend: window is ", o.window, "; a number of keys is needed, or 0 for none");
  check(std::abs(o.query_offset) < int64_t{1} << 29, "attend: query offset ", o.query_offset, " is beyond 2^29");
  check(!o.query_documents == !o.key_documents, "attend: documents of ", o.query_documents ? "queries" : "keys",
        " are given without those of ", o.query_documents ? "keys" : "queries", "; both or none are needed");
  check(o.dropout >= 0 && o.dropout < 1, "attend: dropout is ", o.dropout, "; a share in [0, 1) is needed");
  for (int64_t b = 0; o.key_lengths && b < s.batch; ++b)
    check(o.key_lengths[b] >= 0 && o.key_lengths[b] <= s.keys, "attend: length ", o.key_lengths[b], " of sequence ", b,
          " is outside [0, ", s.keys, "], the number of keys");
}

template <class T>
void check_stride(const char* what, Tokens<T> tokens, const Extent& extent) {
  check(tokens.stride >= extent.heads * extent.size, "attend: ", what, " have a stride of ", tokens.stride,
        "; a token of ", extent.heads, " heads of ", extent.size, " has ", extent.heads * extent.size, " elements");
}

// ---- what all three passes begin with

struct Extents {
  Extent query, key, value, output;
};

template <class T>
Extents checked(const AttendSizes& s, const AttendOptions& options, const AttendInputs<T>& inputs) {
  check_sizes(s);
  check_options(s, options);
  const int64_t queries = s.batch * s.queries, keys = s.batch * s.keys;
  const Extents extents = {{queries, s.query_heads, s.head_size},
                           {keys, s.key_heads, s.head_size},
                           {keys, s.key_heads, s.value_size},
                           {queries, s.query_heads, s.value_size}};
  check_stride("queries", inputs.query, extents.query);
  check_stride("keys", inputs.key, extents.key);
  check_stride("values", inputs.value, extents.value);
  return extents;
}

template <class T>
struct Setting {
  using A = Arithmetic<T>;

  Setting(const AttendSizes& sizes, const AttendOptions& options, const Weighting<A>& weighting,
          const AttendInputs<T>& inputs)
      : extents(checked(sizes, options, inputs)),
        query(inputs.query, extents.query),
        key(inputs.key, extents.key),
        value(inputs.value, extents.value),
        problem{.sizes = sizes, .options = options, .weighting = weighting} {
    problem.sizes.head_size = padded(sizes.head_size);
    problem.sizes.value_size = padded(sizes.value_size);
    problem.inputs = {query.tokens(), key.tokens(), value.tokens()};
    if (options.dropout > 0) problem.dropout_factors = dropout_factors<A>;
  }

  Extents extents;
  Source<T> query, key, value;
  Problem<A> problem;
};

// ---- tasks

constexpr int64_t piece_work = 1 << 21;  // multiplications and additions, about 20 us: smaller tasks are joined
constexpr int64_t group_block = 128;     // tokens; groups of backward are multiples of it
constexpr int64_t tasks_of_round = 16;   // in backward: groups are made until there are so many

int64_t blocks_of(int64_t tokens, int64_t block) { return (tokens + block - 1) / block; }

// task(i, workspace) for i in [0, n), each of about `work` operations.
template <class A, class Task>
void each_task(const AttendSizes& sizes, int64_t n, double work, const Task& task) {
  const auto grain = static_cast<int64_t>(static_cast<double>(piece_work) / (work + 1));
  parallel_for(n, std::max<int64_t>(grain, 1), [&](int64_t begin, int64_t end) {
    const TaskMemory<A> memory(sizes);
    for (int64_t i = begin; i < end; ++i) task(i, memory.workspace());
  });
}

// A task for each block of queries of each head.  Last blocks come first: under a causal mask they are the longest.
template <class A, class Task>
void each_block(const AttendSizes& s, const Task& task) {
  const int64_t heads = s.batch * s.query_heads, blocks = blocks_of(s.queries, query_block);
  const double work = 2. * std::min(query_block, s.queries) * s.keys * (s.head_size + s.value_size);
  each_task<A>(s, heads * blocks, work, [&](int64_t i, const Workspace<A>& workspace) {
    const int64_t head = i % heads;
    task(head / s.query_heads, head % s.query_heads, blocks - 1 - i / heads, workspace);
  });
}

// Groups of queries meet groups of keys in rounds.  Within a round no two tasks share a group, so every gradient is
// added up in the order of the rounds, without atomics and with the same bits for any number of threads.  The number of
// groups depends on the sizes only; with enough sequences and heads it is one, and there is one round.
template <class A>
void backward_rounds(const Problem<A>& p) {
  const AttendSizes& s = p.sizes;
  const int64_t heads = s.batch * s.key_heads;
  const int64_t query_blocks = blocks_of(s.queries, group_block), key_blocks = blocks_of(s.keys, group_block);
  const int64_t most = std::max<int64_t>(std::min(query_blocks, key_blocks), 1);
  const int64_t groups = std::clamp<int64_t>(blocks_of(tasks_of_round, std::max<int64_t>(heads, 1)), 1, most);
  const auto group = [&](int64_t g, int64_t blocks, int64_t tokens) {
    return Range{std::min(tokens, blocks * g / groups * group_block),
                 std::min(tokens, blocks * (g + 1) / groups * group_block)};
  };
  const double pairs = static_cast<double>(s.queries) * s.keys / (groups * groups) * (s.query_heads / s.key_heads);
  for (int64_t round = 0; round < groups; ++round)
    each_task<A>(
        s, heads * groups, pairs * 2 * (3 * s.head_size + 2 * s.value_size), [&](int64_t i, const Workspace<A>& w) {
          const int64_t head = i % heads, key_group = i / heads, query_group = (round - key_group + groups) % groups;
          kernels<A>().backward(p, head / s.key_heads, head % s.key_heads, group(query_group, query_blocks, s.queries),
                                group(key_group, key_blocks, s.keys), round == 0, w);
        });
}

}  // namespace

const char* attend_instruction_set() { return chosen().load()->name; }

void use_attend_instruction_set(const char* name) {
  const bool wide = std::strcmp(name, avx512.name) == 0;
  check(wide || std::strcmp(name, avx2.name) == 0, "attend: no instruction set '", name,
        "'; there are avx2 and avx512");
  check(!wide || processor_has_avx512(), "attend: this processor lacks avx512; use avx2");
  chosen() = wide ? &avx512 : &avx2;
}

template <class T>
void attend_forward(const AttendSizes& sizes, const AttendOptions& options, const Weighting<Arithmetic<T>>& weighting,
                    const AttendInputs<T>& inputs, Tokens<T> output, Arithmetic<T>* log_sum) {
  using A = Arithmetic<T>;
  Setting<T> setting(sizes, options, weighting, inputs);
  check_stride("outputs", output, setting.extents.output);
  const Destination<T> result(output, setting.extents.output);
  setting.problem.output = result.tokens();
  setting.problem.log_sum = log_sum;
  each_block<A>(setting.problem.sizes,
                [&](int64_t sequence, int64_t head, int64_t block, const Workspace<A>& workspace) {
                  kernels<A>().forward(setting.problem, sequence, head, block, workspace);
                });
  result.finish();
}

template <class T>
void attend_backward(const AttendSizes& sizes, const AttendOptions& options, const Weighting<Arithmetic<T>>& weighting,
                     const AttendInputs<T>& inputs, Tokens<const T> output, const Arithmetic<T>* log_sum,
                     Tokens<const T> output_gradient, const AttendGradients<T>& gradients) {
  Setting<T> setting(sizes, options, weighting, inputs);
  const Extents& extents = setting.extents;
  check_stride("output gradients", output_gradient, extents.output);
  if (gradients.query.data) check_stride("query gradients", gradients.query, extents.query);
  if (gradients.key.data) check_stride("key gradients", gradients.key, extents.key);
  if (gradients.value.data) check_stride("value gradients", gradients.value, extents.value);
  if (weighting.values)
    output = {};
  else
    check_stride("outputs", output, extents.output);

  const Source<T> kept(output, extents.output), incoming(output_gradient, extents.output);
  const Destination<T> query(gradients.query, extents.query), key(gradients.key, extents.key);
  const Destination<T> value(gradients.value, extents.value);
  setting.problem.kept_output = kept.tokens();
  setting.problem.kept_log_sum = log_sum;
  setting.problem.output_gradient = incoming.tokens();
  setting.problem.gradients = {query.tokens(), key.tokens(), value.tokens()};
  backward_rounds(setting.problem);
  query.finish(), key.finish(), value.finish();
}

template <class T>
void attend_statistics(const AttendSizes& sizes, const AttendOptions& options,
                       const Weighting<Arithmetic<T>>& weighting, const AttendInputs<T>& inputs,
                       const Arithmetic<T>* log_sum, const RowStatistics<Arithmetic<T>>& statistics) {
  using A = Arithmetic<T>;
  Setting<T> setting(sizes, options, weighting, inputs);
  setting.problem.kept_log_sum = log_sum;
  setting.problem.statistics = statistics;
  each_block<A>(setting.problem.sizes,
                [&](int64_t sequence, int64_t head, int64_t block, const Workspace<A>& workspace) {
                  kernels<A>().statistics(setting.problem, sequence, head, block, workspace);
                });
}

template void attend_forward(const AttendSizes&, const AttendOptions&, const Weighting<float>&,
                             const AttendInputs<float>&, Tokens<float>, float*);
template void attend_forward(const AttendSizes&, const AttendOptions&, const Weighting<double>&,
                             const AttendInputs<double>&, Tokens<double>, double*);
template void attend_forward(const AttendSizes&, const AttendOptions&, const Weighting<float>&,
                             const AttendInputs<bf16>&, Tokens<bf16>, float*);
template void attend_backward(const AttendSizes&, const AttendOptions&, const Weighting<float>&,
                              const AttendInputs<float>&, Tokens<const float>, const float*, Tokens<const float>,
                              const AttendGradients<float>&);
template void attend_backward(const AttendSizes&, const AttendOptions&, const Weighting<double>&,
                              const AttendInputs<double>&, Tokens<const double>, const double*, Tokens<const double>,
                              const AttendGradients<double>&);
template void attend_backward(const AttendSizes&, const AttendOptions&, const Weighting<float>&,
                              const AttendInputs<bf16>&, Tokens<const bf16>, const float*, Tokens<const bf16>,
                              const AttendGradients<bf16>&);
template void attend_statistics(const AttendSizes&, const AttendOptions&, const Weighting<float>&,
                                const AttendInputs<float>&, const float*, const RowStatistics<float>&);
template void attend_statistics(const AttendSizes&, const AttendOptions&, const Weighting<double>&,
                                const AttendInputs<double>&, const double*, const RowStatistics<double>&);
template void attend_statistics(const AttendSizes&, const AttendOptions&, const Weighting<float>&,
                                const AttendInputs<bf16>&, const float*, const RowStatistics<float>&);

}  // namespace orrery
