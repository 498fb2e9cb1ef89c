// Rows and elements by index.
//   y[r] = table[index[r]]:   dtable[v] = sum of dy[r] over the r with index[r] = v, in the order of r
//
// Indices on the host are checked here. The caller that uploads indices to a device checks them,
// because the host does not read device memory. An invalid one reads a row of NaN (zeros for
// integers), and adds to no row.
#include <limits>
#include <numeric>

#include "cuda/loops/sort.h"
#include "engine/autograd/autograd.h"
#include "engine/loops/loops.h"
#include "engine/ops/ops.h"
#include "engine/types/dispatch.h"

namespace orrery {
namespace {

void check_indices(const char* operation, const Tensor& indices, int64_t limit) {
  check(indices.dtype() == Dtype::i32, operation, ": indices must be i32, not ", name(indices.dtype()),
        "; convert with .to(Dtype::i32)");
  if (indices.device() != Device::cpu) return;
  const int32_t* const at = indices.data<int32_t>();
  for (int64_t i = 0; i < indices.numel(); ++i)
    check(at[i] >= 0 && at[i] < limit, operation, ": index ", at[i], " at position ", i, " is outside 0 to ",
          limit - 1);
}
Shape with_last(Shape shape, int64_t size) {
  shape.append(size);
  return shape;
}

HOST_DEVICE bool inside(int64_t index, int64_t size) { return index >= 0 && index < size; }
template <class T>
HOST_DEVICE T nothing() {
  if constexpr (std::is_same_v<T, int32_t>)
    return 0;
  else
    return static_cast<T>(std::numeric_limits<float>::quiet_NaN());
}

template <class T>
struct CopyRow {
  const T* table;
  const int32_t* index;
  T* y;
  int64_t table_rows;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const int64_t v = index[r];
    const T* const from = table + v * row.n;
    T* const to = y + r * row.n;
    if (inside(v, table_rows))
      row.copy(to, from);
    else
      row.each([&](int i) { to[i] = nothing<T>(); });
  }
};

// ---- rows added to the rows of a table
//
// The rows of x are sorted by target row and cut into pieces, so that many threads share the work
// of one target. A run is the rows of a piece with one target. If no other piece has this target,
// the run is added to the table. Otherwise it becomes a partial sum first, at most two per piece:
// one continues the previous piece, one continues in the next. Each table row is rounded once.

struct Sorted {
  Tensor target, source;  // table rows, ascending, and the row of x for each
};
Sorted sort_by_index(const Tensor& indices, [[maybe_unused]] int64_t limit) {
#if defined(__CUDACC__) || defined(EMULATE_CUDA)
  if (indices.device() == Device::cuda) {
    const Sorted sorted{Tensor::empty_like(indices), Tensor::empty_like(indices)};
    cuda::sort(indices.data<int32_t>(), indices.numel(), limit, sorted.target.mutable_data<int32_t>(),
               sorted.source.mutable_data<int32_t>());
    return sorted;
  }
#endif
  const int32_t* const index = indices.data<int32_t>();
  std::vector<int32_t> order(static_cast<size_t>(indices.numel())), target;
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return index[a] < index[b]; });
  for (const int32_t place : order) target.push_back(index[place]);
  return {Tensor::from(indices.shape(), target), Tensor::from(indices.shape(), order)};
}

inline constexpr int piece_places = 32, strip_width = 64;  // rows per piece; adjacent columns per strip

// Bounds of pieces and strips, and whether a run continues across a piece's ends.
struct Pieces {
  const int32_t* target;
  int64_t places, columns, strips;

  HOST_DEVICE int64_t begin(int64_t piece) const { return piece * piece_places; }
  HOST_DEVICE int64_t end(int64_t piece) const { return begin(piece + 1) < places ? begin(piece + 1) : places; }
  HOST_DEVICE bool from_before(int64_t piece) const {
    return piece > 0 && target[begin(piece)] == target[begin(piece) - 1];
  }
  HOST_DEVICE bool goes_on(int64_t piece) const {
    return end(piece) < places && target[end(piece)] == target[end(piece) - 1];
  }
  int64_t pieces() const { return (places + piece_places - 1) / piece_places; }
  HOST_DEVICE int width(int64_t strip) const {
    const int64_t left = columns - strip * strip_width;
    return static_cast<int>(left < strip_width ? left : strip_width);
  }
};

// Calls add(i, terms) for each column of a strip with the sum over `count` rows, in their order;
// row(s) returns a row. A GPU thread sums one column, a CPU all at once, in vectors. Many rows are
// summed in parts, so that the rounding error does not grow with their number.
template <class A, class Walk, class RowAt, class Add>
HOST_DEVICE void add_up(const Walk& walk, int width, int64_t count, const RowAt& row, const Add& add) {
  constexpr int64_t rows_of_part = 256;
  const auto end_of = [=](int64_t s) { return count - s < rows_of_part ? count : s + rows_of_part; };
  if constexpr (std::is_same_v<Walk, CpuRow>) {
    A sum[strip_width] = {};
    for (int64_t s = 0; s < count;) {
      A part[strip_width] = {};
      for (const int64_t end = end_of(s); s < end; ++s) {
        const auto x = row(s);
        for (int i = 0; i < width; ++i) part[i] += x[i];
      }
      for (int i = 0; i < width; ++i) sum[i] += part[i];
    }
    for (int i = 0; i < width; ++i) add(i, sum[i]);
  } else {
    walk.each([&](int i) {
      if (i >= width) return;
      A sum = 0;
      for (int64_t s = 0; s < count;) {
        A part = 0;
        for (const int64_t end = end_of(s); s < end; ++s) part += row(s)[i];
        sum += part;
      }
      add(i, sum);
    });
  }
}

template <class T>
struct AddRuns {
  using A = Arithmetic<T>;
  Pieces pieces;
  const int32_t* source;
  In<T> x;
  Out<T> table;
  int64_t table_rows;
  A* partial;  // (pieces, 2, columns)
  template <class Row>
  HOST_DEVICE void operator()(Row walk, int64_t r) const {
    const int64_t piece = r / pieces.strips, strip = r % pieces.strips, column = strip * strip_width;
    const int64_t end = pieces.end(piece);
    for (int64_t first = pieces.begin(piece), last; first < end; first = last) {
      const int64_t v = pieces.target[first];
      for (last = first + 1; last < end && pieces.target[last] == v;) ++last;
      if (!inside(v, table_rows)) continue;
      const bool before = first == pieces.begin(piece) && pieces.from_before(piece);
      const bool shared = before || (last == end && pieces.goes_on(piece));
      const Out<T> own = table.at(v * pieces.columns + column);
      A* const part = partial + (2 * piece + !before) * pieces.columns + column;
      add_up<A>(
          walk, pieces.width(strip), last - first,
          [&](int64_t s) { return x.at(source[first + s] * pieces.columns + column); },
          [&](int i, A sum) {
            if (shared)
              part[i] = sum;
            else
              own[i] += sum;
          });
    }
  }
};

// Runs for the piece where a shared row begins: adds its partial sum and those that continue it.
template <class T>
struct AddParts {
  using A = Arithmetic<T>;
  Pieces pieces;
  Out<T> table;
  int64_t table_rows;
  const A* partial;
  template <class Row>
  HOST_DEVICE void operator()(Row walk, int64_t r) const {
    const int64_t piece = r / pieces.strips, strip = r % pieces.strips, column = strip * strip_width;
    const int64_t v = pieces.target[pieces.end(piece) - 1];
    const bool begins_here = !pieces.from_before(piece) || pieces.target[pieces.begin(piece)] != v;
    if (!begins_here || !pieces.goes_on(piece) || !inside(v, table_rows)) return;
    int64_t last = piece + 1;
    while (pieces.goes_on(last) && pieces.target[pieces.end(last)] == v) ++last;
    const Out<T> own = table.at(v * pieces.columns + column);
    add_up<A>(
        walk, pieces.width(strip), last - piece + 1,
        [&](int64_t p) { return partial + (2 * (piece + p) + (p == 0)) * pieces.columns + column; },
        [&](int i, A sum) { own[i] += sum; });
  }
};

struct GatherRows {
  static constexpr const char* name = "index_select";
  Shape table_shape;
  Tensor forward(Saved& saved, const Tensor& table, const Tensor& indices) const {
    const Tensor y = Tensor::empty_like(table, with_last(indices.shape(), table.size(1)));
    dispatch_any(table.dtype(), name, [&]<class T>() {
      rows(table.device(), indices.numel(), static_cast<int>(table.size(1)),
           CopyRow<T>{table.data<T>(), indices.data<int32_t>(), y.mutable_data<T>(), table.size(0)});
    });
    saved.save(indices);
    return y;
  }
  Gradients<2> backward(const Saved& saved, const Tensor& dy) const {
    const Dtype sums = dy.dtype() == Dtype::bf16 ? Dtype::f32 : dy.dtype();  // micro-batches accumulate in f32
    const Saved::Place place = saved.place(0, table_shape, sums, dy.device());
    if (!place.accumulate) zero_bytes(dy.device(), place.gradient.mutable_raw(), place.gradient.bytes());
    add_rows_in_place(place.gradient, dy.to(sums), saved[0]);
    return {place.as(dy.dtype()), Tensor()};
  }
};

struct ScatterAddRows {  // dx[r] = dy[index[r]]
  static constexpr const char* name = "index_add";
  int64_t table_rows;
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& indices) const {
    const Tensor table = Tensor::zeros_like(x, Shape{table_rows, x.size(-1)});
    add_rows_in_place(table, x, indices);
    saved.save(indices);
    return table;
  }
  Gradients<2> backward(const Saved& saved, const Tensor& dy) const { return {index_select(dy, saved[0]), Tensor()}; }
};

template <class T>
struct PickElement {
  const T* x;
  const int32_t* index;
  T* y;
  int64_t size;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    row.each([&](int) { y[r] = inside(index[r], size) ? x[r * size + index[r]] : nothing<T>(); });
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
  const Tensor y = Tensor::empty_like(indices, with_last(indices.shape(), size), dtype);
  dispatch(dtype, "one_hot", [&]<class T>() {
    rows(y.device(), indices.numel(), static_cast<int>(size),
         PlaceElement<T>{values ? values.data<T>() : nullptr, indices.data<int32_t>(), {y.mutable_data<T>()}});
  });
  return y;
}

struct GatherLast {  // dx[r][index[r]] = dy[r]
  static constexpr const char* name = "gather_last";
  int64_t size;
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& indices) const {
    const Tensor y = Tensor::empty_like(x, indices.shape());
    dispatch(x.dtype(), name, [&]<class T>() {
      rows(x.device(), indices.numel(), 1,
           PickElement<T>{x.data<T>(), indices.data<int32_t>(), y.mutable_data<T>(), size});
    });
    saved.save(indices);
    return y;
  }
  Gradients<2> backward(const Saved& saved, const Tensor& dy) const {
    return {place_elements(dy, saved[0], size, dy.dtype()), Tensor()};
  }
};

}  // namespace

void add_rows_in_place(const Tensor& table, const Tensor& x, const Tensor& indices) {
  check_same_kind("index_add", table, x);
  check_indices("index_add", indices, table.size(0));
  check(x.shape() == with_last(indices.shape(), table.size(1)), "index_add: rows of shape ", x.shape(),
        " do not fit indices ", indices.shape(), " and table ", table.shape());
  if (x.numel() == 0) return;
  const Sorted sorted = sort_by_index(indices, table.size(0));
  const int64_t columns = table.size(1), strips = (columns + strip_width - 1) / strip_width;
  const Pieces pieces{sorted.target.data<int32_t>(), indices.numel(), columns, strips};
  dispatch(x.dtype(), "index_add", [&]<class T>() {
    using A = Arithmetic<T>;
    const Tensor partial = Tensor::empty_like(x, Shape{pieces.pieces(), 2, columns}, dtype_of<A>);
    A* const sums = partial.mutable_data<A>();
    const Out<T> to{table.mutable_data<T>()};
    const int64_t count = pieces.pieces() * strips;
    // A CPU divides rows among threads by length, so n is a row's cost; add_up uses the true width.
    const int n = x.device() == Device::cpu ? piece_places * strip_width : strip_width;
    rows(x.device(), count, n,
         AddRuns<T>{pieces, sorted.source.data<int32_t>(), {x.data<T>()}, to, table.size(0), sums});
    rows(x.device(), count, n, AddParts<T>{pieces, to, table.size(0), sums});
  });
}
Tensor index_select(const Tensor& table, const Tensor& indices) {
  check(table.shape().rank() == 2, "index_select: the table must have two axes, not ", table.shape());
  check_indices("index_select", indices, table.size(0));
  return record(GatherRows{table.shape()}, table, indices);
}
Tensor index_add(const Tensor& x, const Tensor& indices, int64_t table_rows) {
  return record(ScatterAddRows{table_rows}, x, indices);
}
Tensor gather_last(const Tensor& x, const Tensor& indices) {
  check(x.shape().rank() > 0 && indices.shape() == x.shape().without(-1), "gather_last: indices ", indices.shape(),
        " must have the shape ", x.shape(), " without its last axis");
  check_indices("gather_last", indices, x.size(-1));
  return record(GatherLast{x.size(-1)}, x, indices);
}
Tensor one_hot(const Tensor& indices, int64_t classes, Dtype dtype) {
  check_indices("one_hot", indices, classes);
  return place_elements(Tensor(), indices, classes, dtype);
}

}  // namespace orrery
