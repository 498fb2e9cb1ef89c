// Sums, means and maxima along any axes.
//   y = sum x:  dx = dy, repeated along the summed axes.      y = mean x = sum x / n:  dx = dy / n.
//   y = max x along one axis:  dx = dy at the first largest element, 0 elsewhere.
#include <algorithm>
#include <numeric>

#include "engine/autograd/autograd.h"
#include "engine/loops/loops.h"
#include "engine/ops/ops.h"
#include "engine/types/dispatch.h"

namespace orrery {
namespace {

template <class T>
struct Element {
  In<T> x;
  HOST_DEVICE Arithmetic<T> operator()(int64_t i, int64_t) const { return x[i]; }
};

// The sizes around axes [first, last): (outer, n, inner).
struct Split3 {
  int64_t outer = 1, n = 1, inner = 1;
  Split3(const Shape& shape, int first, int last) {
    for (int a = 0; a < shape.rank(); ++a) (a < first ? outer : a < last ? n : inner) *= shape[a];
  }
};

Tensor sum_adjacent(const Tensor& x, int first, int last) {  // the axes keep size 1
  Shape shape = x.shape();
  for (int a = first; a < last; ++a) shape = shape.with(a, 1);
  const Tensor y = Tensor::empty_like(x, shape);
  const Split3 s(x.shape(), first, last);
  dispatch(x.dtype(), "sum", [&]<class T>() {
    reduce(x.device(), s.outer, s.n, s.inner, Element<T>{{x.data<T>()}}, y.mutable_data<T>());
  });
  return y;
}

struct Sum {
  static constexpr const char* name = "sum";
  std::vector<int> axes;  // ascending
  Shape before, keepdim_shape, after;
  Tensor forward(Saved&, const Tensor& x) const {
    Tensor y = x;
    for (size_t last = axes.size(); last > 0;) {  // adjacent axes in one sum, the innermost first
      size_t first = last - 1;
      while (first > 0 && axes[first - 1] == axes[first] - 1) --first;
      y = sum_adjacent(y, axes[first], axes[last - 1] + 1);
      last = first;
    }
    return axes.empty() ? y.clone() : y.reshape(after);
  }
  Gradients<1> backward(const Saved&, const Tensor& dy) const {
    return {broadcast_to(dy.reshape(keepdim_shape), before)};
  }
};

std::vector<int> resolve(const Shape& shape, std::span<const int> axes) {
  std::vector<int> all;
  if (axes.empty()) {
    all.resize(static_cast<size_t>(shape.rank()));
    std::iota(all.begin(), all.end(), 0);
  }
  for (const int axis : axes) all.push_back(shape.resolve(axis));
  std::sort(all.begin(), all.end());
  check(std::adjacent_find(all.begin(), all.end()) == all.end(), "sum: an axis of ", shape,
        " is given twice; give each once");
  return all;
}

template <class T>
struct RowMax {  // maximum of x (outer, n, inner) along n; a row is one (outer, inner) pair
  In<T> x;
  Out<T> y;
  Out<int32_t> index;
  int64_t n, inner;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const In<T> in = x.at(r / inner * n * inner + r % inner);
    const auto top = row.max([&](int j) { return in[j * inner]; });
    // The first index that holds it: the largest of n - j.
    const int left = row.max([&](int j) { return in[j * inner] == top ? static_cast<int>(n) - j : 0; });
    row.once([&] {
      if (y) y[r] = top;
      index[r] = left == 0 ? 0 : static_cast<int>(n) - left;  // 0 if the row holds NaN
    });
  }
};
template <class T>
struct MaxGradient {  // dx[j] = dy where j is the largest element's index
  In<T> dy;
  In<int32_t> index;
  Out<T> dx;
  int64_t n, inner;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const Out<T> out = dx.at(r / inner * n * inner + r % inner);
    row.each([&](int j) { out[j * inner] = j == index[r] ? dy[r] : Arithmetic<T>(0); });
  }
};

struct Max {
  static constexpr const char* name = "max";
  int axis;
  Shape before, after;
  Tensor forward(Saved& saved, const Tensor& x) const {
    const Split3 s(before, axis, axis + 1);
    check(s.n > 0, "max: axis ", axis, " of ", before, " has no elements; at least 1 is needed");
    const Tensor y = Tensor::empty_like(x, after), index = Tensor::empty_like(x, after, Dtype::i32);
    dispatch(x.dtype(), name, [&]<class T>() {
      rows(x.device(), s.outer * s.inner, static_cast<int>(s.n),
           RowMax<T>{{x.data<T>()}, {y.mutable_data<T>()}, {index.mutable_data<int32_t>()}, s.n, s.inner});
    });
    saved.save(index);
    return y;
  }
  Gradients<1> backward(const Saved& saved, const Tensor& dy) const {
    const Split3 s(before, axis, axis + 1);
    const Tensor dx = Tensor::empty_like(dy, before);
    dispatch(dy.dtype(), name, [&]<class T>() {
      rows(dy.device(), s.outer * s.inner, static_cast<int>(s.n),
           MaxGradient<T>{{dy.data<T>()}, {saved[0].data<int32_t>()}, {dx.mutable_data<T>()}, s.n, s.inner});
    });
    return {dx};
  }
};

}  // namespace

Tensor sum(const Tensor& x, std::span<const int> axes, bool keepdim) {
  const std::vector<int> all = resolve(x.shape(), axes);
  Shape keepdim_shape = x.shape(), after;
  for (const int axis : all) keepdim_shape = keepdim_shape.with(axis, 1);
  for (int a = 0; a < x.shape().rank(); ++a)
    if (!std::binary_search(all.begin(), all.end(), a)) after.append(x.size(a));
  return record(Sum{all, x.shape(), keepdim_shape, keepdim ? keepdim_shape : after}, x);
}
Tensor mean(const Tensor& x, std::span<const int> axes, bool keepdim) {
  const Tensor total = sum(x, axes, keepdim);
  check(x.numel() > 0, "mean: shape ", x.shape(), " has no elements; at least 1 is needed");
  return scale(total, static_cast<double>(total.numel()) / static_cast<double>(x.numel()));
}
Tensor max(const Tensor& x, int axis, bool keepdim) {
  const int a = x.shape().resolve(axis);
  return record(Max{a, x.shape(), keepdim ? x.shape().with(a, 1) : x.shape().without(a)}, x);
}
Tensor argmax(const Tensor& x) {
  const Tensor index = Tensor::empty_like(x, x.shape().without(-1), Dtype::i32);
  dispatch(x.dtype(), "argmax", [&]<class T>() {
    rows(x.device(), index.numel(), static_cast<int>(x.size(-1)),
         RowMax<T>{{x.data<T>()}, {nullptr}, {index.mutable_data<int32_t>()}, x.size(-1), 1});
  });
  return index;
}

}  // namespace orrery
