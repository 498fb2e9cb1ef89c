// An activation for tests of epilogues: whole numbers stay whole, and both sides of 0 differ.
//   F(x) = x^2 + 1, F'(x) = 2 x   for x > 0,     F(x) = -x, F'(x) = -1   else
#pragma once

#include "engine/types/host_device.h"

namespace orrery {
namespace {

struct Bent {
  template <class T>
  HOST_DEVICE T value(T x) const {
    return x > 0 ? x * x + 1 : -x;
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    return x > 0 ? x + x : T(-1);
  }
};

}  // namespace
}  // namespace orrery
