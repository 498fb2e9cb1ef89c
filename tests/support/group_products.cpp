#include "tests/support/group_products.h"

#include <algorithm>
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
  // `site`: of the product that starts; null if no write can be hidden from it.
  uint16_t at(size_t index, size_t k, const Site* site) const {
    const size_t address = address_of(index, k);
    if (address + 2 > bytes_)
      throw Fault("product of a warp group: an operand is beyond the block's shared memory, at byte " +
                  std::to_string(address));
    if (site) hidden_writes().check(shared_ + address, 2, "a product of a warp group", *site);
    return static_cast<uint16_t>(shared_[address] | shared_[address + 1] << 8);
  }

 private:
  size_t address_of(size_t index, size_t k) const {
    size_t address = first_;
    if (transposed_)
      address += index / 64 * leading_ + k / 8 * stride_ + k % 8 * line + index % 64 * 2;
    else
      address += index / 8 * stride_ + index % 8 * line + k * 2;
    return address ^ address / line % 8 * 16;
  }

  size_t first_, leading_, stride_;
  bool transposed_;
  const unsigned char* shared_;
  size_t bytes_;
};

// A in registers: as mma's A in instructions.cpp, 16 rows for each warp.
uint16_t in_registers(const std::vector<const uint32_t*>& thread, size_t row, size_t k) {
  const uint32_t pair = thread[row / 16 * 32 + row % 8 * 4 + k % 8 / 2][row % 16 / 8 + k / 8 * 2];
  return static_cast<uint16_t>(pair >> k % 2 * 16);
}

std::vector<uint16_t> operands(const GroupProduct& product, const std::vector<const uint32_t*>& a_registers,
                               const unsigned char* shared, size_t bytes, const Site* site) {
  const Operand b(product.b, product.b_transposed, shared, bytes);
  const Operand a(product.a_registers ? product.b : product.a, product.a_transposed, shared, bytes);
  if (!hidden_writes().any()) site = nullptr;
  std::vector<uint16_t> result;
  for (size_t row = 0; row < rows; ++row)
    for (size_t k = 0; k < depth; ++k)
      result.push_back(product.a_registers ? in_registers(a_registers, row, k) : a.at(row, k, site));
  for (size_t k = 0; k < depth; ++k)
    for (size_t column = 0; column < static_cast<size_t>(product.columns); ++column)
      result.push_back(b.at(column, k, site));
  return result;
}

}  // namespace

void GroupProducts::start(void* const* thread, const unsigned char* shared, size_t bytes, bool begun, Site site) {
  const auto argument = [&](size_t t) -> const GroupProduct& { return *static_cast<const GroupProduct*>(thread[t]); };
  const GroupProduct& first = argument(0);
  std::vector<const uint32_t*> a_registers;
  for (size_t t = 0; t < threads_of_group; ++t) {
    const GroupProduct& mine = argument(t);
    if (mine.a != first.a || mine.b != first.b || mine.columns != first.columns ||
        mine.a_transposed != first.a_transposed || mine.b_transposed != first.b_transposed ||
        mine.accumulate != first.accumulate)
      throw Fault("product of a warp group: its threads name different operands");
    a_registers.push_back(mine.a_registers);
  }
  Sum& sum = sums_[first.d];
  if (!begun && (sum.in_flight == 0 || first.a_registers))
    stop("a product of a warp group has no group_products_begin() since its registers were accessed, at " + text(site));
  if (sum.in_flight++ == 0) {
    sum.value.resize(static_cast<size_t>(rows * first.columns));
    for (size_t t = 0; t < threads_of_group; ++t) {
      float* const d = argument(t).d;
      sum.d.push_back(d);
      for (size_t v = 0; v < static_cast<size_t>(first.columns) / 2; ++v)
        sum.value[element_index(t, v, first.columns)] = std::exchange(d[v], std::numeric_limits<float>::quiet_NaN());
    }
  }
  const std::vector<uint16_t> words = operands(first, a_registers, shared, bytes, &site);
  started_.push_back({first, shared, bytes, a_registers, words, committed_});
}

bool GroupProducts::wait(int in_flight) {
  const int landed = committed_ - in_flight;  // groups
  size_t done = 0;
  for (; done < started_.size() && started_[done].group < landed; ++done) {
    const auto& [product, shared, bytes, a_registers, words, group] = started_[done];
    if (operands(product, a_registers, shared, bytes, nullptr) != words)
      throw Fault("product of a warp group: an operand was not there at its start, or was written to before its end");
    const auto columns = static_cast<size_t>(product.columns);
    std::vector<float> numbers;
    for (const uint16_t word : words) numbers.push_back(std::bit_cast<float>(uint32_t{word} << 16));
    const float *const a = numbers.data(), *const b = a + rows * depth;
    Sum& sum = sums_.at(product.d);
    if (!product.accumulate) std::fill(sum.value.begin(), sum.value.end(), 0.f);
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
  return done > 0;
}

}  // namespace cuda_on_cpu
