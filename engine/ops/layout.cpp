// Layouts other than dense row-major exist only during a copy; one strided copy serves all of them.
#include <algorithm>

#include "engine/autograd/autograd.h"
#include "engine/loops/loops.h"
#include "engine/ops/broadcast.h"
#include "engine/ops/ops.h"
#include "engine/types/dispatch.h"

namespace orrery {
namespace {

struct Reshape {
  static constexpr const char* name = "reshape";
  Shape before, after;
  Tensor forward(Saved&, const Tensor& x) const { return x.flat_view(0, after); }
  Gradients<1> backward(const Saved&, const Tensor& dy) const { return {dy.reshape(before)}; }
};

struct LeadingSlice {  // dx is zero outside the slice
  static constexpr const char* name = "leading_slice";
  Shape before, after;
  int64_t offset;
  Tensor forward(Saved&, const Tensor& x) const { return x.flat_view(offset, after); }
  Gradients<1> backward(const Saved&, const Tensor& dy) const {
    const Tensor dx = Tensor::zeros_like(dy, before);
    dx.flat_view(offset, after).copy_from(dy);
    return {dx};
  }
};

struct Layout {  // access to an array axis by axis: `start` and `stride` in elements
  int64_t start = 0;
  int64_t stride[Shape::max_rank] = {};
};
Layout dense(const Shape& shape) {
  Layout layout;
  int64_t step = 1;
  for (int a = shape.rank() - 1; a >= 0; --a) layout.stride[a] = step, step *= shape[a];
  return layout;
}

template <class T>
struct StridedCopy {  // a row is the last axis
  const T* from;
  T* to;
  Layout read, write;
  int rank;
  int64_t size[Shape::max_rank];
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    int64_t in = read.start, out = write.start;
    for (int a = rank - 2; a >= 0; --a) {
      const int64_t i = r % size[a];
      in += i * read.stride[a], out += i * write.stride[a], r /= size[a];
    }
    const int64_t step_in = rank > 0 ? read.stride[rank - 1] : 0, step_out = rank > 0 ? write.stride[rank - 1] : 0;
    const T* source = from + in;
    T* target = to + out;
    if (step_in == 1 && step_out == 1)
      row.copy(target, source);
    else
      row.each([&](int i) { target[i * step_out] = source[i * step_in]; });
  }
};

void copy_strided(const char* operation, const Tensor& x, const Tensor& y, const Shape& region, const Layout& read,
                  const Layout& write) {
  if (region.numel() == 0) return;
  dispatch_any(x.dtype(), operation, [&]<class T>() {
    StridedCopy<T> copy{x.data<T>(), y.mutable_data<T>(), read, write, region.rank(), {}};
    for (int a = 0; a < region.rank(); ++a) copy.size[a] = region[a];
    rows(x.device(), region.rows(), static_cast<int>(region.last()), copy);
  });
}

struct Permute {  // dx is dy permuted back
  static constexpr const char* name = "permute";
  std::vector<int> order;
  Tensor forward(Saved&, const Tensor& x) const {
    const Layout from = dense(x.shape());
    Shape shape;
    Layout read;
    for (size_t a = 0; a < order.size(); ++a) shape.append(x.size(order[a])), read.stride[a] = from.stride[order[a]];
    const Tensor y = Tensor::empty_like(x, shape);
    copy_strided(name, x, y, shape, read, dense(shape));
    return y;
  }
  Gradients<1> backward(const Saved&, const Tensor& dy) const {
    std::vector<int> back(order.size());
    for (size_t a = 0; a < order.size(); ++a) back[static_cast<size_t>(order[a])] = static_cast<int>(a);
    return {permute(dy, back)};
  }
};

struct Slice {  // dx is dy inside, 0 outside
  static constexpr const char* name = "slice";
  int axis;
  int64_t begin, end;
  Shape before;
  Layout inside() const {
    Layout layout = dense(before);
    layout.start = begin * layout.stride[axis];
    return layout;
  }
  Tensor forward(Saved&, const Tensor& x) const {
    const Shape shape = before.with(axis, end - begin);
    const Tensor y = Tensor::empty_like(x, shape);
    copy_strided(name, x, y, shape, inside(), dense(shape));
    return y;
  }
  Gradients<1> backward(const Saved&, const Tensor& dy) const {
    const Tensor dx = Tensor::zeros_like(dy, before);
    copy_strided(name, dy, dx, dy.shape(), dense(dy.shape()), inside());
    return {dx};
  }
};

template <class T>
struct JoinedRows {  // a row of `to` holds one row of each part
  static constexpr size_t max_parts = 4;
  const T* from[max_parts] = {};
  int64_t length[max_parts] = {};
  T* to;
  int64_t width;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    T* target = to + r * width;
    for (size_t p = 0; p < max_parts; ++p) {
      const T* const source = from[p] + r * length[p];
      row.n = static_cast<int>(length[p]);
      row.copy(target, source);
      target += length[p];
    }
  }
};

struct Concatenate {  // each part's gradient is its slice of dy
  static constexpr const char* name = "concatenate";
  int axis;
  std::vector<int64_t> sizes;
  Tensor forward(Saved&, const std::vector<Tensor>& parts) const {
    int64_t total = 0;
    for (const int64_t size : sizes) total += size;
    const Tensor y = Tensor::empty_like(parts[0], parts[0].shape().with(axis, total));
    if (axis == y.shape().rank() - 1 && parts.size() <= JoinedRows<float>::max_parts) {
      dispatch_any(y.dtype(), name, [&]<class T>() { join_rows<T>(parts, y); });
      return y;
    }
    Layout write = dense(y.shape());
    for (const Tensor& part : parts) {
      copy_strided(name, part, y, part.shape(), dense(part.shape()), write);
      write.start += part.size(axis) * write.stride[axis];
    }
    return y;
  }
  template <class T>
  void join_rows(const std::vector<Tensor>& parts, const Tensor& y) const {
    JoinedRows<T> copy{.to = y.mutable_data<T>(), .width = y.size(-1)};
    for (size_t i = 0; i < parts.size(); ++i) copy.from[i] = parts[i].data<T>(), copy.length[i] = sizes[i];
    const int64_t longest = *std::max_element(sizes.begin(), sizes.end());
    if (y.numel() > 0) rows(y.device(), y.shape().rows(), static_cast<int>(longest), copy);
  }
  std::vector<Tensor> backward(const Saved& saved, const Tensor& dy) const {
    std::vector<Tensor> gradients(sizes.size());
    int64_t at = 0;
    for (size_t i = 0; i < sizes.size(); at += sizes[i], ++i)
      if (saved.needs(static_cast<int>(i))) gradients[i] = slice(dy, axis, at, at + sizes[i]);
    return gradients;
  }
};

struct BroadcastTo {  // dx is the sum over the repeats
  static constexpr const char* name = "broadcast_to";
  Shape before, after;
  Tensor forward(Saved&, const Tensor& x) const {
    const Layout from = dense(before);
    const int extra = after.rank() - before.rank();
    Layout read;
    for (int a = extra; a < after.rank(); ++a) read.stride[a] = before[a - extra] == 1 ? 0 : from.stride[a - extra];
    const Tensor y = Tensor::empty_like(x, after);
    copy_strided(name, x, y, after, read, dense(after));
    return y;
  }
  Gradients<1> backward(const Saved&, const Tensor& dy) const { return {sum_to(dy, before)}; }
};

}  // namespace

Tensor Tensor::reshape(const Shape& wanted) const {
  if (wanted == shape()) return *this;
  check(wanted.numel() == numel(), "reshape: ", shape(), " has ", numel(), " elements, but ", wanted, " has ",
        wanted.numel());
  return record(Reshape{shape(), wanted}, *this);
}
Tensor Tensor::slice(int64_t begin, int64_t end) const {
  check(shape().rank() > 0 && 0 <= begin && begin <= end && end <= size(0), "slice: rows ", begin, " to ", end,
        " are invalid for shape ", shape(), "; 0 <= begin <= end <= size is needed");
  return record(LeadingSlice{shape(), shape().with(0, end - begin), begin * (shape().without(0).numel())}, *this);
}
Tensor Tensor::operator[](int64_t index) const { return slice(index, index + 1).reshape(shape().without(0)); }

Tensor permute(const Tensor& x, std::span<const int> order) {
  std::vector<int> axes;
  bool seen[Shape::max_rank] = {};
  for (const int axis : order) axes.push_back(x.shape().resolve(axis)), seen[axes.back()] = true;
  check(static_cast<int>(axes.size()) == x.shape().rank() &&
            std::count(seen, seen + x.shape().rank(), true) == x.shape().rank(),
        "permute: the order must name each of the ", x.shape().rank(), " axes of ", x.shape(), " once");
  return record(Permute{axes}, x);
}
Tensor transpose(const Tensor& x, int a, int b) {
  std::vector<int> order;
  for (int i = 0; i < x.shape().rank(); ++i) order.push_back(i);
  std::swap(order[static_cast<size_t>(x.shape().resolve(a))], order[static_cast<size_t>(x.shape().resolve(b))]);
  return permute(x, order);
}
Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end) {
  const int a = x.shape().resolve(axis);
  check(0 <= begin && begin <= end && end <= x.size(a), "slice: ", begin, " to ", end, " is invalid along axis ", a,
        " of ", x.shape(), "; 0 <= begin <= end <= size is needed");
  return a == 0 ? x.slice(begin, end) : record(Slice{a, begin, end, x.shape()}, x);
}
Tensor concatenate(const std::vector<Tensor>& parts, int axis) {
  check(!parts.empty(), "concatenate: no tensors given; give at least one");
  const int a = parts[0].shape().resolve(axis);
  Concatenate op{a, {}};
  for (const Tensor& part : parts) {
    check_same_kind("concatenate", parts[0], part);
    check(part.shape().rank() == parts[0].shape().rank() && part.shape().with(a, 1) == parts[0].shape().with(a, 1),
          "concatenate: shapes ", parts[0].shape(), " and ", part.shape(), " may differ along axis ", a, " only");
    op.sizes.push_back(part.size(a));
  }
  return record(op, parts);
}
std::vector<Tensor> split(const Tensor& x, int parts, int axis) {
  const int a = x.shape().resolve(axis);
  check(parts > 0 && x.size(a) % parts == 0, "split: axis ", a, " of ", x.shape(), " cannot be divided into ", parts,
        " parts; use a divisor of ", x.size(a));
  const int64_t size = x.size(a) / parts;
  std::vector<Tensor> chunks;
  for (int i = 0; i < parts; ++i) chunks.push_back(slice(x, a, i * size, (i + 1) * size));
  return chunks;
}
Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  check(x.shape().rank() <= shape.rank() && broadcast_shape("broadcast_to", x.shape(), shape) == shape,
        "broadcast_to: ", x.shape(), " cannot be broadcast to ", shape, ": only axes of size 1 are repeated");
  return record(BroadcastTo{x.shape(), shape}, x);
}

}  // namespace orrery
