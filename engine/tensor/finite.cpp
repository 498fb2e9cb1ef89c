#include "engine/tensor/finite.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/math/scalar.h"
#include "engine/system/parallel.h"
#include "engine/types/dispatch.h"

namespace orrery {
namespace {

Tensor on_host(const Tensor& x) {
  if (x.device() == Device::cpu) return x;
  const Tensor copy = Tensor::empty(x.shape(), x.dtype(), Device::cpu);
  copy.copy_from(x);
  return copy;
}

template <class T>
bool finite_range(const T* x, int64_t n) {
  using A = Arithmetic<T>;
  using F = scalar::detail::Format<A>;
  constexpr auto exponent = static_cast<typename F::Bits>(2 * F::bias + 1) << F::mantissa;  // of infinities and NaN
  typename F::Bits worst = 0;  // without a branch, so that the loop vectorizes
  for (int64_t i = 0; i < n; ++i) worst = std::max(worst, scalar::detail::bits_of(static_cast<A>(x[i])) & exponent);
  return worst != exponent;
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace

bool all_finite(const Tensor& given) {
  if (!is_floating(given.dtype()) || given.numel() == 0) return true;
  const Tensor x = on_host(given);
  return dispatch(x.dtype(), "all_finite", [&]<class T>() {
    const T* const numbers = x.data<T>();
    std::atomic<bool> finite = true;
    parallel_for(x.numel(), int64_t{1} << 16, [&](int64_t begin, int64_t end) {
      if (!finite_range(numbers + begin, end - begin)) finite.store(false, std::memory_order_relaxed);
    });
    return finite.load();
  });
}

bool TensorStats::operator==(const TensorStats& o) const {
  return shape == o.shape && dtype == o.dtype && nan == o.nan && plus_infinity == o.plus_infinity &&
         minus_infinity == o.minus_infinity && first == o.first && same(smallest, o.smallest) &&
         same(largest, o.largest);
}

TensorStats stats_of(const Tensor& given) {
  TensorStats stats{.shape = given.shape(), .dtype = given.dtype()};
  stats.smallest = std::numeric_limits<double>::infinity(), stats.largest = -stats.smallest;
  const Tensor x = on_host(given);
  dispatch_any(x.dtype(), "stats_of", [&]<class T>() {
    const T* const numbers = x.data<T>();
    for (int64_t i = 0; i < x.numel(); ++i) {
      const auto number = static_cast<double>(static_cast<Arithmetic<T>>(numbers[i]));
      if (std::isfinite(number)) {
        stats.smallest = std::min(stats.smallest, number), stats.largest = std::max(stats.largest, number);
        continue;
      }
      if (stats.first < 0) stats.first = i;
      ++(std::isnan(number) ? stats.nan : number > 0 ? stats.plus_infinity : stats.minus_infinity);
    }
  });
  if (stats.non_finite() == x.numel()) stats.smallest = stats.largest = std::numeric_limits<double>::quiet_NaN();
  return stats;
}

std::string index_text(const Shape& shape, int64_t element) {
  std::vector<int64_t> indices(static_cast<size_t>(shape.rank()));
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    indices[static_cast<size_t>(axis)] = element % shape[axis];
    element /= shape[axis];
  }
  std::string all;
  for (const int64_t index : indices) all += (all.empty() ? "" : ", ") + std::to_string(index);
  return "(" + all + ")";
}

std::ostream& operator<<(std::ostream& out, const TensorStats& f) {
  out << name(f.dtype) << " " << f.shape;
  if (f.first < 0) return out << " between " << f.smallest << " and " << f.largest;
  out << " has " << f.nan << " NaN, " << f.plus_infinity << " inf and " << f.minus_infinity << " -inf, the first at "
      << index_text(f.shape, f.first);
  const int64_t finite = f.shape.numel() - f.non_finite();
  if (finite == 0) return out << "; no value is finite";
  return out << "; finite values: " << finite << ", between " << f.smallest << " and " << f.largest;
}

}  // namespace orrery
