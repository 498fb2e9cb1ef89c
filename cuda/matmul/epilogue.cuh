// What happens to an element of a product when its sum is complete.  An epilogue names what it reads of memory, so that
// kernels can read it early and many elements at once:
//   of_column    one number for each column of the product, or null
//   of_element   one for each element of C, which is then one matrix, or null
// It is called with the sum and with these two, zero where there are none, and returns what C keeps.  What one with
// `adds_element` returns has still to be added to what it reads of elements, where there are any.  One with a pointer
// `second` returns Values<A, 2>, whose second value fills that matrix, which has C's shape; such products have one
// part. One with a constant `b_transposed` is for products of that form alone, with A as it is, so that fewer kernels
// are compiled.
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
// Not a constant, which is null.
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

// What an epilogue makes of a sum: what C keeps, and what the second matrix does.
template <class Epilogue, class A>
__device__ Values<A, 2> finished(const Epilogue& epilogue, A sum, A of_column, A of_element) {
  const auto value = epilogue(sum, of_column, of_element);
  if constexpr (FillsSecond<Epilogue>)
    return value;
  else
    return {{value, A()}};
}

// The same for one element, as it is stored.
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
