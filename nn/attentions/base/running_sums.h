// Running sums of linear attention (linear.cpp): add_outputs and add_gradients, at the end of the
// file. `ranges` (linear.cpp) are the keys that each query attends to.
//
// On a CPU each head has a whole state S (D, Dv), because sums of outer products vectorize without
// horizontal sums. A GPU has many more threads than heads, so each column of a state is one row.
//
// A state is two sums: over all complete tiles of 256 terms, and over the terms since. The rounding
// error of a single sum would grow with the root of the number of keys.
#pragma once

#include <algorithm>
#include <array>

#include "engine/loops/loops.h"
#include "engine/system/parallel.h"
#include "engine/tensor/tensor.h"

namespace orrery::nn {

// A view of (B, T, heads, n) elements by token and head, from the last token on if `reversed`.
template <class A>
struct Heads {
  A* data;
  int64_t tokens, heads, n;
  bool reversed;
  template <class T>
  static Heads of(T* data, const Tensor& t, bool reversed) {
    return {data, t.size(1), t.size(2), t.size(3), reversed};
  }
  HOST_DEVICE A* at(int64_t sequence, int64_t head, int64_t i) const {
    return data + ((sequence * tokens + (reversed ? tokens - 1 - i : i)) * heads + head) * n;
  }
};

inline constexpr int tile_terms = 256;

// x and y: (B, T, heads, D), v: (B, T, heads, Dv). Groups of heads of x share a head of y and v.
template <class A>
struct LinearInputs {
  Heads<const A> x, y, v;
  const int32_t* ranges;  // (B, Tq, 2)
  int64_t batch;
};
template <class A>
struct LinearGradients {
  Heads<A> x, y, v;
};

// ---- the order of keys and queries, by the ranges of one sequence

// Calls visit(i) for each query, from first to last. Before, add(j) was called for each key of its
// range, since the last clear().
template <class Clear, class Add, class Visit>
HOST_DEVICE void walk_queries(const int32_t* range, int64_t queries, const Clear& clear, const Add& add,
                              const Visit& visit) {
  int64_t first = 0, next = 0;
  for (int64_t i = 0; i < queries; ++i) {
    if (range[2 * i] != first) clear(), first = next = range[2 * i];
    for (; next < range[2 * i + 1]; ++next) add(next);
    visit(i);
  }
}
// Calls visit(j) for each visible key, from last to first. Before, add(i) was called for each query
// that attends to it, since the last clear().
template <class Clear, class Add, class Visit>
HOST_DEVICE void walk_keys(const int32_t* range, int64_t queries, const Clear& clear, const Add& add,
                           const Visit& visit) {
  int64_t first = 0, next = 0;  // keys at `next` and beyond are done
  const auto visit_down_to = [&](int64_t end) {
    while (next > end) visit(--next);
  };
  for (int64_t i = queries - 1; i >= 0; --i) {
    if (i == queries - 1 || range[2 * i] != first) {
      visit_down_to(first);
      clear(), first = range[2 * i], next = range[2 * i + 1];
    }
    visit_down_to(range[2 * i + 1]);
    add(i);
  }
  visit_down_to(first);
}

// ---- by columns

// The state of a row: `n` sums of complete tiles, then `n` sums of the terms since.
template <class A, class Row>
struct ColumnState {
  Row row;
  A *tiles, *partial;
  int terms = 0;
  HOST_DEVICE ColumnState(const Row& loop_row, A* memory) : row(loop_row), tiles(memory), partial(memory + loop_row.n) {
    clear();
  }
  HOST_DEVICE void clear() {
    terms = 0;
    row.each([a = tiles, b = partial](int k) { a[k] = b[k] = 0; });
  }
  HOST_DEVICE void add(A x, const A* y) {  // x y
    row.each([=, b = partial](int k) { b[k] += x * y[k]; });
    if (++terms % tile_terms == 0) row.each([a = tiles, b = partial](int k) { a[k] += b[k], b[k] = 0; });
  }
  HOST_DEVICE A times(const A* z) const {
    return row.sum([=, a = tiles, b = partial](int k) { return (a[k] + b[k]) * z[k]; });
  }
};

// out_i[e] += <c_i, s_i>,  s_i = sum over keys j visible to i of a_j[e] b_j.  A row is one e of one query head.
template <class A>
struct ScanOfQueries {
  Heads<const A> a, b, c;
  Heads<A> out;
  const int32_t* ranges;
  A* states;  // one per row
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const int64_t e = r % a.n, head = r / a.n % c.heads, sequence = r / a.n / c.heads;
    const int64_t kv_head = head / (c.heads / a.heads);
    const int32_t* const range = ranges + 2 * sequence * c.tokens;
    ColumnState<A, Row> s(row, states + 2 * r * row.n);
    walk_queries(
        range, c.tokens, [&] { s.clear(); },
        [&](int64_t j) { s.add(a.at(sequence, kv_head, j)[e], b.at(sequence, kv_head, j)); },
        [&](int64_t i) {
          const A sum = s.times(c.at(sequence, head, i));
          A* const to = out.at(sequence, head, i) + e;
          row.once([=] { *to += sum; });
        });
  }
};

// out_j[e] += <c_j, s_j>,  s_j = sum over queries i that attend to j of a_i[e] b_i.
// A row is one e of one key head; it loops over the query heads of the group.
template <class A>
struct ScanOfKeys {
  Heads<const A> a, b, c;
  Heads<A> out;
  const int32_t* ranges;
  A* states;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const int64_t e = r % a.n, kv_head = r / a.n % c.heads, sequence = r / a.n / c.heads;
    const int64_t group = a.heads / c.heads;
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) scan(row, r, sequence, head, e);
  }
  template <class Row>
  HOST_DEVICE void scan(Row row, int64_t r, int64_t sequence, int64_t head, int64_t e) const {
    const int64_t kv_head = head / (a.heads / c.heads);
    const int32_t* const range = ranges + 2 * sequence * a.tokens;
    ColumnState<A, Row> s(row, states + 2 * r * row.n);
    walk_keys(
        range, a.tokens, [&] { s.clear(); },
        [&](int64_t i) { s.add(a.at(sequence, head, i)[e], b.at(sequence, head, i)); },
        [&](int64_t j) {
          const A sum = s.times(c.at(sequence, kv_head, j));
          A* const to = out.at(sequence, kv_head, j) + e;
          row.once([=] { *to += sum; });
        });
  }
};

template <template <class> class Scan, class A>
void scan_columns(Device device, const LinearInputs<A>& in, const Heads<const A>& a, const Heads<const A>& b,
                  const Heads<const A>& c, const Heads<A>& out) {
  const int64_t count = in.batch * c.heads * a.n;
  const Tensor states = Tensor::empty(Shape{count, 2, b.n}, dtype_of<A>, device);
  rows(device, count, static_cast<int>(b.n), Scan<A>{a, b, c, out, in.ranges, states.mutable_data<A>()});
}
template <class A>
void add_outputs_by_columns(Device device, const LinearInputs<A>& in, const Heads<A>& out) {
  scan_columns<ScanOfQueries>(device, in, in.v, in.y, in.x, out);
}
template <class A>
void add_gradients_by_columns(Device device, const LinearInputs<A>& in, const Heads<const A>& dy,
                              const LinearGradients<A>& d) {
  scan_columns<ScanOfQueries>(device, in, in.y, in.v, dy, d.x);
  scan_columns<ScanOfKeys>(device, in, in.x, dy, in.v, d.y);
  scan_columns<ScanOfKeys>(device, in, dy, in.x, in.y, d.v);
}

// ---- by states, on a CPU: o += S^T x for every query, with S the sum of y v^T

template <class A>
class WholeState {
 public:
  // memory_ is a Tensor, so that memory limits count it: it grows as the head size squared.
  WholeState(int64_t rows, int64_t columns)
      : rows_(rows), columns_(columns), memory_(Tensor::zeros(Shape{2, rows, columns}, dtype_of<A>, Device::cpu)) {}
  void clear() {
    std::fill_n(tiles(), 2 * rows_ * columns_, A(0));
    terms_ = 0;
  }
  void add_outer(const A* x, const A* v) {  // state += x v^T
    A *const a = tiles(), *const b = a + rows_ * columns_;
    for (int64_t d = 0; d < rows_; ++d)
      for (int64_t e = 0; e < columns_; ++e) b[d * columns_ + e] += x[d] * v[e];
    if (++terms_ % tile_terms != 0) return;
    for (int64_t i = 0; i < rows_ * columns_; ++i) a[i] += b[i], b[i] = 0;
  }
  void add_left(A* out, const A* x) const {  // out += state^T x
    constexpr int64_t at_once = 32;          // elements of the output, kept in registers
    int64_t e = 0;
    for (; e + at_once <= columns_; e += at_once) add_columns<at_once>(out + e, x, e);
    for (; e < columns_; ++e) add_columns<1>(out + e, x, e);
  }
  void add_right(A* out, const A* v) const {  // out += state v
    const A *a = tiles(), *b = a + rows_ * columns_;
    for (int64_t d = 0; d < rows_; ++d, a += columns_, b += columns_)
      out[d] += CpuRow{static_cast<int>(columns_)}.sum([=](int e) { return (a[e] + b[e]) * v[e]; });
  }

 private:
  A* tiles() const { return memory_.template mutable_data<A>(); }  // followed by the sums of the terms since
  template <int64_t n>
  void add_columns(A* out, const A* x, int64_t first) const {
    const A *a = tiles() + first, *b = a + rows_ * columns_;
    std::array<A, n> sums;
    std::copy_n(out, n, sums.begin());
    for (int64_t d = 0; d < rows_; ++d, a += columns_, b += columns_)
      for (size_t e = 0; e < n; ++e) sums[e] += (a[e] + b[e]) * x[d];
    std::copy_n(sums.begin(), n, out);
  }
  int64_t rows_, columns_;
  Tensor memory_;
  int terms_ = 0;
};

// One head of one sequence.
template <class A>
struct HeadScan {
  const LinearInputs<A>& in;
  int64_t sequence, head, kv_head;
  const int32_t* range = in.ranges + 2 * sequence * in.x.tokens;

  const A* x(int64_t i) const { return in.x.at(sequence, head, i); }
  const A* y(int64_t j) const { return in.y.at(sequence, kv_head, j); }
  const A* v(int64_t j) const { return in.v.at(sequence, kv_head, j); }

  // Calls visit(i, state) for every query, in order, with the state S_i.
  template <class Visit>
  void queries(const Visit& visit) const {
    WholeState<A> state(in.x.n, in.v.n);
    walk_queries(
        range, in.x.tokens, [&] { state.clear(); }, [&](int64_t j) { state.add_outer(y(j), v(j)); },
        [&](int64_t i) { visit(i, state); });
  }
  // Calls visit(j, state) for every visible key, from the last to the first, with the state R_j.
  template <class Visit>
  void keys(const Heads<const A>& dy, const Visit& visit) const {
    WholeState<A> state(in.x.n, in.v.n);
    walk_keys(
        range, in.x.tokens, [&] { state.clear(); },
        [&](int64_t i) { state.add_outer(x(i), dy.at(sequence, head, i)); }, [&](int64_t j) { visit(j, state); });
  }
};

template <class A>
void add_outputs_by_states(const LinearInputs<A>& in, const Heads<A>& out) {
  parallel_for(in.batch * in.x.heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u) {
      const int64_t sequence = u / in.x.heads, head = u % in.x.heads;
      const HeadScan<A> scan{in, sequence, head, head / (in.x.heads / in.y.heads)};
      scan.queries([&](int64_t i, const WholeState<A>& s) { s.add_left(out.at(sequence, head, i), scan.x(i)); });
    }
  });
}
template <class A>
void add_gradients_by_states(const LinearInputs<A>& in, const Heads<const A>& dy, const LinearGradients<A>& d) {
  const int64_t group = in.x.heads / in.y.heads;
  parallel_for(in.batch * in.y.heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u)
      for (int64_t q = 0; q < group; ++q) {
        const int64_t sequence = u / in.y.heads, kv_head = u % in.y.heads, head = kv_head * group + q;
        const HeadScan<A> scan{in, sequence, head, kv_head};
        scan.queries([&](int64_t i, const WholeState<A>& s) {
          s.add_right(d.x.at(sequence, head, i), dy.at(sequence, head, i));
        });
        scan.keys(dy, [&](int64_t j, const WholeState<A>& r) {
          r.add_right(d.y.at(sequence, kv_head, j), scan.v(j));
          r.add_left(d.v.at(sequence, kv_head, j), scan.y(j));
        });
      }
  });
}

// ---- entry points

// out_i += sum over keys j visible to i of <x_i, y_j> v_j
template <class A>
void add_outputs(Device device, const LinearInputs<A>& in, const Heads<A>& out) {
  if (device == Device::cuda)
    add_outputs_by_columns(device, in, out);
  else
    add_outputs_by_states(in, out);
}
// Adds the gradients of the three inputs to d; dy is the gradient of the output.
template <class A>
void add_gradients(Device device, const LinearInputs<A>& in, const Heads<const A>& dy, const LinearGradients<A>& d) {
  if (device == Device::cuda)
    add_gradients_by_columns(device, in, dy, d);
  else
    add_gradients_by_states(in, dy, d);
}

}  // namespace orrery::nn
