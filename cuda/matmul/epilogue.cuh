// Epilogues: functions of the elements of a product whose sums are complete. An epilogue names the
// arrays that it reads, so that kernels can load them early and many elements at once:
//   of_column    one number for each column of the product, or null
//   of_element   one for each element of C, which is then one matrix, or null
// It is called with the sum and these two numbers (zero if null) and returns the element of C. If
// it has `adds_element`, kernels add the number of `of_element` to the result. An epilogue with a
// pointer `second` returns Values<A, 2>; the second value fills that matrix, shaped like C, which
// is then one matrix. A constant `b_transposed` limits an epilogue to products with such a B and
// untransposed A, so that fewer kernels are compiled.
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
// True unless `of_element` is a constant nullptr.
template <class Epilogue>
concept ReadsElements = !requires {
  typename std::bool_constant<(Epilogue::of_element == nullptr)>;
};
template <class T>
struct Plain {
  static constexpr const T *of_column = nullptr, *of_element = nullptr;
  __device__ Arithmetic<T> operator()(Arithmetic<T> sum, Arithmetic<T>, Arithmetic<T>) const { return sum; }
};
template <class T>
struct AddBias {
  static constexpr bool adds_element = true;
  const T *of_column, *of_element;  // the bias and the residual
  __device__ Arithmetic<T> operator()(Arithmetic<T> sum, Arithmetic<T> bias, Arithmetic<T>) const {
    return of_column ? sum + bias : sum;
  }
};

// Returns the epilogue's values for a sum: the elements of C and of the second matrix.
template <class Epilogue, class A>
__device__ Values<A, 2> finished(const Epilogue& epilogue, A sum, A of_column, A of_element) {
  const auto value = epilogue(sum, of_column, of_element);
  if constexpr (FillsSecond<Epilogue>)
    return value;
  else
    return {{value, A()}};
}

// The elements of C and of the second matrix, as stored.
template <class Result>
struct Finished {
  Result kept, second;
};
template <class Result, class A, class Epilogue>
__device__ Finished<Result> finish(const Epilogue& epilogue, A sum, int64_t column_of_product, int64_t element) {
  const A of_column = epilogue.of_column ? static_cast<A>(epilogue.of_column[column_of_product]) : A();
  const A of_element = epilogue.of_element ? static_cast<A>(epilogue.of_element[element]) : A();
  Values<A, 2> value = finished(epilogue, sum, of_column, of_element);
  if constexpr (AddsElement<Epilogue>)
    if (epilogue.of_element) value[0] += of_element;
  return {static_cast<Result>(value[0]), static_cast<Result>(value[1])};
}

}  // namespace orrery::cuda
