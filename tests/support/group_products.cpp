#include "tests/support/group_products.h"

#include <bit>
#include <limits>
#include <string>
#include <utility>

#include "tests/support/cuda_on_cpu.h"

namespace cuda_on_cpu {
namespace {

constexpr int rows = 64, depth = 16, line = 128;

// Returns the index in D (64, N) of value v of thread t.
size_t element_index(size_t t, size_t v, int columns) {
  const size_t row = t / 32 * 16 + t % 32 / 4 + v % 4 / 2 * 8, column = v / 4 * 8 + t % 4 * 2 + v % 2;
  return row * static_cast<size_t>(columns) + column;
}

// An operand in shared memory. `index` is a row of A or a column of B.
class Operand {
 public:
  Operand(uint64_t bits, bool transposed, const unsigned char* shared, size_t bytes)
      : first_((bits & 0x3fff) << 4), leading_((bits >> 16 & 0x3fff) << 4), stride_((bits >> 32 & 0x3fff) << 4),
        transposed_(transposed), shared_(shared), bytes_(bytes) {
    if (bits >> 62 != 1 || (bits >> 49 & 7) != 0)
      throw Fault("product of a warp group: an operand is not in lines of 128 bytes from a multiple of 1,024 on");
  }
  uint16_t at(size_t index, size_t k) const {
    size_t address = first_;
    if (transposed_)
      address += index / 64 * leading_ + k / 8 * stride_ + k % 8 * line + index % 64 * 2;
    else
      address += index / 8 * stride_ + index % 8 * line + k * 2;
    address ^= address / line % 8 * 16;
    if (address + 2 > bytes_)
      throw Fault("product of a warp group: an operand is beyond the block's shared memory, at byte " +
                  std::to_string(address));
    return static_cast<uint16_t>(shared_[address] | shared_[address + 1] << 8);
  }

 private:
  size_t first_, leading_, stride_;
  bool transposed_;
  const unsigned char* shared_;
  size_t bytes_;
};

std::vector<uint16_t> operands(const GroupProduct& product, const unsigned char* shared, size_t bytes) {
  const Operand a(product.a, product.a_transposed, shared, bytes), b(product.b, product.b_transposed, shared, bytes);
  std::vector<uint16_t> result;
  for (size_t row = 0; row < rows; ++row)
    for (size_t k = 0; k < depth; ++k) result.push_back(a.at(row, k));
  for (size_t k = 0; k < depth; ++k)
    for (size_t column = 0; column < static_cast<size_t>(product.columns); ++column)
      result.push_back(b.at(column, k));
  return result;
}

}  // namespace

void GroupProducts::start(void* const* thread, const unsigned char* shared, size_t bytes) {
  const GroupProduct& first = *static_cast<const GroupProduct*>(thread[0]);
  for (unsigned t = 0; t < threads_of_group; ++t) {
    const GroupProduct& mine = *static_cast<const GroupProduct*>(thread[t]);
    if (mine.a != first.a || mine.b != first.b || mine.columns != first.columns ||
        mine.a_transposed != first.a_transposed || mine.b_transposed != first.b_transposed)
      throw Fault("product of a warp group: its threads name different operands");
  }
  Sum& sum = sums_[first.d];
  if (sum.in_flight++ == 0) {
    sum.value.resize(static_cast<size_t>(rows * first.columns));
    for (size_t t = 0; t < threads_of_group; ++t) {
      float* const d = static_cast<const GroupProduct*>(thread[t])->d;
      sum.d.push_back(d);
      for (size_t v = 0; v < static_cast<size_t>(first.columns) / 2; ++v)
        sum.value[element_index(t, v, first.columns)] = std::exchange(d[v], std::numeric_limits<float>::quiet_NaN());
    }
  }
  started_.push_back({first, shared, bytes, operands(first, shared, bytes), committed_});
}

void GroupProducts::wait(int in_flight) {
  const int landed = committed_ - in_flight;  // groups
  size_t done = 0;
  for (; done < started_.size() && started_[done].group < landed; ++done) {
    const auto& [product, shared, bytes, words, group] = started_[done];
    if (operands(product, shared, bytes) != words)
      throw Fault("product of a warp group: an operand was not there at its start, or was written to before its end");
    const auto columns = static_cast<size_t>(product.columns);
    std::vector<float> numbers;
    for (const uint16_t word : words) numbers.push_back(std::bit_cast<float>(uint32_t{word} << 16));
    const float *const a = numbers.data(), *const b = a + rows * depth;
    Sum& sum = sums_.at(product.d);
    for (size_t row = 0; row < rows; ++row) {
      float* const to = &sum.value[row * columns];
      if (options.truncating) {
        for (size_t column = 0; column < columns; ++column)
          to[column] = truncated_sum(to[column], &a[row * depth], &b[column], static_cast<int>(columns));
        continue;
      }
      for (size_t k = 0; k < depth; ++k)
        for (size_t column = 0; column < columns; ++column) to[column] += a[row * depth + k] * b[k * columns + column];
    }
    if (--sum.in_flight > 0) continue;
    for (size_t t = 0; t < threads_of_group; ++t)
      for (size_t v = 0; v < columns / 2; ++v) sum.d[t][v] = sum.value[element_index(t, v, product.columns)];
    sums_.erase(product.d);
  }
  started_.erase(started_.begin(), started_.begin() + static_cast<std::ptrdiff_t>(done));
}

}  // namespace cuda_on_cpu
