// Minimum and maximum where the standard library cannot be used: on a GPU, and in files that are
// compiled for several instruction sets, which must not share a symbol.
#pragma once

#include "engine/types/host_device.h"

namespace orrery {
namespace {

template <class X, class Y>
HOST_DEVICE constexpr auto minimum(X x, Y y) {
  return x < y ? x : y;
}
template <class X, class Y>
HOST_DEVICE constexpr auto maximum(X x, Y y) {
  return x > y ? x : y;
}

}  // namespace
}  // namespace orrery
