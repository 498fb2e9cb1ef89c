// Rows and elements by index.
//   y[r] = table[index[r]]:   dtable[v] = sum of dy[r] over the r with index[r] = v, in the order of r
//
// Indices on the host are checked here. The caller that uploads indices to a device checks them,
// because the host does not read device memory. An invalid one reads a row of NaN (zeros for
// integers), and adds to no row.
#include <algorithm>
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

HOST_DEVICE bool in_bounds(int64_t index, int64_t size) { return index >= 0 && index < size; }
template <class T>
HOST_DEVICE T invalid_value() {
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
    if (in_bounds(v, table_rows))
      row.copy(to, from);
    else
      row.each([&](int i) { to[i] = invalid_value<T>(); });
  }
};

// ---- rows added to the rows of a table
//
// The rows of x are sorted by target row and cut into chunks, so that many threads share the work
// of one target. A run is the rows of a chunk with one target. If no other chunk has this target,
// the run is added to the table. Otherwise it becomes a partial sum first, at most two per chunk:
// one continues the previous chunk, one continues in the next. Each table row is rounded once.

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
  for (const int32_t row : order) target.push_back(index[row]);
  return {Tensor::from(indices.shape(), target), Tensor::from(indices.shape(), order)};
}

inline constexpr int chunk_rows = 32, strip_width = 64;  // rows per chunk; adjacent columns per strip

// Bounds of chunks and strips; `continues_*` is true if a run continues across a chunk's end.
struct Chunks {
  const int32_t* target;
  int64_t count, columns, strips;

  HOST_DEVICE int64_t begin(int64_t chunk) const { return chunk * chunk_rows; }
  HOST_DEVICE int64_t end(int64_t chunk) const { return begin(chunk + 1) < count ? begin(chunk + 1) : count; }
  HOST_DEVICE bool continues_previous(int64_t chunk) const {
    return chunk > 0 && target[begin(chunk)] == target[begin(chunk) - 1];
  }
  HOST_DEVICE bool continues_in_next(int64_t chunk) const {
    return end(chunk) < count && target[end(chunk)] == target[end(chunk) - 1];
  }
  int64_t chunks() const { return (count + chunk_rows - 1) / chunk_rows; }
  HOST_DEVICE int width(int64_t strip) const {
    const int64_t left = columns - strip * strip_width;
    return static_cast<int>(left < strip_width ? left : strip_width);
  }
};

// Calls add(i, terms) for each column of a strip with the sum over `count` rows, in their order;
// row(s) returns a row. A GPU thread sums one column, a CPU all at once, in vectors. Many rows are
// summed in parts, so that the rounding error does not grow with their number.
template <class A, class Loop, class RowAt, class Add>
HOST_DEVICE void sum_strip(const Loop& loop, int width, int64_t count, const RowAt& row, const Add& add) {
  constexpr int64_t rows_per_sum = 256;
  const auto end_of = [=](int64_t s) { return count - s < rows_per_sum ? count : s + rows_per_sum; };
  if constexpr (std::is_same_v<Loop, CpuRow>) {
    A sum[strip_width] = {};
    for (int64_t s = 0; s < count;) {
      A partial_sum[strip_width] = {};
      for (const int64_t end = end_of(s); s < end; ++s) {
        const auto x = row(s);
        for (int i = 0; i < width; ++i) partial_sum[i] += x[i];
      }
      for (int i = 0; i < width; ++i) sum[i] += partial_sum[i];
    }
    for (int i = 0; i < width; ++i) add(i, sum[i]);
  } else {
    loop.each([&](int i) {
      if (i >= width) return;
      A sum = 0;
      for (int64_t s = 0; s < count;) {
        A partial_sum = 0;
        for (const int64_t end = end_of(s); s < end; ++s) partial_sum += row(s)[i];
        sum += partial_sum;
      }
      add(i, sum);
    });
  }
}

template <class T>
struct AddRuns {
  using A = Arithmetic<T>;
  Chunks chunks;
  const int32_t* source;
  In<T> x;
  Out<T> table;
  int64_t table_rows;
  A* partial;  // (chunks, 2, columns)
  template <class Row>
  HOST_DEVICE void operator()(Row loop, int64_t r) const {
    const int64_t chunk = r / chunks.strips, strip = r % chunks.strips, column = strip * strip_width;
    const int64_t end = chunks.end(chunk);
    for (int64_t first = chunks.begin(chunk), last; first < end; first = last) {
      const int64_t v = chunks.target[first];
      for (last = first + 1; last < end && chunks.target[last] == v;) ++last;
      if (!in_bounds(v, table_rows)) continue;
      const bool before = first == chunks.begin(chunk) && chunks.continues_previous(chunk);
      const bool shared = before || (last == end && chunks.continues_in_next(chunk));
      const Out<T> own = table.at(v * chunks.columns + column);
      A* const partial_sum = partial + (2 * chunk + !before) * chunks.columns + column;
      sum_strip<A>(
          loop, chunks.width(strip), last - first,
          [&](int64_t s) { return x.at(source[first + s] * chunks.columns + column); },
          [&](int i, A sum) {
            if (shared)
              partial_sum[i] = sum;
            else
              own[i] += sum;
          });
    }
  }
};

// Runs for the chunk where a shared row begins: adds its partial sum and those that continue it.
template <class T>
struct AddPartialSums {
  using A = Arithmetic<T>;
  Chunks chunks;
  Out<T> table;
  int64_t table_rows;
  const A* partial;
  template <class Row>
  HOST_DEVICE void operator()(Row loop, int64_t r) const {
    const int64_t chunk = r / chunks.strips, strip = r % chunks.strips, column = strip * strip_width;
    const int64_t v = chunks.target[chunks.end(chunk) - 1];
    const bool begins_here = !chunks.continues_previous(chunk) || chunks.target[chunks.begin(chunk)] != v;
    if (!begins_here || !chunks.continues_in_next(chunk) || !in_bounds(v, table_rows)) return;
    int64_t last = chunk + 1;
    while (chunks.continues_in_next(last) && chunks.target[chunks.end(last)] == v) ++last;
    const Out<T> own = table.at(v * chunks.columns + column);
    sum_strip<A>(
        loop, chunks.width(strip), last - chunk + 1,
        [&](int64_t p) { return partial + (2 * (chunk + p) + (p == 0)) * chunks.columns + column; },
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
    const Dtype sum_dtype = dy.dtype() == Dtype::bf16 ? Dtype::f32 : dy.dtype();  // micro-batches accumulate in f32
    const Saved::GradientBuffer buffer = saved.gradient_buffer(0, table_shape, sum_dtype, dy.device());
    if (!buffer.accumulate) zero_bytes(dy.device(), buffer.gradient.mutable_raw(), buffer.gradient.bytes());
    add_rows_in_place(buffer.gradient, dy.to(sum_dtype), saved[0]);
    return {buffer.as(dy.dtype()), Tensor()};
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
    row.each([&](int) { y[r] = in_bounds(index[r], size) ? x[r * size + index[r]] : invalid_value<T>(); });
  }
};
template <class T>
struct ScatterElement {  // value at the index, 0 elsewhere; without values, 1
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
Tensor scatter_elements(const Tensor& values, const Tensor& indices, int64_t size, Dtype dtype) {
  const Tensor y = Tensor::empty_like(indices, with_last(indices.shape(), size), dtype);
  dispatch(dtype, "one_hot", [&]<class T>() {
    rows(y.device(), indices.numel(), static_cast<int>(size),
         ScatterElement<T>{values ? values.data<T>() : nullptr, indices.data<int32_t>(), {y.mutable_data<T>()}});
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
    return {scatter_elements(dy, saved[0], size, dy.dtype()), Tensor()};
  }
};

}  // namespace

void add_rows_in_place(const Tensor& table, const Tensor& x, const Tensor& indices) {
  check_same_kind("index_add", table, x);
  check_indices("index_add", indices, table.size(0));
  const Shape wanted = with_last(indices.shape(), table.size(1));
  check(x.shape() == wanted, "index_add: rows of shape ", x.shape(), " must have shape ", wanted, ", a row per index");
  if (x.numel() == 0) return;
  const Sorted sorted = sort_by_index(indices, table.size(0));
  const int64_t columns = table.size(1), strips = (columns + strip_width - 1) / strip_width;
  const Chunks chunks{sorted.target.data<int32_t>(), indices.numel(), columns, strips};
  dispatch(x.dtype(), "index_add", [&]<class T>() {
    using A = Arithmetic<T>;
    const Tensor partial = Tensor::empty_like(x, Shape{chunks.chunks(), 2, columns}, dtype_of<A>);
    A* const sums = partial.mutable_data<A>();
    const Out<T> to{table.mutable_data<T>()};
    const int64_t count = chunks.chunks() * strips;
    // A CPU divides rows among threads by length, so n is a row's cost; sum_strip uses the true width.
    const int n = x.device() == Device::cpu ? chunk_rows * strip_width : strip_width;
    rows(x.device(), count, n,
         AddRuns<T>{chunks, sorted.source.data<int32_t>(), {x.data<T>()}, to, table.size(0), sums});
    rows(x.device(), count, n, AddPartialSums<T>{chunks, to, table.size(0), sums});
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
  return scatter_elements(Tensor(), indices, classes, dtype);
}

}  // namespace orrery
