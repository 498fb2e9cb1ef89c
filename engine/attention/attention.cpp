// Converts tensors to the problem that both devices take, and runs it on a CPU as tasks. The
// arithmetic is in kernels_*.cpp.
#include "engine/attention/attention.h"

#include <atomic>
#include <cmath>
#include <cstring>

#include "engine/attention/checks.h"
#include "engine/attention/tasks.h"
#include "engine/attention/work.h"
#include "engine/system/version.h"
#include "engine/tensor/flops.h"
#include "engine/types/dispatch.h"
#if defined(ORRERY_CUDA) || defined(EMULATE_CUDA)
#include "cuda/attention/attention.h"
#endif

namespace orrery {
namespace {

using namespace detail::attention;

const InstructionSet avx512_bf16 = {"avx512_bf16", avx512.f32, avx512.f64, bf16_pairs};

std::atomic<const InstructionSet*>& chosen() {
  static std::atomic<const InstructionSet*> set = processor_multiplies_bf16_fast() ? &avx512_bf16
                                                  : processor_has_avx512()         ? &avx512
                                                                                   : &avx2;
  return set;
}
template <class A>
const Kernels<A>& kernels(const AttentionProblem<A>& problem) {
  const InstructionSet& set = *chosen().load();
  if constexpr (std::is_same_v<A, float>)
    return problem.is_bf16 ? set.bf16 : set.f32;
  else
    return set.f64;
}

// ---- tensors

const int32_t* int_data(const Tensor& x) { return x ? x.data<int32_t>() : nullptr; }
template <class A>
const A* data_of(const Tensor& x) {
  return x ? x.data<A>() : nullptr;
}
template <class A>
A* mutable_data_of(const Tensor& x) {
  return x ? x.mutable_data<A>() : nullptr;
}
int64_t stride_of(const Tensor& x) { return x.size(-1) * (x.shape().rank() > 2 ? x.size(-2) : 1); }

// T is the element type of the tensors; bf16 data is behind pointers to float.
template <class T, class A = Arithmetic<T>>
TensorView<const A> view_of(const Tensor& x) {
  return x ? TensorView<const A>{reinterpret_cast<const A*>(x.data<T>()), stride_of(x)} : TensorView<const A>{};
}
template <class T, class A = Arithmetic<T>>
TensorView<A> mutable_view_of(const Tensor& x) {
  return x ? TensorView<A>{reinterpret_cast<A*>(x.mutable_data<T>()), stride_of(x)} : TensorView<A>{};
}

template <class T>
AttentionProblem<Arithmetic<T>> problem_of(const AttentionInputs& x, const AttentionOptions& options) {
  using A = Arithmetic<T>;
  const auto to_int = [](int64_t n) { return static_cast<int>(n); };  // all are below 2^29
  AttentionProblem<A> p;
  p.queries = to_int(x.query.size(1)), p.keys = to_int(x.key.size(1)), p.batch = to_int(x.query.size(0));
  p.query_heads = to_int(x.query.size(2)), p.kv_heads = to_int(x.key.size(2));
  p.head_size = to_int(x.query.size(3)), p.value_size = to_int(x.value.size(3));
  p.slots = to_int(x.slot_key ? x.slot_key.size(0) : 0);
  p.distances = to_int(x.relative_embedding ? x.relative_embedding.size(0)
                       : x.relative_bias    ? x.relative_bias.size(1)
                                            : 0);
  p.is_bf16 = std::is_same_v<T, bf16>, p.span_per_query = x.span && x.span.shape().rank() == 3;
  p.query = view_of<T>(x.query), p.key = view_of<T>(x.key), p.value = view_of<T>(x.value);
  p.slot_key = view_of<T>(x.slot_key), p.slot_value = view_of<T>(x.slot_value);
  p.relative_embedding = view_of<T>(x.relative_embedding);
  p.relative_bias = data_of<A>(x.relative_bias), p.span = data_of<A>(x.span);
  p.parameters = data_of<A>(x.parameters), p.parameter_count = to_int(x.parameters ? x.parameters.size(1) : 0);
  set_options(p, options);
  return p;
}

template <class A>
const AttentionKernels<A>& on_device(const AttentionWeighting& weighting) {
  if (!weighting.softmax()) return *weighting.of<A>().on_device;
#if defined(ORRERY_CUDA) || defined(EMULATE_CUDA)
  return cuda::softmax_attention<A>();
#else
  fail("attention: built without CUDA; configure with -DORRERY_CUDA=ON");
#endif
}

// Checks the inputs, then calls run<T>(problem) with the element type T of the tensors.
template <class Run>
void with_problem(const AttentionInputs& inputs, const AttentionOptions& options, const Run& run) {
  check_attention(inputs, options);
  dispatch(inputs.query.dtype(), "attention", [&]<class T>() {
    const auto problem = problem_of<T>(inputs, options);
    check_numbers(problem, inputs.query.device());
    run.template operator()<T>(problem);
  });
}

thread_local int64_t multiply_adds = 0;
void count_multiply_adds(int64_t done) {
  multiply_adds += done;
  count_flops(2. * static_cast<double>(done));
}

Tensor empty_row_values(const Tensor& q) {
  return Tensor::empty_like(q, Shape{q.size(0), q.size(2), q.size(1)},
                            q.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32);
}

}  // namespace

int64_t attention_multiply_adds() { return multiply_adds; }

// ---- on tensors

void check_attention(const AttentionInputs& inputs, const AttentionOptions& options) {
  check_shapes(inputs);
  check_mask(inputs, options.mask);
  check_options(options);
  check(!inputs.span || options.ramp > 0, "attention: a span needs a ramp; set ramp to its length in tokens");
}

MaskView view_of(const AttentionMask& mask, int64_t queries, int64_t keys) {
  MaskView view;
  view.queries = static_cast<int>(queries), view.keys = static_cast<int>(keys);
  view.query_offset = static_cast<int>(mask.query_offset);
  view.key_lengths = int_data(mask.lengths);
  view.query_document_ids = int_data(mask.query_document_ids);
  view.key_document_ids = int_data(mask.key_document_ids);
  set_band(view, mask.causal, mask.attend_to_self, mask.window);
  if (!mask.table.bits) return view;
  view.bits = reinterpret_cast<const uint32_t*>(mask.table.bits.data<int32_t>());
  view.coverage = reinterpret_cast<const uint8_t*>(mask.table.coverage.data<int32_t>());
  view.words = static_cast<int>(mask.table.bits.size(1));
  return view;
}

template <class A>
void set_options(AttentionProblem<A>& p, const AttentionOptions& o) {
  static_cast<MaskView&>(p) = view_of(o.mask, p.queries, p.keys);
  p.scale = static_cast<A>(o.scale), p.soft_cap = static_cast<A>(o.soft_cap), p.ramp = static_cast<A>(o.ramp);
  p.dropout = {.rng_key = o.rng_key,
               .counters = (int64_t{p.keys} + p.slots + 3) / 4,
               .threshold = static_cast<uint32_t>(minimum(std::ceil(o.dropout * 0x1p32), 0x1p32 - 1)),
               .kept = o.dropout > 0 ? static_cast<A>(1 / (1 - o.dropout)) : A(0)};
}

AttentionOutput attention_forward(const AttentionInputs& x, const AttentionOptions& options,
                                  const AttentionWeighting& weighting) {
  AttentionOutput y;
  with_problem(x, options, [&]<class T, class A>(AttentionProblem<A> p) {
    y.output = Tensor::empty_like(x.query, x.query.shape().with(-1, p.value_size));
    if (weighting.softmax()) y.log_sum = empty_row_values(x.query);
    p.output = mutable_view_of<T>(y.output), p.log_sum = mutable_data_of<A>(y.log_sum);
    if (x.query.device() == Device::cuda)
      on_device<A>(weighting).forward(p);
    else
      count_multiply_adds(attention_forward(p, weighting));
  });
  return y;
}

AttentionOutput attention_statistics(const AttentionInputs& x, const AttentionOptions& options,
                                     const AttentionWeighting& weighting, AttentionOutput y) {
  for (Tensor* statistic : {&y.sum, &y.positive_sum, &y.entropy, &y.zero_fraction, &y.maximum})
    *statistic = empty_row_values(x.query);
  with_problem(x, options, [&]<class T, class A>(AttentionProblem<A> p) {
    p.log_sum = const_cast<A*>(data_of<A>(y.log_sum));
    p.statistics = {mutable_data_of<A>(y.sum), mutable_data_of<A>(y.positive_sum), mutable_data_of<A>(y.entropy),
                    mutable_data_of<A>(y.zero_fraction), mutable_data_of<A>(y.maximum)};
    if (x.query.device() == Device::cuda)
      on_device<A>(weighting).statistics(p);
    else
      attention_statistics(p, weighting);
  });
  return y;
}

void attention_backward(const AttentionInputs& x, const AttentionOptions& options, const AttentionWeighting& weighting,
                        const AttentionOutput& forward, const AttentionOutput& dy, const AttentionInputs& d) {
  check_gradients(x, forward, dy, d);
  with_problem(x, options, [&]<class T, class A>(AttentionProblem<A> p) {
    const Tensor output_gradient =
        dy.output ? dy.output : Tensor::zeros_like(x.query, x.query.shape().with(-1, p.value_size));
    const TensorView<const A> output = view_of<T>(forward.output);
    p.output = {const_cast<A*>(output.data), output.stride}, p.log_sum = const_cast<A*>(data_of<A>(forward.log_sum));
    p.output_gradient = view_of<T>(output_gradient);
    p.statistics_gradients = {data_of<A>(forward.positive_sum), data_of<A>(forward.entropy), data_of<A>(dy.sum),
                              data_of<A>(dy.entropy)};
    p.gradients = {mutable_view_of<T>(d.query),         mutable_view_of<T>(d.key),
                   mutable_view_of<T>(d.value),         mutable_view_of<T>(d.slot_key),
                   mutable_view_of<T>(d.slot_value),    mutable_view_of<T>(d.relative_embedding),
                   mutable_data_of<A>(d.relative_bias), mutable_data_of<A>(d.span),
                   mutable_data_of<A>(d.parameters)};
    if (x.query.device() == Device::cuda)
      on_device<A>(weighting).backward(p);
    else
      count_multiply_adds(attention_backward(p, weighting));
  });
}

// ---- on a CPU

const char* attention_instruction_set() { return chosen().load()->name; }

void use_attention_instruction_set(const char* name) {
  const auto is = [&](const InstructionSet& set) { return std::strcmp(name, set.name) == 0; };
  check(is(avx512_bf16) || is(avx512) || is(avx2), "attention: instruction set '", name,
        "' is unknown; use avx2, avx512 or avx512_bf16");
  check(!is(avx512_bf16) || processor_has_avx512_bf16(), "attention: this processor lacks avx512_bf16; use avx512");
  check(!is(avx512) || processor_has_avx512(), "attention: this processor lacks avx512; use avx2");
  chosen() = is(avx512_bf16) ? &avx512_bf16 : is(avx512) ? &avx512 : &avx2;
}

template <class A>
int64_t attention_forward(const AttentionProblem<A>& problem, const AttentionWeighting& weighting) {
  const PaddedProblem<A> padded(problem, weighting, true);
  const Problem<A>& p = padded.problem;
  const int64_t work = each_block<A>(p, [&](int64_t sequence, int64_t head, int64_t block, const Workspace<A>& w) {
    kernels(problem).forward(p, sequence, head, block, w);
  });
  padded.tensors.finish();
  return work;
}

template <class A>
int64_t attention_statistics(const AttentionProblem<A>& problem, const AttentionWeighting& weighting) {
  const PaddedProblem<A> padded(problem, weighting, false);
  const Problem<A>& p = padded.problem;
  return each_block<A>(p, [&](int64_t sequence, int64_t head, int64_t block, const Workspace<A>& w) {
    kernels(problem).statistics(p, sequence, head, block, w);
  });
}

template <class A>
int64_t attention_backward(const AttentionProblem<A>& problem, const AttentionWeighting& weighting) {
  const PaddedProblem<A> padded(problem, weighting, false, can_round_in_tasks(problem));
  const Problem<A>& p = padded.problem;
  ChunkSums<A> sums(p);
  int64_t work = backward_of_context(p, kernels(problem), sums);
  if (p.slots > 0) work += backward_of_slots(p, kernels(problem), sums);
  sums.write(p.gradients, p.head_size);
  padded.tensors.finish();
  return work;
}

template void set_options(AttentionProblem<float>&, const AttentionOptions&);
template void set_options(AttentionProblem<double>&, const AttentionOptions&);
template int64_t attention_forward(const AttentionProblem<float>&, const AttentionWeighting&);
template int64_t attention_forward(const AttentionProblem<double>&, const AttentionWeighting&);
template int64_t attention_statistics(const AttentionProblem<float>&, const AttentionWeighting&);
template int64_t attention_statistics(const AttentionProblem<double>&, const AttentionWeighting&);
template int64_t attention_backward(const AttentionProblem<float>&, const AttentionWeighting&);
template int64_t attention_backward(const AttentionProblem<double>&, const AttentionWeighting&);

}  // namespace orrery
