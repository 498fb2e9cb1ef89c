// Epilogues: functions of the elements of a product whose sums are complete. An epilogue names the
// arrays that it reads, so that kernels can load them early and many elements at once:
//   per_column    one number for each column of the product, or null
//   per_element   one for each element of C, which is then one matrix, or null
// It is called with the sum and these two numbers (zero if null) and returns the element of C. If
// it has `adds_element`, kernels add the number of `per_element` to the result. An epilogue with a
// pointer `second` returns Values<A, 2>; the second value fills that matrix, shaped like C, which
// is then one matrix. It first rounds the sum with the number of `per_column` as C is stored;
// of_rounded(rounded, per_element) returns the same for a kernel that has stored it so. A constant
// `b_transposed` limits an epilogue to products with such a B and untransposed A, so that fewer
// kernels are compiled.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "engine/types/dtype.h"

namespace orrery::cuda {

template <class Epilogue>
concept FillsSecond = requires(const Epilogue& epilogue) {
  epilogue.second;
};
template <class Epilogue>
concept OfOneForm = requires {
  Epilogue::b_transposed;
};
template <class Epilogue>
concept AddsElement = requires {
  Epilogue::adds_element;
};
// True unless `per_element` is a constant nullptr.
template <class Epilogue>
concept ReadsElements = !requires {
  typename std::bool_constant<(Epilogue::per_element == nullptr)>;
};
template <class T>
struct Plain {
  static constexpr const T *per_column = nullptr, *per_element = nullptr;
  __device__ Arithmetic<T> operator()(Arithmetic<T> sum, Arithmetic<T>, Arithmetic<T>) const { return sum; }
};
template <class T>
struct AddBias {
  static constexpr bool adds_element = true;
  const T *per_column, *per_element;  // the bias and the residual
  __device__ Arithmetic<T> operator()(Arithmetic<T> sum, Arithmetic<T> bias, Arithmetic<T>) const {
    return per_column ? sum + bias : sum;
  }
};

// Returns the epilogue's values for a sum: the elements of C and of the second matrix.
template <class Epilogue, class A>
__device__ Values<A, 2> finished(const Epilogue& epilogue, A sum, A per_column, A per_element) {
  const auto value = epilogue(sum, per_column, per_element);
  if constexpr (FillsSecond<Epilogue>)
    return value;
  else
    return {{value, A()}};
}

// The elements of C and of the second matrix, as stored.
template <class Result>
struct Finished {
  Result stored, second;
};
template <class Result, class A, class Epilogue>
__device__ Finished<Result> finish(const Epilogue& epilogue, A sum, int64_t column_of_product, int64_t element) {
  const A per_column = epilogue.per_column ? static_cast<A>(epilogue.per_column[column_of_product]) : A();
  const A per_element = epilogue.per_element ? static_cast<A>(epilogue.per_element[element]) : A();
  Values<A, 2> value = finished(epilogue, sum, per_column, per_element);
  if constexpr (AddsElement<Epilogue>)
    if (epilogue.per_element) value[0] += per_element;
  return {static_cast<Result>(value[0]), static_cast<Result>(value[1])};
}

}  // namespace orrery::cuda
