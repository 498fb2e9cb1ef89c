// An elementwise function and its backward, for tiled operations that do not depend on formulas: n
// adjacent values on the CPU, on the calling thread. Results may overwrite inputs.
#pragma once

#include <cstdint>

namespace orrery {

template <class T>
class TileFunction {
 public:
  virtual void values(const T* x, T* y, int64_t n) const = 0;  // y = F(x)
  // y = F(x) unless null, dx = F'(x) g
  virtual void backward(const T* x, const T* g, T* y, T* dx, int64_t n) const = 0;

 protected:
  ~TileFunction() = default;
};

}  // namespace orrery
