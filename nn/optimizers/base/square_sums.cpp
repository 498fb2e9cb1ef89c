#include "nn/optimizers/base/square_sums.h"

#include <algorithm>

#include "engine/loops/tensor_loops.h"

namespace orrery::nn {
namespace {

struct Square {
  template <class A>
  HOST_DEVICE double operator()(A x) const {
    return static_cast<double>(x) * static_cast<double>(x);
  }
};

}  // namespace

std::vector<IndexRange> pieces_of(const IndexRange& range, Device device) {
  if (device == Device::cuda) return {range};
  const int64_t n = range.size();
  const auto [count, length] = detail::blocks_of_sum(n, 1);
  std::vector<IndexRange> pieces;
  for (int64_t i = 0; i < count; ++i)
    pieces.push_back({range.begin + std::min(n, i * length), range.begin + std::min(n, (i + 1) * length)});
  return pieces;
}

SquareSums::SquareSums(const Tensor& flat, std::vector<IndexRange> ranges)
    : ranges_(std::move(ranges)),
      sums_(Tensor::zeros(Shape{static_cast<int64_t>(ranges_.size())}, Dtype::f64, flat.device())) {
  for (const IndexRange& range : ranges_)
    for (const IndexRange& piece : pieces_of(range, flat.device())) pieces_.push_back(piece);
  squares_.resize(pieces_.size());
}

const Tensor& SquareSums::of(const Tensor& x, const Owners* owners) {
  if (x.device() == Device::cuda) {
    if (owners) owners->gather(x);  // a GPU adds up all elements at once
    for (size_t i = 0; i < ranges_.size(); ++i)
      sum_of_squares(x.flat_view(ranges_[i].begin, Shape{ranges_[i].size()}), sums_[static_cast<int64_t>(i)]);
    return sums_;
  }
  if (owners) owners->complete(x, pieces_);
  dispatch(x.dtype(), "sum_of_squares", [&]<class T>() {
    const T* const values = x.data<T>();
    parallel_for(static_cast<int64_t>(pieces_.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const IndexRange& piece = pieces_[static_cast<size_t>(i)];
        if (owners && !owners->is_mine(piece)) continue;
        squares_[static_cast<size_t>(i)] =
            CpuRow{static_cast<int>(piece.size())}.sum(Square{}, In<T>{values + piece.begin});
      }
    });
  });
  if (owners) owners->share(pieces_, squares_);
  auto* const sums = sums_.mutable_data<double>();
  size_t piece = 0;
  for (size_t i = 0; i < ranges_.size(); ++i) {
    sums[i] = 0;
    do sums[i] += squares_[piece];
    while (pieces_[piece++].end < ranges_[i].end);
  }
  return sums_;
}

void sum_of_squares(const Tensor& x, const Tensor& sum) {
  sum_elements("sum_of_squares", Square{}, out_sums<double>(sum), row_of(x));
}

}  // namespace orrery::nn
