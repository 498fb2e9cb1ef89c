// Relative-position terms of the scores of a tile, and their gradients:
//
//   t_ij += b_|x| + scale <q_i, p_|x|>,  x = i + query_offset - j
//   db_|x| = sum dt_ij,   dp_|x| = scale sum dt_ij q_i,   dq_i += scale sum_j dt_ij p_|x|
//
// A tile of n keys and w lanes has n + w - 1 distances, one for each diagonal. For p, a band
// (distances, lanes) holds <q_i, p_|x|> once for each distance and query that meet. `skew` shifts
// its columns: diagonals become rows, which are added to the tile. Backward does the reverse.
#pragma once

#include "engine/attention/kernels.h"

namespace orrery::detail::attention {
namespace {

// The rows of a band: row r has x = first + r; key j and lane i meet in row i + keys - 1 - j.
struct Diagonals {
  int64_t first, keys;
  Range visible;  // rows with distances of visible pairs

  int64_t distance(int64_t row) const { return first + row < 0 ? -(first + row) : first + row; }
};

template <class N, class A = Accumulator<N>>
Diagonals diagonals_of(const QueryBlock<N>& block, const Keys& keys) {
  const int64_t max_distance = block.p.distances - 1, offset = block.mask.query_offset;
  const int64_t first = block.first + offset - (keys.end() - 1);
  const int64_t nearest = maximum(offset - block.mask.last, -max_distance),
                farthest = minimum(offset - block.mask.first, max_distance);
  return {
      first, keys.count, {maximum(0, nearest - first), minimum(keys.count + block.width - 1, farthest - first + 1)}};
}

// Calls body(rows, distance, step) for one or two runs of rows of the band, whose |x| starts at
// `distance` and changes by `step`.
template <class Body>
void each_run(const Diagonals& diagonals, const Body& body) {
  const Range rows = diagonals.visible;
  const int64_t turn = maximum(rows.begin, minimum(rows.end, -diagonals.first));  // from here on x >= 0
  if (rows.begin < turn) body(Range{rows.begin, turn}, diagonals.distance(rows.begin), -1);
  if (turn < rows.end) body(Range{turn, rows.end}, diagonals.distance(turn), 1);
}

// Moves lane l of row r + l to row r, for `rows` rows; reads lanes<A> - 1 rows more.
template <class A>
void skew(Matrix<A> x, int64_t rows) {
  int64_t left = rows + lanes<A> - 1;
  for (int s = 1; s < lanes<A>; s *= 2) {
    const Mask<A> shifted = (lane_numbers<A>() & s) != 0;
    left -= s;
    for (int64_t r = 0; r < left; ++r) store(x.row(r), select<A>(shifted, load(x.row(r + s)), load(x.row(r))));
  }
}

// Inverts `skew` into `rows` + lanes<A> - 1 rows; the last lanes<A> - 1 must be zero before.
template <class A>
void straighten(Matrix<A> x, int64_t rows) {
  for (int s = lanes<A> / 2; s >= 1; s /= 2) {
    const Mask<A> shifted = (lane_numbers<A>() & s) != 0;
    for (int64_t r = rows + lanes<A> - 2; r >= 0; --r) {
      const Vector<A> before = r >= s ? load(x.row(r - s)) : Vector<A>{};
      store(x.row(r), select<A>(shifted, before, load(x.row(r))));
    }
  }
}

template <class N, class A = Accumulator<N>>
void add_distance_bias(const QueryBlock<N>& block, const Keys& keys, A* scores, const Workspace<A>& w) {
  const int64_t distances = block.p.distances;
  const A* const bias = block.p.relative_bias + block.head * distances;
  const Diagonals diagonals = diagonals_of(block, keys);
  for (int64_t r = 0; r < keys.count + block.width - 1; ++r)
    w.distance_row[r] = bias[minimum(diagonals.distance(r), distances - 1)];
  for (int64_t j = 0; j < keys.count; ++j)
    for (int64_t i = 0; i < block.width; i += lanes<A>) {
      A* const t = scores + j * block.width + i;
      store(t, load(t) + load(w.distance_row + i + keys.count - 1 - j));
    }
}

template <class N, class A = Accumulator<N>>
void add_distance_products(const QueryBlock<N>& block, const Keys& keys, A* scores, const Workspace<A>& w) {
  const TensorView<const Element<N>> p = block.as_elements(block.p.relative_embedding);
  const int64_t width = block.width;
  each_run(diagonals_of(block, keys), [&](Range rows, int64_t distance, int64_t step) {
    const int64_t n = rows.end - rows.begin, size = block.p.head_size;
    const Matrix<const A> left =
        left_operand_rows<N>({p.data + distance * p.stride, step * p.stride}, n, size, w.distance_rows);
    const Update<A> scaled = {.scale = scale_of_products(block), .add = false};
    *w.multiply_adds += product<N>(n, width, size, {left.data, left.stride, 1}, {w.query_columns, width},
                                   {w.band + rows.begin * width, width}, scaled, full_band,
                                   {rows.begin - (keys.count - 1), rows.begin});
  });
  for (int64_t i = 0; i < width; i += lanes<A>) {
    const Matrix<A> column = {w.band + i * width + i, width};
    skew(column, keys.count);
    for (int64_t j = 0; j < keys.count; ++j) {
      A* const t = scores + j * width + i;
      store(t, load(t) + load(column.row(keys.count - 1 - j)));
    }
  }
}

template <class N, class A = Accumulator<N>>
void add_distance_terms(const QueryBlock<N>& block, const Keys& keys, A* scores, const Workspace<A>& w) {
  if (keys.slots) return;
  if (block.p.relative_bias) add_distance_bias(block, keys, scores, w);
  if (block.p.relative_embedding.data) add_distance_products(block, keys, scores, w);
}

// ---- backward

// Writes the band of a tile of gradients, with zeros where no key meets a query.
template <class N, class A = Accumulator<N>>
void gather_band(const QueryBlock<N>& block, const Keys& keys, const A* gradients, A* band) {
  const int64_t width = block.width, rows = keys.count + width - 1;
  for (int64_t i = 0; i < rows * width; i += lanes<A>) store(band + i, Vector<A>{});
  for (int64_t i = 0; i < width; i += lanes<A>) {
    const Matrix<A> column = {band + i * width + i, width};
    const Mask<A> exists = lane_numbers<A>() < static_cast<Word<A>>(block.count - i);
    for (int64_t j = 0; j < keys.count; ++j)
      store(column.row(keys.count - 1 - j), select<A>(exists, load(gradients + j * width + i), Vector<A>{}));
    straighten(column, keys.count);
  }
}

template <class N, class A = Accumulator<N>>
void add_bias_gradients(const QueryBlock<N>& block, const Diagonals& diagonals, const Workspace<A>& w) {
  double* const bias = w.sums.relative_bias + block.head * block.p.distances;
  for (int64_t r = diagonals.visible.begin; r < diagonals.visible.end; ++r) {
    Vector<A> total{};
    for (int64_t i = 0; i < block.width; i += lanes<A>) total += load(w.band + r * block.width + i);
    bias[diagonals.distance(r)] += sum<A>(total);
  }
}

// Adds the gradients of the relative-position terms. `gradients`: dt of the tile;
// `query_gradients`: rows of dq, without data if not needed; `queries`: q of the block.
template <class N, class A = Accumulator<N>>
void add_distance_gradients(const QueryBlock<N>& block, const Keys& keys, const RightOperand<N>& queries,
                            const A* gradients, Matrix<A> query_gradients, const Workspace<A>& w) {
  const TensorView<const Element<N>> p = block.as_elements(block.p.relative_embedding);
  const int64_t width = block.width, size = block.p.head_size, last = keys.count - 1;
  const Diagonals diagonals = diagonals_of(block, keys);
  gather_band(block, keys, gradients, w.band);
  if (w.sums.relative_bias) add_bias_gradients(block, diagonals, w);
  if (!p.data) return;
  each_run(diagonals, [&](Range rows, int64_t distance, int64_t step) {
    const int64_t n = rows.end - rows.begin;
    const A* const band = w.band + rows.begin * width;
    const Matrix<const Element<N>> distances = {p.data + distance * p.stride, step * p.stride};
    if (query_gradients.data) {
      const RightOperand<N> right = {distances, right_operand_rows<N>(distances, n, size, w.distance_rows),
                                     finite(distances, n, size)};
      add_product_along_rows<N>(band, n, width, block.count, right, size, query_gradients, {block.p.scale, true},
                                {-rows.begin, last - rows.begin}, w);
    }
    if (!w.sums.relative_embedding) return;
    add_product_along_width<N>(band, n, width, block.count, queries, size, {w.distance_rows, size},
                               {block.p.scale, false}, {rows.begin - last, rows.begin}, w);
    for (int64_t r = 0; r < n; ++r)
      for (int64_t c = 0; c < size; ++c)
        w.sums.relative_embedding[(distance + step * r) * size + c] += w.distance_rows[r * size + c];
  });
}

}  // namespace
}  // namespace orrery::detail::attention
