#include "tests/support/sectors.h"

#include <algorithm>
#include <mutex>
#include <tuple>
#include <utility>

namespace cuda_on_cpu {
namespace {
std::mutex mutex;
SectorTraffic all;
}  // namespace

SectorTraffic take_sector_traffic() {
  const std::lock_guard lock(mutex);
  return std::exchange(all, {});
}

void SectorCounter::record(unsigned thread, const void* data, size_t bytes, uintptr_t instruction) {
  if (bytes == 0) return;  // cp.async with zero fill reads nothing
  if (thread >= turns_.size()) turns_.resize(thread + 1);
  auto& counts = turns_[thread];
  auto found = std::find_if(counts.begin(), counts.end(), [&](const auto& of) { return of.first == instruction; });
  if (found == counts.end()) found = counts.insert(counts.end(), {instruction, 0});
  accesses_.push_back({thread / 32, instruction, found->second++, reinterpret_cast<uintptr_t>(data), bytes});
}

// Bytes that several lanes access count once.
SectorTraffic SectorCounter::of_warp(std::vector<Access>::iterator first, std::vector<Access>::iterator end) {
  constexpr uintptr_t sector = 32;
  std::sort(first, end, [](const Access& a, const Access& b) { return a.begin < b.begin; });
  uintptr_t bytes = 0, bytes_to = 0, touched = 0, touched_to = 0;  // everything before `_to` is counted
  for (auto a = first; a != end; ++a) {
    const uintptr_t behind = a->begin + a->bytes, last_sector = (behind + sector - 1) / sector;
    bytes += behind - std::min(behind, std::max(a->begin, bytes_to));
    touched += last_sector - std::min(last_sector, std::max(a->begin / sector, touched_to));
    bytes_to = std::max(bytes_to, behind), touched_to = std::max(touched_to, last_sector);
  }
  return {touched, (bytes + sector - 1) / sector};
}

void SectorCounter::end_block() {
  const auto instruction = [](const Access& a) { return std::tie(a.warp, a.instruction, a.access_number); };
  std::sort(accesses_.begin(), accesses_.end(),
            [&](const Access& a, const Access& b) { return instruction(a) < instruction(b); });
  SectorTraffic traffic;
  for (auto first = accesses_.begin(); first != accesses_.end();) {
    const auto end =
        std::find_if(first, accesses_.end(), [&](const Access& a) { return instruction(a) != instruction(*first); });
    const SectorTraffic of = of_warp(first, end);
    traffic.touched += of.touched, traffic.minimum += of.minimum;
    first = end;
  }
  accesses_.clear(), turns_.clear();
  const std::lock_guard lock(mutex);
  all.touched += traffic.touched, all.minimum += traffic.minimum;
}

}  // namespace cuda_on_cpu
