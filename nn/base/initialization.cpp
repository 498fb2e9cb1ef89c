#include "nn/base/initialization.h"

#include <algorithm>
#include <cmath>

#include "engine/loops/loops.h"
#include "engine/types/dispatch.h"

namespace orrery::nn {
namespace {

template <class T>
struct Draw {  // fills x in rows of `width` elements
  Initialization how;
  RandomKey key;
  Out<T> x;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const int64_t first = r * width;
    row.each([&](int i) {
      if (first + i >= count) return;
      using A = Arithmetic<T>;
      x[first + i] = how.kind == Initialization::Kind::constant ? A(how.a)
                     : how.kind == Initialization::Kind::listed ? A(how.list[static_cast<size_t>((first + i) % 4)])
                     : how.kind == Initialization::Kind::normal
                         ? A(how.a * orrery::normal(key, static_cast<uint64_t>(first + i)))
                         : A(how.a * (2 * orrery::uniform(key, static_cast<uint64_t>(first + i)) - 1));
    });
  }
  int64_t count;
  static constexpr int width = 1024;
};

}  // namespace

Initialization constant(double value) { return {Initialization::Kind::constant, value, {}}; }
Initialization listed(std::span<const double> values) {
  Initialization how{Initialization::Kind::listed, 0, {}};
  check(values.size() <= how.list.size(), "initialization: ", values.size(), " values listed; at most ",
        how.list.size());
  std::copy(values.begin(), values.end(), how.list.begin());
  return how;
}
Initialization normal(double std) { return {Initialization::Kind::normal, std, {}}; }
Initialization scaled_normal(double std, int64_t layers) {
  return normal(std / std::sqrt(2.0 * static_cast<double>(layers)));
}
Initialization uniform(double half_width) { return {Initialization::Kind::uniform, half_width, {}}; }
Initialization xavier_uniform(int64_t inputs, int64_t outputs) {
  return uniform(std::sqrt(6.0 / static_cast<double>(inputs + outputs)));
}
Initialization xavier_normal(int64_t inputs, int64_t outputs) {
  return normal(std::sqrt(2.0 / static_cast<double>(inputs + outputs)));
}
Initialization kaiming_uniform(int64_t inputs, double gain) {
  return uniform(gain * std::sqrt(3.0 / static_cast<double>(inputs)));
}
Initialization kaiming_normal(int64_t inputs, double gain) {
  return normal(gain / std::sqrt(static_cast<double>(inputs)));
}

void fill(const Tensor& x, Initialization how, RandomKey key) {
  dispatch(x.dtype(), "initialize", [&]<class T>() {
    using D = Draw<T>;
    rows(x.device(), (x.numel() + D::width - 1) / D::width, D::width, D{how, key, {x.mutable_data<T>()}, x.numel()});
  });
}

}  // namespace orrery::nn
