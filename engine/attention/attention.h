// Attention on the CPU, forward and backward, tile by tile: engine/base/attention.h states formulas and operands.  The
// same inputs give the same bits for any number of threads.
#pragma once

#include "engine/base/attention.h"

namespace orrery {

// How a score becomes a weight.  Without functions: softmax.  The functions are called once per tile, over n contiguous
// elements; w may be s and ds may be g.  A is float or double.
template <class A>
struct Weighting {
  void (*values)(const void* context, const A* s, A* w, int64_t n) = nullptr;                       // w = F(s)
  void (*backward)(const void* context, const A* s, const A* g, A* w, A* ds, int64_t n) = nullptr;  // ds = F'(s) g
  const void* context = nullptr;
  bool zero_below_zero = false;  // F(s) = F'(s) = 0 for s <= 0: tiles without a positive score are skipped
};

// T is float, double or bf16.  Errors: sizes, strides and options that make no sense, by name and value; slots, spans
// and terms of the distance that are given in part; distances fewer than some query sees.
//
// Writes output (batch, queries, query_heads, value_size) and, for softmax, log_sum (batch, query_heads, queries),
// which is minus infinity for a query that sees nothing.  For pointwise weights log_sum is not touched.
// Returns the number of multiplications with additions that were done, which shrinks with what masks and spans hide.
template <class T>
int64_t attend_forward(const AttendSizes& sizes, const AttendOptions& options,
                       const Weighting<Arithmetic<T>>& weighting, const AttendInputs<T>& inputs, Tokens<T> output,
                       Arithmetic<T>* log_sum);

// output and log_sum are what forward wrote; pointwise weights need neither.
template <class T>
int64_t attend_backward(const AttendSizes& sizes, const AttendOptions& options,
                        const Weighting<Arithmetic<T>>& weighting, const AttendInputs<T>& inputs,
                        Tokens<const T> output, const Arithmetic<T>* log_sum, Tokens<const T> output_gradient,
                        const AttendGradients<T>& gradients, const StatisticsGradients<Arithmetic<T>>& statistics = {});

// log_sum is what forward wrote, for softmax.
template <class T>
void attend_statistics(const AttendSizes& sizes, const AttendOptions& options,
                       const Weighting<Arithmetic<T>>& weighting, const AttendInputs<T>& inputs,
                       const Arithmetic<T>* log_sum, const RowStatistics<Arithmetic<T>>& statistics);

// What can be told by sizes: the functions above tell it themselves, and look at lengths, documents and spans as well.
// This is for the caller of a GPU, on pointers that the CPU cannot read.
template <class T>
void check_attend(const AttendSizes& sizes, const AttendOptions& options, const AttendInputs<T>& inputs);

// "avx512" or "avx2": chosen once by what the processor has.  Tests set it; an unknown or missing one is an Error.
const char* attend_instruction_set();
void use_attend_instruction_set(const char* name);

}  // namespace orrery
