// Rows and elements by index.
//   y[r] = table[index[r]]:   dtable[v] = sum of dy[r] over the r with index[r] = v, in the order of r
#include <numeric>

#include "engine/autograd.h"
#include "engine/dispatch.h"
#include "engine/loops.h"
#include "engine/ops.h"

namespace orrery {
namespace {

void check_indices(const char* operation, const Tensor& indices, int64_t limit) {
  check(indices.dtype() == Dtype::i32, operation, ": indices must be i32, not ", name(indices.dtype()));
  if (indices.device() != Device::cpu) return;
  const int32_t* const at = indices.data<int32_t>();
  for (int64_t i = 0; i < indices.count(); ++i)
    check(at[i] >= 0 && at[i] < limit, operation, ": index ", at[i], " at position ", i, " is outside 0 to ",
          limit - 1);
}
Shape with_last(Shape shape, int64_t size) {
  shape.append(size);
  return shape;
}

template <class T>
struct CopyRow {
  const T* table;
  const int32_t* index;
  T* y;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const T* const from = table + static_cast<int64_t>(index[r]) * row.n;
    T* const to = y + r * row.n;
    row.each([&](int i) { to[i] = from[i]; });
  }
};

// Which rows of x fall on which row of the table: distinct targets, and for each the sources in ascending order.
struct Groups {
  Tensor target, start, source;
};
Groups group(const Tensor& indices) {
  const Tensor host = indices.to(Device::cpu);
  const int32_t* const index = host.data<int32_t>();
  std::vector<int32_t> order(static_cast<size_t>(host.count())), target, start;
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return index[a] < index[b]; });
  for (size_t i = 0; i < order.size(); ++i)
    if (i == 0 || index[order[i]] != index[order[i - 1]])
      target.push_back(index[order[i]]), start.push_back(static_cast<int32_t>(i));
  start.push_back(static_cast<int32_t>(order.size()));
  const auto upload = [&](const std::vector<int32_t>& v) {
    return Tensor::from(Shape{static_cast<int64_t>(v.size())}, v).to(indices.device());
  };
  return {upload(target), upload(start), upload(order)};
}

template <class T>
struct AddRows {
  In<T> x;
  const int32_t *target, *start, *source;
  Out<T> table;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t g) const {
    const Out<T> out = table.at(static_cast<int64_t>(target[g]) * row.n);
    for (int32_t s = start[g]; s < start[g + 1]; ++s) {
      const In<T> in = x.at(static_cast<int64_t>(source[s]) * row.n);
      row.each([&](int i) { out[i] += in[i]; });
    }
  }
};

struct GatherRows {
  static constexpr const char* name = "gather_rows";
  Shape table_shape;
  Tensor forward(Saved& saved, const Tensor& table, const Tensor& indices) const {
    const Tensor y = Tensor::empty(with_last(indices.shape(), table.size(1)), table.dtype(), table.device());
    dispatch_any(table.dtype(), name, [&]<class T>() {
      rows(table.device(), indices.count(), static_cast<int>(table.size(1)),
           CopyRow<T>{table.data<T>(), indices.data<int32_t>(), y.mutable_data<T>()});
    });
    saved.keep(indices);
    return y;
  }
  Gradients<2> backward(const Saved& saved, const Tensor& dy) const {
    const Saved::Place place = saved.place(0, table_shape, dy.dtype(), dy.device());
    if (!place.accumulate) zero_bytes(dy.device(), place.gradient.mutable_raw(), place.gradient.bytes());
    add_rows_in_place(place.gradient, dy, saved[0]);
    return {place.gradient, Tensor()};
  }
};

struct ScatterAddRows {  // dx[r] = dy[index[r]]
  static constexpr const char* name = "scatter_add_rows";
  int64_t table_rows;
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& indices) const {
    const Tensor table = Tensor::zeros(Shape{table_rows, x.size(-1)}, x.dtype(), x.device());
    add_rows_in_place(table, x, indices);
    saved.keep(indices);
    return table;
  }
  Gradients<2> backward(const Saved& saved, const Tensor& dy) const { return {gather_rows(dy, saved[0]), Tensor()}; }
};

template <class T>
struct PickElement {
  const T* x;
  const int32_t* index;
  T* y;
  int64_t size;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    row.each([&](int) { y[r] = x[r * size + index[r]]; });
  }
};
template <class T>
struct PlaceElement {  // value at the index, 0 elsewhere; without values, 1
  const T* value;
  const int32_t* index;
  Out<T> out;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const Out<T> to = out.at(r * row.n);
    const Arithmetic<T> v = value ? static_cast<Arithmetic<T>>(value[r]) : Arithmetic<T>(1);
    row.each([&](int i) { to[i] = i == index[r] ? v : Arithmetic<T>(0); });
  }
};
Tensor place_elements(const Tensor& values, const Tensor& indices, int64_t size, Dtype dtype) {
  const Tensor y = Tensor::empty(with_last(indices.shape(), size), dtype, indices.device());
  dispatch(dtype, "one_hot", [&]<class T>() {
    rows(y.device(), indices.count(), static_cast<int>(size),
         PlaceElement<T>{values ? values.data<T>() : nullptr, indices.data<int32_t>(), {y.mutable_data<T>()}});
  });
  return y;
}

struct GatherLast {  // dx[r][index[r]] = dy[r]
  static constexpr const char* name = "gather_last";
  int64_t size;
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& indices) const {
    const Tensor y = Tensor::empty(indices.shape(), x.dtype(), x.device());
    dispatch(x.dtype(), name, [&]<class T>() {
      rows(x.device(), indices.count(), 1,
           PickElement<T>{x.data<T>(), indices.data<int32_t>(), y.mutable_data<T>(), size});
    });
    saved.keep(indices);
    return y;
  }
  Gradients<2> backward(const Saved& saved, const Tensor& dy) const {
    return {place_elements(dy, saved[0], size, dy.dtype()), Tensor()};
  }
};

}  // namespace

void add_rows_in_place(const Tensor& table, const Tensor& x, const Tensor& indices) {
  check_same_kind("scatter_add_rows", table, x);
  check_indices("scatter_add_rows", indices, table.size(0));
  check(x.shape() == with_last(indices.shape(), table.size(1)), "scatter_add_rows: rows of shape ", x.shape(),
        " for indices ", indices.shape(), " and a table ", table.shape());
  const Groups groups = group(indices);
  dispatch(x.dtype(), "scatter_add_rows", [&]<class T>() {
    rows(x.device(), groups.target.count(), static_cast<int>(table.size(1)),
         AddRows<T>{{x.data<T>()},
                    groups.target.data<int32_t>(),
                    groups.start.data<int32_t>(),
                    groups.source.data<int32_t>(),
                    {table.mutable_data<T>()}});
  });
}
Tensor gather_rows(const Tensor& table, const Tensor& indices) {
  check(table.shape().rank() == 2, "gather_rows: the table must have two axes, not ", table.shape());
  check_indices("gather_rows", indices, table.size(0));
  return record(GatherRows{table.shape()}, table, indices);
}
Tensor scatter_add_rows(const Tensor& x, const Tensor& indices, int64_t table_rows) {
  return record(ScatterAddRows{table_rows}, x, indices);
}
Tensor gather_last(const Tensor& x, const Tensor& indices) {
  check(x.shape().rank() > 0 && indices.shape() == x.shape().without(-1), "gather_last: indices ", indices.shape(),
        " for ", x.shape());
  check_indices("gather_last", indices, x.size(-1));
  return record(GatherLast{x.size(-1)}, x, indices);
}
Tensor one_hot(const Tensor& indices, int64_t classes, Dtype dtype) {
  check_indices("one_hot", indices, classes);
  return place_elements(Tensor(), indices, classes, dtype);
}

}  // namespace orrery
