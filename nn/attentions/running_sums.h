// The running sums of linear attention (linear.cpp), whose ranges say which keys a query sees.
//
// On a CPU a whole state S (D, Dv) runs along a head: sums of outer products vectorize without being folded.  A device
// has many more threads than there are heads, so there each column of a state runs on its own.
#pragma once

#include <vector>

#include "engine/loops.h"
#include "engine/parallel.h"
#include "engine/tensor.h"

namespace orrery::nn {

// (B, T, heads, n) numbers, one token and head at a time, from the last token if `reversed`.
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

// out_i[e] += <c_i, s_i>,  s_i = sum over the keys j that i sees of a_j[e] b_j.  A row is one e of one query head.
template <class A>
struct ScanOfQueries {
  Heads<const A> a, b, c;
  Heads<A> out;
  const int32_t* ranges;
  A* states;  // a row each
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const int64_t e = r % a.n, head = r / a.n % c.heads, sequence = r / a.n / c.heads;
    const int64_t key_head = head / (c.heads / a.heads);
    const int32_t* const range = ranges + 2 * sequence * c.tokens;
    A* const s = states + r * row.n;
    int64_t first = 0, next = 0;
    row.each([=](int k) { s[k] = 0; });
    for (int64_t i = 0; i < c.tokens; ++i) {
      if (range[2 * i] != first) {
        row.each([=](int k) { s[k] = 0; });
        first = next = range[2 * i];
      }
      for (; next < range[2 * i + 1]; ++next) {
        const A x = a.at(sequence, key_head, next)[e];
        const A* const y = b.at(sequence, key_head, next);
        row.each([=](int k) { s[k] += x * y[k]; });
      }
      const A* const z = c.at(sequence, head, i);
      const A sum = row.sum([=](int k) { return s[k] * z[k]; });
      A* const to = out.at(sequence, head, i) + e;
      row.once([=] { *to += sum; });
    }
  }
};

// out_j[e] += <c_j, s_j>,  s_j = sum over the queries i that see j of a_i[e] b_i.  A row is one e of one key head,
// which the query heads of its group read one after the other.
template <class A>
struct ScanOfKeys {
  Heads<const A> a, b, c;
  Heads<A> out;
  const int32_t* ranges;
  A* states;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const int64_t e = r % a.n, key_head = r / a.n % c.heads, sequence = r / a.n / c.heads;
    const int64_t group = a.heads / c.heads;
    for (int64_t head = key_head * group; head < (key_head + 1) * group; ++head) scan(row, r, sequence, head, e);
  }
  template <class Row>
  HOST_DEVICE void scan(Row row, int64_t r, int64_t sequence, int64_t head, int64_t e) const {
    const int64_t key_head = head / (a.heads / c.heads);
    const int32_t* const range = ranges + 2 * sequence * a.tokens;
    A* const s = states + r * row.n;
    const auto read_down_to = [&](int64_t end, int64_t& next) {  // keys at `next` and beyond are done
      while (next > end) {
        --next;
        const A* const z = c.at(sequence, key_head, next);
        const A sum = row.sum([=](int k) { return s[k] * z[k]; });
        A* const to = out.at(sequence, key_head, next) + e;
        row.once([=] { *to += sum; });
      }
    };
    int64_t first = -1, next = 0;
    for (int64_t i = a.tokens - 1; i >= 0; --i) {
      if (range[2 * i] != first) {
        if (first >= 0) read_down_to(first, next);
        row.each([=](int k) { s[k] = 0; });
        first = range[2 * i], next = range[2 * i + 1];
      }
      read_down_to(range[2 * i + 1], next);
      const A x = a.at(sequence, head, i)[e];
      const A* const y = b.at(sequence, head, i);
      row.each([=](int k) { s[k] += x * y[k]; });
    }
    if (first >= 0) read_down_to(first, next);
  }
};

// ---- the same on a CPU: o += S^T x for every query, with S the sum of y v^T

template <class A>
void add_outer(A* state, const A* x, const A* v, int64_t rows, int64_t columns) {  // state += x v^T
  for (int64_t d = 0; d < rows; ++d)
    for (int64_t e = 0; e < columns; ++e) state[d * columns + e] += x[d] * v[e];
}
template <class A>
void add_left(A* out, const A* state, const A* x, int64_t rows, int64_t columns) {  // out += state^T x
  for (int64_t d = 0; d < rows; ++d)
    for (int64_t e = 0; e < columns; ++e) out[e] += state[d * columns + e] * x[d];
}
template <class A>
void add_right(A* out, const A* state, const A* v, int64_t rows, int64_t columns) {  // out += state v
  for (int64_t d = 0; d < rows; ++d)
    out[d] += CpuRow{static_cast<int>(columns)}.sum([=](int e) { return state[d * columns + e] * v[e]; });
}

// One head of one sequence.
template <class A>
struct HeadScan {
  Heads<const A> x, y, v;
  int64_t sequence, head, key_head;
  const int32_t* range;

  // Calls read(i, state) for every query, in order, with the state S_i.
  template <class Read>
  void queries(const Read& read) const {
    std::vector<A> state(static_cast<size_t>(x.n * v.n));
    int64_t first = 0, next = 0;
    for (int64_t i = 0; i < x.tokens; ++i) {
      if (range[2 * i] != first) std::fill(state.begin(), state.end(), A(0)), first = next = range[2 * i];
      for (; next < range[2 * i + 1]; ++next)
        add_outer(state.data(), y.at(sequence, key_head, next), v.at(sequence, key_head, next), x.n, v.n);
      read(i, state.data());
    }
  }
  // Calls read(j, state) for every key that is seen, from the last to the first, with the state R_j.
  template <class Read>
  void keys(const Heads<const A>& dy, const Read& read) const {
    std::vector<A> state(static_cast<size_t>(x.n * v.n));
    int64_t first = -1, next = 0;  // keys at `next` and beyond are done
    for (int64_t i = x.tokens - 1; i >= 0; --i) {
      if (range[2 * i] != first) {
        while (first >= 0 && next > first) read(--next, state.data());
        std::fill(state.begin(), state.end(), A(0)), first = range[2 * i], next = range[2 * i + 1];
      }
      while (next > range[2 * i + 1]) read(--next, state.data());
      add_outer(state.data(), x.at(sequence, head, i), dy.at(sequence, head, i), x.n, v.n);
    }
    while (first >= 0 && next > first) read(--next, state.data());
  }
};

template <class A>
void add_outputs(const Heads<const A>& x, const Heads<const A>& y, const Heads<const A>& v, const Heads<A>& out,
                 const int32_t* ranges, int64_t batch) {
  parallel_for(batch * x.heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u) {
      const int64_t sequence = u / x.heads, head = u % x.heads;
      const HeadScan<A> scan{x, y, v, sequence, head, head / (x.heads / y.heads), ranges + 2 * sequence * x.tokens};
      scan.queries([&](int64_t i, const A* state) {
        add_left(out.at(sequence, head, i), state, x.at(sequence, head, i), x.n, v.n);
      });
    }
  });
}
template <class A>
struct LinearGradients {
  Heads<A> x, y, v;
};
template <class A>
void add_gradients(const Heads<const A>& x, const Heads<const A>& y, const Heads<const A>& v, const Heads<const A>& dy,
                   const LinearGradients<A>& d, const int32_t* ranges, int64_t batch) {
  const int64_t group = x.heads / y.heads;
  parallel_for(batch * y.heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u)
      for (int64_t q = 0; q < group; ++q) {
        const int64_t sequence = u / y.heads, key_head = u % y.heads, head = key_head * group + q;
        const HeadScan<A> scan{x, y, v, sequence, head, key_head, ranges + 2 * sequence * x.tokens};
        scan.queries([&](int64_t i, const A* s) {
          add_right(d.x.at(sequence, head, i), s, dy.at(sequence, head, i), x.n, v.n);
        });
        scan.keys(dy, [&](int64_t j, const A* r) {
          add_right(d.y.at(sequence, key_head, j), r, v.at(sequence, key_head, j), x.n, v.n);
          add_left(d.v.at(sequence, key_head, j), r, y.at(sequence, key_head, j), x.n, v.n);
        });
      }
  });
}

}  // namespace orrery::nn
