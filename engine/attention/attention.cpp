// The functions of attend.h: operands are checked and padded, then tasks run.  The arithmetic is in kernels_*.cpp.
#include "engine/attention/attention.h"

#include <atomic>
#include <cstring>

#include "engine/attention/checks.h"
#include "engine/attention/tasks.h"
#include "engine/base/version.h"

namespace orrery {
namespace {

using namespace detail::attend;

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

template <class T>
struct Setting {
  using A = Arithmetic<T>;

  Setting(const AttendSizes& sizes, const AttendOptions& options, const Weighting<A>& weighting,
          const AttendInputs<T>& inputs)
      : extents(checked(sizes, options, inputs)),
        query(inputs.query, extents.query),
        key(inputs.key, extents.key),
        value(inputs.value, extents.value),
        slot_key(inputs.slot_key, extents.slot_key),
        slot_value(inputs.slot_value, extents.slot_value),
        relative_embedding(inputs.relative_embedding, extents.relative_embedding),
        problem{.sizes = sizes, .options = options, .weighting = weighting} {
    problem.sizes.head_size = padded(sizes.head_size);
    problem.sizes.value_size = padded(sizes.value_size);
    problem.inputs = {.query = query.tokens(),
                      .key = key.tokens(),
                      .value = value.tokens(),
                      .slot_key = slot_key.tokens(),
                      .slot_value = slot_value.tokens(),
                      .relative_embedding = relative_embedding.tokens(),
                      .relative_bias = inputs.relative_bias,
                      .span = inputs.span};
    if (options.dropout > 0) problem.dropout_factors = dropout_factors<A>;
  }
  static Extents checked(const AttendSizes& sizes, const AttendOptions& options, const AttendInputs<T>& inputs) {
    check_inputs(sizes, options, inputs);
    check_numbers(sizes, options, inputs);
    return extents_of(sizes);
  }

  Extents extents;
  Source<T> query, key, value, slot_key, slot_value, relative_embedding;
  Problem<A> problem;
};

// Where the gradients go: finish() writes back those that were computed in padded memory.
template <class T>
struct Results {
  using A = Arithmetic<T>;

  Results(const AttendGradients<T>& gradients, const Extents& extents)
      : query(gradients.query, extents.query),
        key(gradients.key, extents.key),
        value(gradients.value, extents.value),
        slot_key(gradients.slot_key, extents.slot_key),
        slot_value(gradients.slot_value, extents.slot_value),
        relative_embedding(gradients.relative_embedding, extents.relative_embedding),
        padded{.query = query.tokens(),
               .key = key.tokens(),
               .value = value.tokens(),
               .slot_key = slot_key.tokens(),
               .slot_value = slot_value.tokens(),
               .relative_embedding = relative_embedding.tokens(),
               .relative_bias = gradients.relative_bias,
               .span = gradients.span} {}
  void finish() const {
    for (const Destination<T>* result : {&query, &key, &value, &slot_key, &slot_value, &relative_embedding})
      result->finish();
  }

  Destination<T> query, key, value, slot_key, slot_value, relative_embedding;
  AttendGradients<A> padded;
};

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
void check_attend(const AttendSizes& sizes, const AttendOptions& options, const AttendInputs<T>& inputs) {
  check_inputs(sizes, options, inputs);
  check_unread_numbers(sizes, options);
}

template <class T>
int64_t attend_forward(const AttendSizes& sizes, const AttendOptions& options,
                       const Weighting<Arithmetic<T>>& weighting, const AttendInputs<T>& inputs, Tokens<T> output,
                       Arithmetic<T>* log_sum) {
  using A = Arithmetic<T>;
  Setting<T> setting(sizes, options, weighting, inputs);
  check_stride("outputs", output, setting.extents.output);
  const Destination<T> result(output, setting.extents.output);
  setting.problem.output = result.tokens();
  setting.problem.log_sum = log_sum;
  const int64_t work =
      each_block<A>(setting.problem, [&](int64_t sequence, int64_t head, int64_t block, const Workspace<A>& workspace) {
        kernels<A>().forward(setting.problem, sequence, head, block, workspace);
      });
  result.finish();
  return work;
}

template <class T>
int64_t attend_backward(const AttendSizes& sizes, const AttendOptions& options,
                        const Weighting<Arithmetic<T>>& weighting, const AttendInputs<T>& inputs,
                        Tokens<const T> output, const Arithmetic<T>* log_sum, Tokens<const T> output_gradient,
                        const AttendGradients<T>& gradients, const StatisticsGradients<Arithmetic<T>>& statistics) {
  using A = Arithmetic<T>;
  Setting<T> setting(sizes, options, weighting, inputs);
  const Extents& extents = setting.extents;
  check_stride("output gradients", output_gradient, extents.output);
  check_gradients(sizes, inputs, gradients, statistics);
  if (weighting.values)
    output = {};
  else
    check_stride("outputs", output, extents.output);

  const Source<T> kept(output, extents.output), incoming(output_gradient, extents.output);
  const Results<T> results(gradients, extents);
  Problem<A>& problem = setting.problem;
  problem.kept_output = kept.tokens();
  problem.kept_log_sum = log_sum;
  problem.output_gradient = incoming.tokens();
  problem.gradients = results.padded;
  problem.statistics_gradients = statistics;
  PieceSums<A> sums(problem);
  int64_t work = backward_of_context(problem, kernels<A>(), sums);
  if (sizes.slots > 0) work += backward_of_slots(problem, kernels<A>(), sums);
  sums.write(problem.gradients, problem.sizes.head_size);
  results.finish();
  return work;
}

template <class T>
void attend_statistics(const AttendSizes& sizes, const AttendOptions& options,
                       const Weighting<Arithmetic<T>>& weighting, const AttendInputs<T>& inputs,
                       const Arithmetic<T>* log_sum, const RowStatistics<Arithmetic<T>>& statistics) {
  using A = Arithmetic<T>;
  Setting<T> setting(sizes, options, weighting, inputs);
  setting.problem.kept_log_sum = log_sum;
  setting.problem.statistics = statistics;
  each_block<A>(setting.problem, [&](int64_t sequence, int64_t head, int64_t block, const Workspace<A>& workspace) {
    kernels<A>().statistics(setting.problem, sequence, head, block, workspace);
  });
}

template void check_attend(const AttendSizes&, const AttendOptions&, const AttendInputs<float>&);
template void check_attend(const AttendSizes&, const AttendOptions&, const AttendInputs<double>&);
template void check_attend(const AttendSizes&, const AttendOptions&, const AttendInputs<bf16>&);
template int64_t attend_forward(const AttendSizes&, const AttendOptions&, const Weighting<float>&,
                                const AttendInputs<float>&, Tokens<float>, float*);
template int64_t attend_forward(const AttendSizes&, const AttendOptions&, const Weighting<double>&,
                                const AttendInputs<double>&, Tokens<double>, double*);
template int64_t attend_forward(const AttendSizes&, const AttendOptions&, const Weighting<float>&,
                                const AttendInputs<bf16>&, Tokens<bf16>, float*);
template int64_t attend_backward(const AttendSizes&, const AttendOptions&, const Weighting<float>&,
                                 const AttendInputs<float>&, Tokens<const float>, const float*, Tokens<const float>,
                                 const AttendGradients<float>&, const StatisticsGradients<float>&);
template int64_t attend_backward(const AttendSizes&, const AttendOptions&, const Weighting<double>&,
                                 const AttendInputs<double>&, Tokens<const double>, const double*, Tokens<const double>,
                                 const AttendGradients<double>&, const StatisticsGradients<double>&);
template int64_t attend_backward(const AttendSizes&, const AttendOptions&, const Weighting<float>&,
                                 const AttendInputs<bf16>&, Tokens<const bf16>, const float*, Tokens<const bf16>,
                                 const AttendGradients<bf16>&, const StatisticsGradients<float>&);
template void attend_statistics(const AttendSizes&, const AttendOptions&, const Weighting<float>&,
                                const AttendInputs<float>&, const float*, const RowStatistics<float>&);
template void attend_statistics(const AttendSizes&, const AttendOptions&, const Weighting<double>&,
                                const AttendInputs<double>&, const double*, const RowStatistics<double>&);
template void attend_statistics(const AttendSizes&, const AttendOptions&, const Weighting<float>&,
                                const AttendInputs<bf16>&, const float*, const RowStatistics<float>&);

}  // namespace orrery
