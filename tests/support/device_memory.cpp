#include "tests/support/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <new>

#include "tests/support/cuda_on_cpu.h"
#include "tests/support/fibers.h"

namespace cuda_on_cpu {
namespace {

constexpr size_t capacity = size_t{16} << 30;  // address space; untouched pages cost no memory
constexpr size_t far = size_t{1} << 32;        // larger blocks test addresses only; they stay uninitialized
constexpr size_t huge_page = size_t{1} << 21;
constexpr size_t alignment = 256, guard = 256;

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

// Each 32-bit word is a different NaN, so a guard that is copied elsewhere is detected.
uint32_t guard_word(size_t index) { return 0xffc00000u | (static_cast<uint32_t>(index) * 2654435761u >> 10); }
unsigned char guard_byte(size_t at) { return static_cast<unsigned char>(guard_word(at / 4) >> at % 4 * 8); }

}  // namespace

DeviceMemory::DeviceMemory() {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const all = mmap(nullptr, capacity + huge_page, PROT_NONE, flags, -1, 0);
  if (all == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<unsigned char*>(all) + (huge_page - reinterpret_cast<uintptr_t>(all) % huge_page) % huge_page;
  madvise(base_, capacity, MADV_HUGEPAGE);  // fewer pages to protect; failure is harmless
}

DeviceMemory& DeviceMemory::instance() {
  static DeviceMemory* const the_one = new DeviceMemory;  // buffers in static objects may be freed late
  return *the_one;
}

void DeviceMemory::protect(bool forbidden) {
  if (reached_) mprotect(base_, round_up(reached_, huge_page), forbidden ? PROT_NONE : PROT_READ | PROT_WRITE);
}

DeviceMemory::Open::Open() : lock_(instance().mutex_) { instance().protect(false); }
DeviceMemory::Open::~Open() { instance().protect(true); }
DeviceMemory* DeviceMemory::Open::operator->() const { return &instance(); }

void* DeviceMemory::allocate(size_t bytes) {
  if (bytes > capacity || used_ + bytes > static_cast<size_t>(options.memory)) return nullptr;
  // Layout of a block: guard, bytes, padding to a multiple of 256 bytes, guard.
  const size_t space = guard + round_up(bytes, alignment) + guard;
  size_t at = 0;  // the first gap that is large enough
  for (const auto& [begin, size] : blocks_) {
    if (begin - guard - at >= space) break;
    at = begin + round_up(size, alignment) + guard;
  }
  if (at + space > capacity) return nullptr;
  if (at + space > reached_) {
    reached_ = at + space;
    protect(false);
  }
  const size_t begin = at + guard;
  forget_freed(at, at + space);
  blocks_[begin] = bytes;
  used_ += bytes;
  write_guard(at, begin);
  write_guard(begin + bytes, at + space);
  if (bytes >= far) return base_ + begin;
  allow(base_ + begin, bytes);
  never_set(base_ + begin, bytes);
  return base_ + begin;
}

bool DeviceMemory::free(void* data) {
  const auto block = blocks_.find(static_cast<size_t>(static_cast<unsigned char*>(data) - base_));
  if (block == blocks_.end()) return false;
  const auto [begin, bytes] = *block;
  allow(base_ + begin - guard, guard + round_up(bytes, alignment) + guard);
  used_ -= bytes;
  blocks_.erase(block);
  if (bytes >= far) {
    madvise(base_ + round_up(begin, huge_page), bytes - huge_page, MADV_DONTNEED);
    return true;
  }
  never_set(base_ + begin, bytes);
  forbid(base_ + begin, bytes);
  freed_[begin] = bytes;
  return true;
}

void DeviceMemory::forget_freed(size_t begin, size_t end) {
  auto from = freed_.lower_bound(begin);
  if (from != freed_.begin() && std::prev(from)->first + std::prev(from)->second > begin) --from;
  freed_.erase(from, freed_.lower_bound(end));
}

// Bugs write whole arrays to freed memory, not single bytes. So the first page is compared once per
// cache line, the rest once per page.
__attribute__((no_sanitize("address"))) bool DeviceMemory::is_never_set(size_t begin, size_t bytes) const {
  constexpr size_t line = 64, page = 4096;
  bool holds = bytes == 0 || base_[begin + bytes - 1] == never_set_word[(bytes - 1) % 4];
  for (size_t at = 0; at < bytes; at += at < page ? line : page) holds &= base_[begin + at] == never_set_word[at % 4];
  return holds;
}

bool DeviceMemory::holds(const void* data, size_t bytes) const {
  if (!touches(data, 1)) return false;
  const size_t at = static_cast<size_t>(static_cast<const unsigned char*>(data) - base_);
  const auto next = blocks_.upper_bound(at);
  if (next == blocks_.begin()) return false;
  const auto [begin, size] = *std::prev(next);
  return at + bytes <= begin + size;
}

bool DeviceMemory::touches(const void* data, size_t bytes) const {
  const auto first = reinterpret_cast<uintptr_t>(data), base = reinterpret_cast<uintptr_t>(base_);
  return first < base + capacity && first + bytes > base;
}

void DeviceMemory::write_guard(size_t begin, size_t end) {
  allow(base_ + begin, end - begin);
  for (size_t i = begin; i < end; ++i) base_[i] = guard_byte(i);
  forbid(base_ + begin, end - begin);
}

// Exempt, because AddressSanitizer reports any access to a guard. Without it, bytes are compared.
__attribute__((no_sanitize("address"))) bool DeviceMemory::guard_holds(size_t begin, size_t end) const {
  bool holds = true;
  for (; begin % 4 != 0; ++begin) holds &= base_[begin] == guard_byte(begin);
  const auto words = reinterpret_cast<const uint32_t*>(base_);
  for (size_t i = begin / 4; i < end / 4; ++i) holds &= words[i] == guard_word(i);
  return holds;
}

bool DeviceMemory::guards_hold() {
  bool all = true;
  for (const auto& [begin, bytes] : blocks_) {
    const size_t end = begin + bytes, space_end = begin + round_up(bytes, alignment) + guard;
    if (guard_holds(begin - guard, begin) && guard_holds(end, space_end)) continue;
    all = false;
    write_guard(begin - guard, begin);
    write_guard(end, space_end);
  }
  for (const auto& [begin, bytes] : freed_) {
    if (is_never_set(begin, bytes)) continue;
    all = false;
    never_set(base_ + begin, bytes);
  }
  return all;
}

}  // namespace cuda_on_cpu
