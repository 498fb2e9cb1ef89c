// Products of whole numbers on a GPU or its emulation, against the definition. Sums of whole numbers
// are equal in any order, so equal means ==.
#pragma once

#include <algorithm>
#include <memory>
#include <type_traits>
#include <vector>

#include "cuda/matmul/matmul.h"
#include "tests/cuda/kernel_testing.h"

namespace orrery {
namespace {

using Numbers = std::vector<double>;

struct Form {
  int64_t m, n, k, batch = 1;
  bool transpose_a = false, transpose_b = false, share_a = false, share_b = false, accumulate = false;
  bool bias = false, residual = false;
  std::vector<int64_t> columns = {};  // columns of each output; none: one output
  int64_t gap = 0;                    // elements between the stored rows of A and of B
  int64_t batch_gap = 0;              // elements between the matrices
  int64_t offset = 0;                 // distance of every array from an aligned address
  int bf16_terms = 0;                 // bf16 terms of an f32 element
  bool row_sums = false, accumulate_row_sums = false;
  std::vector<int64_t> a_columns = {};  // columns of each matrix of A's stored rows; none: A is one matrix

  int64_t rows_a() const { return transpose_a ? k : m; }
  int64_t rows_b() const { return transpose_b ? n : k; }
  int64_t stride_a() const { return (transpose_a ? m : k) + gap; }
  int64_t stride_b() const { return (transpose_b ? k : n) + gap; }
  int64_t size_a() const { return rows_a() * stride_a() + batch_gap; }
  int64_t size_b() const { return rows_b() * stride_b() + batch_gap; }
  std::vector<int64_t> output_columns() const { return columns.empty() ? std::vector<int64_t>{n} : columns; }
};

template <class T>
double number(T x) {
  return static_cast<double>(static_cast<Arithmetic<T>>(x));
}

// Returns stored rows, with NaN where the product must not read: in the gaps and in front.
template <class T>
std::vector<T> stored(const Form& f, int64_t matrices, int64_t size, int64_t rows, int64_t stride, uint32_t seed) {
  std::vector<T> x(static_cast<size_t>(f.offset + matrices * size),
                   static_cast<T>(std::numeric_limits<float>::quiet_NaN()));
  const std::vector<T> numbers = whole_numbers<T>(matrices * rows * (stride - f.gap), seed);
  for (int64_t r = 0; r < matrices * rows; ++r)
    std::copy_n(numbers.data() + r * (stride - f.gap), stride - f.gap,
                x.data() + f.offset + r / rows * size + r % rows * stride);
  return x;
}

template <class T, class Result = T>
struct Data {
  std::vector<T> a, b;
  std::vector<Result> bias;
  std::vector<Arithmetic<T>> row_sums;
  std::vector<std::vector<Result>> c, residual;  // for each output
  explicit Data(const Form& f)
      : a(stored<T>(f, f.share_a ? 1 : f.batch, f.size_a(), f.rows_a(), f.stride_a(), 1)),
        b(stored<T>(f, f.share_b ? 1 : f.batch, f.size_b(), f.rows_b(), f.stride_b(), 2)),
        bias(whole_numbers<Result>(f.n, 3)),
        row_sums(whole_numbers<Arithmetic<T>>(f.m, 6)) {
    for (const int64_t columns : f.output_columns()) {
      c.push_back(whole_numbers<Result>(f.offset + f.batch * f.m * columns, 4));
      residual.push_back(whole_numbers<Result>(f.batch * f.m * columns, 5));
    }
  }
};

template <class T, class Result>
std::vector<Numbers> by_hand(const Form& f, const Data<T, Result>& data) {
  std::vector<Numbers> result;
  int64_t first = 0;
  for (size_t output = 0; output < data.c.size(); first += f.output_columns()[output++]) {
    Numbers c;
    for (const Result x : data.c[output]) c.push_back(number(x));
    const int64_t columns = f.output_columns()[output];
    for (int64_t r = 0; r < f.batch * f.m; ++r)
      for (int64_t j = 0; j < columns; ++j) {
        const int64_t s = r / f.m, i = r % f.m, column = first + j;
        const T* const a = data.a.data() + f.offset + (f.share_a ? 0 : s * f.size_a());
        const T* const b = data.b.data() + f.offset + (f.share_b ? 0 : s * f.size_b());
        double& to = c[static_cast<size_t>(f.offset + r * columns + j)];
        double sum = f.accumulate ? to : 0;
        for (int64_t k = 0; k < f.k; ++k)
          sum += number(f.transpose_a ? a[k * f.stride_a() + i] : a[i * f.stride_a() + k]) *
                 number(f.transpose_b ? b[column * f.stride_b() + k] : b[k * f.stride_b() + column]);
        if (f.bias) sum += number(data.bias[static_cast<size_t>(column)]);
        if (f.residual) sum += number(data.residual[output][static_cast<size_t>(r * columns + j)]);
        to = number(static_cast<Result>(static_cast<Arithmetic<Result>>(sum)));
      }
    result.push_back(c);
  }
  if (f.row_sums) {
    Numbers sums;
    for (int64_t i = 0; i < f.m; ++i) {
      double sum = f.accumulate_row_sums ? number(data.row_sums[static_cast<size_t>(i)]) : 0;
      for (int64_t k = 0; k < f.k; ++k) sum += number(data.a[static_cast<size_t>(f.offset + k * f.stride_a() + i)]);
      sums.push_back(sum);
    }
    result.push_back(sums);
  }
  return result;
}

// multiply(p): computes the product.
template <class T, class Result, class Multiply>
std::vector<Numbers> on_gpu(const Form& f, const Data<T, Result>& data, const Multiply& multiply) {
  DeviceArray<T> a(Device::cuda, data.a), b(Device::cuda, data.b);
  DeviceArray<Result> bias(Device::cuda, data.bias), residual(Device::cuda, data.residual[0]);
  cuda::Matmul<T, Result> p{};
  p.m = f.m, p.n = f.n, p.k = f.k, p.batch = f.batch, p.accumulate = f.accumulate;
  p.a = {a.data() + f.offset, f.stride_a(), f.share_a ? 0 : f.size_a(), f.transpose_a};
  p.b = {b.data() + f.offset, f.stride_b(), f.share_b ? 0 : f.size_b(), f.transpose_b};
  p.bias = f.bias ? bias.data() : nullptr;
  p.residual = f.residual ? residual.data() : nullptr;
  std::vector<std::unique_ptr<DeviceArray<T>>> parts;
  int64_t begin = 0;
  for (size_t part = 0; part < f.a_columns.size(); begin += f.a_columns[part++]) {
    std::vector<T> x(static_cast<size_t>(f.offset));
    for (int64_t r = 0; r < f.rows_a(); ++r) {
      const auto first = data.a.begin() + f.offset + r * f.stride_a() + begin;
      x.insert(x.end(), first, first + f.a_columns[part]);
    }
    parts.push_back(std::make_unique<DeviceArray<T>>(Device::cuda, x));
    p.a_parts[part] = {parts.back()->data() + f.offset, f.a_columns[part], f.a_columns[part]};
  }
  DeviceArray<Arithmetic<T>> row_sums(Device::cuda, data.row_sums);
  if (f.row_sums) p.row_sums = row_sums.data(), p.accumulate_row_sums = f.accumulate_row_sums;
  std::vector<std::unique_ptr<DeviceArray<Result>>> c;
  for (size_t output = 0; output < data.c.size(); ++output) {
    c.push_back(std::make_unique<DeviceArray<Result>>(Device::cuda, data.c[output]));
    p.c[output] = {c.back()->data() + f.offset, f.output_columns()[output]};
  }
  multiply(p);
  std::vector<Numbers> result;
  for (const auto& output : c) result.push_back(output->read());
  if (f.row_sums) result.push_back(row_sums.read());
  return result;
}
template <class T, class Result>
std::vector<Numbers> on_gpu(const Form& f, const Data<T, Result>& data) {
  return on_gpu(f, data, [&](const auto& p) {
    if constexpr (std::is_same_v<T, float>)
      cuda::multiply(p, f.bf16_terms);
    else
      cuda::multiply(p);
  });
}

template <class T>
bool right(const Form& f) {
  const Data<T> data(f);
  return on_gpu(f, data) == by_hand(f, data);
}

template <class T, class Result = T>
void check_form(const Form& f) {
  INFO(name(dtype_of<T>), " to ", name(dtype_of<Result>), ": ", f.m, " x ", f.n, " x ", f.k, ", batch ", f.batch,
       ", transposed ", f.transpose_a, f.transpose_b, ", shared ", f.share_a, f.share_b, ", accumulate ", f.accumulate,
       ", bias ", f.bias, ", residual ", f.residual, ", ", f.output_columns().size(), " parts, gap ", f.gap,
       ", offset ", f.offset, ", elements in ", f.bf16_terms, " parts, ", f.a_columns.size(), " matrices in A's rows");
  const Data<T, Result> data(f);
  CHECK(on_gpu(f, data) == by_hand(f, data));
}

}  // namespace
}  // namespace orrery
