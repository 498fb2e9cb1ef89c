// The terms that a formula of reduce returns, and the destination of each sum.
#pragma once

#include "engine/loops/bf16_chunks.h"
#include "engine/types/dtype.h"

namespace orrery::detail {

template <class A>
struct Terms {  // one value
  static constexpr int count = 1;
  using type = A;
  HOST_DEVICE static A get(const A& v, int) { return v; }
};
template <class A, int K>
struct Terms<Values<A, K>> {
  static constexpr int count = K;
  using type = A;
  HOST_DEVICE static A get(const Values<A, K>& v, int k) { return v[k]; }
};
template <class T>
HOST_DEVICE T* destination(T* out, int) {
  return out;
}
template <class T, int K>
HOST_DEVICE T* destination(const Outputs<T, K>& out, int k) {
  return out.pointer[k];
}

}  // namespace orrery::detail
