#include "tests/support/bank_conflicts.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <tuple>

namespace cuda_on_cpu {
namespace {
std::mutex mutex;
BankTraffic all;
}  // namespace

BankTraffic take_bank_traffic() {
  const std::lock_guard lock(mutex);
  return std::exchange(all, {});
}

unsigned BankCounter::times(const Access* first, size_t count) {
  constexpr unsigned banks = 32, word = 4;
  std::set<uintptr_t> words[banks];
  for (const Access* a = first; a < first + count; ++a)
    for (uintptr_t w = a->address / word; w < (a->address + a->bytes) / word; ++w) words[w % banks].insert(w);
  size_t largest = 0;
  for (const auto& of_bank : words) largest = std::max(largest, of_bank.size());
  return static_cast<unsigned>(largest);
}

void BankCounter::record_row(unsigned thread, const void* row) { rows_[thread] = reinterpret_cast<uintptr_t>(row); }
void BankCounter::access_matrices(unsigned warp) {
  constexpr unsigned rows = 8;  // rows of a matrix; one phase reads one matrix
  for (unsigned first = 0; first < 32; first += rows) {
    Access accesses[rows];
    for (unsigned i = 0; i < rows; ++i) accesses[i] = {rows_[warp * 32 + first + i], 16};
    traffic_.loads += times(accesses, rows);
    ++traffic_.min_loads;
  }
}

void BankCounter::record_copy(unsigned thread, const void* to, unsigned bytes, Site site) {
  const unsigned access_number = turns_[{thread, site.line}]++;
  copies_[thread].push_back({site.line, access_number, {reinterpret_cast<uintptr_t>(to), bytes}});
}
void BankCounter::end_block() {
  // (warp, line, access number, group of lanes served together) -> accesses of these lanes
  std::map<std::tuple<unsigned, int, unsigned, unsigned>, std::vector<Access>> together;
  for (const auto& [thread, copies] : copies_)
    for (const Copy& copy : copies)
      together[{thread / 32, copy.line, copy.access_number, thread % 32 / (128 / copy.access.bytes)}].push_back(
          copy.access);
  for (const auto& [key, accesses] : together) {
    traffic_.copies += times(accesses.data(), accesses.size());
    ++traffic_.min_copies;
  }
  copies_.clear(), turns_.clear(), rows_.clear();
  const std::lock_guard lock(mutex);
  all.loads += traffic_.loads, all.min_loads += traffic_.min_loads;
  all.copies += traffic_.copies, all.min_copies += traffic_.min_copies;
  traffic_ = {};
}

}  // namespace cuda_on_cpu
