// Conversion of a dtype at run time to a type at compile time.
#pragma once

#include "engine/types/check.h"
#include "engine/types/dtype.h"

namespace orrery {

// Calls f.template operator()<T>() for the storage type T of `dtype`, one of f32, f64, bf16.
template <class F>
decltype(auto) dispatch(Dtype dtype, const char* operation, F&& f) {
  switch (dtype) {
    case Dtype::f32:
      return f.template operator()<float>();
    case Dtype::f64:
      return f.template operator()<double>();
    case Dtype::bf16:
      return f.template operator()<bf16>();
    case Dtype::i32:
      break;
  }
  fail(operation, ": takes f32, f64 or bf16, not ", name(dtype), "; convert with .to(Dtype::f32)");
}

// Dispatches for layout operations, which also take i32.
template <class F>
decltype(auto) dispatch_any(Dtype dtype, const char* operation, F&& f) {
  if (dtype == Dtype::i32) return f.template operator()<int32_t>();
  return dispatch(dtype, operation, static_cast<F&&>(f));
}

}  // namespace orrery
