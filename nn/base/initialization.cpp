#include "nn/base/initialization.h"

#include <algorithm>
#include <cmath>

#include "engine/loops/loops.h"
#include "engine/types/dispatch.h"

namespace orrery::nn {
namespace {

template <class T>
struct Draw {  // fills x in rows of `width` elements
  Initialization init;
  RandomKey rng;
  Out<T> x;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const int64_t first = r * width;
    row.each([&](int i) {
      if (first + i >= count) return;
      using A = Arithmetic<T>;
      x[first + i] = init.kind == Initialization::Kind::constant ? A(init.a)
                     : init.kind == Initialization::Kind::listed
                         ? A(init.list[static_cast<size_t>((first + i) % static_cast<int64_t>(init.a))])
                     : init.kind == Initialization::Kind::normal
                         ? A(init.a * orrery::normal(rng, static_cast<uint64_t>(first + i)))
                         : A(init.a * (2 * orrery::uniform(rng, static_cast<uint64_t>(first + i)) - 1));
    });
  }
  int64_t count;
  static constexpr int width = 1024;
};

}  // namespace

Initialization constant(double value) { return {Initialization::Kind::constant, value, {}}; }
Initialization listed(std::span<const double> values) {
  Initialization init{Initialization::Kind::listed, static_cast<double>(values.size()), {}};
  check(values.size() <= init.list.size(), "initialization: ", values.size(), " values listed; at most ",
        init.list.size());
  std::copy(values.begin(), values.end(), init.list.begin());
  return init;
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

void fill(const Tensor& x, Initialization init, RandomKey rng) {
  dispatch(x.dtype(), "initialize", [&]<class T>() {
    using D = Draw<T>;
    rows(x.device(), (x.numel() + D::width - 1) / D::width, D::width, D{init, rng, {x.mutable_data<T>()}, x.numel()});
  });
}

}  // namespace orrery::nn
