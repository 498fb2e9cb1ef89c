// Norms of gradients come from pieces. They have the same bits as additions in the order of the plain
// loops here, and as sum_of_squares of the same range.
#include "nn/optimizers/base/square_sums.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "engine/system/parallel.h"
#include "nn/optimizers/base/optimizer.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::random_tensor;

namespace {

// Squares of f32 are exact in f64, so a fused multiply-add has the bits of both operations.
double plain_sum(const std::vector<double>& x, int64_t first, int64_t count) {
  if (count > 4096) {
    const int64_t half = (count / 2 + 4095) / 4096 * 4096;
    return plain_sum(x, first, half) + plain_sum(x, first + half, count - half);
  }
  double lane[32] = {};
  int64_t i = 0;
  const auto add = [&](int64_t lanes) {
    for (int64_t l = 0; l < lanes; ++l, ++i) {
      const double v = x[static_cast<size_t>(first + i)];
      lane[l] += v * v;
    }
  };
  while (i + 32 <= count) add(32);
  if (i + 16 <= count) add(16);
  add(count - i);
  for (int half = 16; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lane[l] += lane[l + half];
  return lane[0];
}
double plain_sum_of_squares(const std::vector<double>& x, const IndexRange& range) {
  const int64_t n = range.size(), blocks = std::clamp<int64_t>((n + 16383) / 16384, 1, 64),
                length = (n + blocks - 1) / blocks;
  double sum = 0;
  for (int64_t at = 0; at < n; at += length) sum += plain_sum(x, range.begin + at, std::min(length, n - at));
  return sum;
}
double whole_sum_of_squares(const Tensor& x, const IndexRange& range) {
  const Tensor sum = Tensor::zeros({}, Dtype::f64);
  sum_of_squares(x.flat_view(range.begin, Shape{range.size()}), sum);
  return sum.item();
}

struct Many final : Module {  // sizes around multiples of chunks, lanes and pieces; a packed matrix
  std::vector<Parameter> parameters;
  explicit Many(Dtype dtype) {
    for (const Shape& shape : {Shape{1}, Shape{31}, Shape{4097}, Shape{16384}, Shape{3, 5461}, Shape{16385},
                               Shape{300, 1000}, Shape{1250, 1001}})
      parameters.emplace_back(shape, constant(0.5), dtype);
    parameters.back().packed_rows = {1000, 249, 1};
    for (Parameter& p : parameters) fill(p.value, constant(0.5), {});
  }
  Tensor forward(const Tensor& x, ForwardPass&) override { return x; }
  void visit(Visitor& v) override {
    for (size_t i = 0; i < parameters.size(); ++i) v("p" + std::to_string(i), parameters[i]);
  }
};

template <class F>
void with_threads(const F& f) {
  const int before = thread_count();
  for (const int threads : {1, 2, 3}) {
    set_thread_count(threads);
    f();
  }
  set_thread_count(before);
}

}  // namespace

TEST_CASE("square sums: pieces cover a range in order and are as long as its length says") {
  for (const int64_t n : {0, 1, 16384, 16385, 1 << 20, (1 << 20) + 1, 3'000'001}) {
    const std::vector<IndexRange> pieces = pieces_of({5, 5 + n}, Device::cpu);
    CAPTURE(n);
    CHECK(static_cast<int64_t>(pieces.size()) == std::clamp<int64_t>((n + 16383) / 16384, 1, 64));
    int64_t next = 5;
    for (const IndexRange& piece : pieces) {
      CHECK(piece.begin == next);
      CHECK((piece.size() > 0 || n == 0));
      next = piece.end;
    }
    CHECK(next == 5 + n);
    CHECK(pieces_of({5, 5 + n}, Device::cuda) == std::vector<IndexRange>{{5, 5 + n}});
  }
}

TEST_CASE("square sums: bits are those of the plain order and of sum_of_squares, for ranges of any length") {
  const std::vector<int64_t> lengths = {0,     1,     15,    16,      17,      31,           32,
                                        33,    63,    100,   4095,    4096,    4097,         12289,
                                        16384, 16385, 100'003, 1 << 20, (1 << 20) + 1, 2'345'679};
  std::vector<IndexRange> ranges;
  int64_t size = 0;
  for (const int64_t n : lengths) ranges.push_back({size + 3, size + 3 + n}), size += n + 7;
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    const Tensor x = random_tensor({size}, 7, dtype);
    const std::vector<double> values = x.to_vector();
    SquareSums sums(x, ranges);
    with_threads([&] {
      const std::vector<double> found = sums.of(x).to_vector();
      REQUIRE(found.size() == ranges.size());
      for (size_t i = 0; i < ranges.size(); ++i) {
        CAPTURE(lengths[i]);
        CHECK(found[i] == whole_sum_of_squares(x, ranges[i]));
        if (dtype == Dtype::f32) CHECK(found[i] == plain_sum_of_squares(values, ranges[i]));
      }
    });
  }
}

TEST_CASE("square sums: the global norm has the bits of one sum over the whole flat gradient") {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64}) {
    Many model(dtype);
    FlatParameters flat(model);
    const auto optimizer = make_optimizer(parse_spec("sgd"), flat);
    flat.zero_gradients();
    for (size_t i = 0; i + 2 < model.parameters.size(); ++i) {  // the last two keep gradients of zeros
      const Tensor& p = model.parameters[i].value;
      backward(p * random_tensor(p.shape(), static_cast<int>(i), p.dtype()), Tensor::full(p.shape(), 1, p.dtype()));
    }
    const IndexRange whole{0, flat.gradients().numel()};
    with_threads([&] {
      CHECK(optimizer->gradient_norm() == std::sqrt(whole_sum_of_squares(flat.gradients(), whole)));
      if (dtype != Dtype::f64)
        CHECK(optimizer->gradient_norm() == std::sqrt(plain_sum_of_squares(flat.gradients().to_vector(), whole)));
    });
    double norm = 0;
    CHECK(optimizer->step(0.1, 1, &norm));
    CHECK(norm == optimizer->gradient_norm());
  }
}

// Adagrad's first step from 0: s = g^2, p = -a g / (|g| + epsilon), with a from the norm of each packed tensor.
TEST_CASE("square sums: Adagrad clips each packed tensor by the bits of that tensor's sum") {
  Many model(Dtype::f64);
  FlatParameters flat(model);
  const double clip = 1e-3, rate = 0.5;
  const auto optimizer = make_optimizer(parse_spec("adagrad(grad_clip=0.001, epsilon=1)"), flat);
  flat.values().copy_from(Tensor::zeros_like(flat.values()));
  for (Parameter& p : model.parameters) backward(p.value * 1.0, random_tensor(p.value.shape(), 5));
  const std::vector<double> g = flat.gradients().to_vector();
  CHECK(optimizer->step(rate));
  const std::vector<double> after = flat.values().to_vector();
  for (const FlatParameters::Segment& s : flat.segments())
    for (const FlatParameters::PackedTensor& packed : FlatParameters::packed_tensors_of(s)) {
      const double norm = std::sqrt(whole_sum_of_squares(flat.gradients(), {packed.begin, packed.end})),
                   a = norm > clip ? rate * clip / (norm + 1e-10) : rate;
      int64_t different = 0;
      for (auto i = static_cast<size_t>(packed.begin); i < static_cast<size_t>(packed.end); ++i)
        different += after[i] != -(a * g[i] / (std::fabs(g[i]) + 1));
      CAPTURE(s.path);
      CAPTURE(packed.shape);
      CHECK(different == 0);
    }
}
