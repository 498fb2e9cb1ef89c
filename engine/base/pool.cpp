#include "engine/base/pool.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <new>
#include <string_view>
#include <utility>

#include "engine/base/sizes.h"

namespace orrery {
namespace {

std::string in_units(int64_t bytes) {
  if (bytes < 1000) return std::to_string(bytes) + " bytes";
  double size = static_cast<double>(bytes) / 1e3;
  const char* unit = "KB";
  for (const char* larger : {"MB", "GB"})
    if (size >= 1000) size /= 1e3, unit = larger;
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %s", size, unit);
  return text;
}

thread_local const char* operation = "";

}  // namespace

const char* current_operation() { return operation; }
CurrentOperation::CurrentOperation(const char* name) : before_(std::exchange(operation, name)) {}
CurrentOperation::~CurrentOperation() { operation = before_; }

// Eight sizes to a factor of two.
int64_t Pool::block_size(int64_t bytes) {
  if (bytes <= 512) return std::max<int64_t>(1, (bytes + 63) / 64) * 64;
  const int64_t step = int64_t{1} << (std::bit_width(static_cast<uint64_t>(bytes - 1)) - 4);
  return (bytes + step - 1) / step * step;
}

Pool::~Pool() {
  ending_ = true;
  release_unlocked();
  for (const auto& [data, block] : held_) source_.free(data);
}

void* Pool::take(int64_t bytes, const char* holder) {
  const std::lock_guard lock(mutex_);
  void* data = nullptr;
  try {
    if (bytes <= largest_size) data = take_unlocked(block_size(bytes), holder);
  } catch (const std::bad_alloc&) {  // no room for the books
  }
  if (!data) ++use_.refused;
  return data;
}

void* Pool::take_unlocked(int64_t size, const char* holder) {
  Kept& kept = kept_[size];
  if (kept.free.empty()) {
    if (void* const fresh = take_new(size, kept))
      kept.free.push_back(fresh);
    else
      return nullptr;
  }
  void* const data = kept.free.back();  // the latest freed: most likely still in the processor's cache
  held_[data] = {size, holder};         // may throw: until here the block is a kept one
  kept.free.pop_back();
  use_.cached -= size;
  use_.held += size;
  use_.peak = std::max(use_.peak, use_.held);
  return data;
}

void Pool::give(void* data) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(data);
  if (found == held_.end()) return;
  const int64_t size = found->second.size;
  held_.erase(found);
  kept_.find(size)->second.free.push_back(data);
  use_.held -= size;
  use_.cached += size;
}

// A block from the source, counted as cached; nullptr if there is none or no room for it under the limit.
void* Pool::take_new(int64_t size, Kept& kept) {
  if (kept.free.capacity() <= kept.blocks) kept.free.reserve(2 * kept.blocks + 1);
  const auto fits = [&] { return !limit_ || use_.held + use_.cached <= limit_ - size; };
  if (!fits()) release_unlocked();
  void* data = fits() ? source_.allocate(size) : nullptr;
  if (!data && use_.cached > 0) release_unlocked(), data = fits() ? source_.allocate(size) : nullptr;
  if (!data) return nullptr;
  ++kept.blocks;
  use_.cached += size;
  return data;
}

void Pool::release_unlocked() noexcept {
  if (source_.lasting && !ending_) return;
  for (auto& [size, kept] : kept_) {
    for (void* block : kept.free) source_.free(block);
    use_.cached -= size * static_cast<int64_t>(kept.free.size());
    kept.blocks -= kept.free.size();
    kept.free.clear();
  }
}
void Pool::release() {
  const std::lock_guard lock(mutex_);
  release_unlocked();
}
void Pool::set_limit(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  limit_ = bytes;
}
int64_t Pool::limit() const {
  const std::lock_guard lock(mutex_);
  return limit_;
}
MemoryUse Pool::use() const {
  const std::lock_guard lock(mutex_);
  return use_;
}
void Pool::reset_peak() {
  const std::lock_guard lock(mutex_);
  use_.peak = use_.held;
}

std::string Pool::description() const {
  const std::lock_guard lock(mutex_);
  struct Share {
    std::string_view holder;
    int64_t bytes = 0, blocks = 0;
  };
  std::map<std::string_view, Share> by_holder;
  for (const auto& [data, block] : held_) {
    Share& share = by_holder[block.holder];
    share.holder = block.holder, share.bytes += block.size, ++share.blocks;
  }
  std::vector<Share> shares;
  for (const auto& [name, share] : by_holder) shares.push_back(share);
  std::sort(shares.begin(), shares.end(), [](const Share& a, const Share& b) { return a.bytes > b.bytes; });
  std::string text = in_units(use_.held) + " held, " + in_units(use_.cached) + " kept for reuse";
  if (limit_) text += ", limit " + in_units(limit_);
  constexpr size_t named = 4;
  for (size_t i = 0; i < std::min(named, shares.size()); ++i) {
    const Share& share = shares[i];
    text += i == 0 ? "; the largest holders: " : ", ";
    text += std::string(share.holder.empty() ? "tensors outside of operations" : share.holder) + " " +
            in_units(share.bytes) + " in " + std::to_string(share.blocks) + (share.blocks == 1 ? " block" : " blocks");
  }
  return text;
}

}  // namespace orrery
