// An elementwise function and its backward, for tiled operations that do not depend on formulas: n
// adjacent values on the CPU, on the calling thread. Results may overwrite inputs. p: the values of
// the function's learned parameters; null if it has none.
#pragma once

#include <cstdint>

namespace orrery {

template <class T>
class TileFunction {
 public:
  virtual void values(const T* x, T* y, int64_t n, const T* p = nullptr) const = 0;  // y = F(x)
  // y = F(x) unless null, dx = F'(x) g
  virtual void backward(const T* x, const T* g, T* y, T* dx, int64_t n, const T* p = nullptr) const = 0;
  // Adds the sum of g dF/dp_k to dp[k]; only for float and double, in an order of n alone.
  virtual void add_parameter_gradients(const T*, const T*, int64_t, const T* /*p*/, double* /*dp*/) const {}

 protected:
  ~TileFunction() = default;
};

}  // namespace orrery
