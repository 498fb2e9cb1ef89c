#include "engine/system/pool.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <map>
#include <mutex>
#include <new>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/types/sizes.h"

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

// Rounds up to one of eight sizes per factor of two.
int64_t Pool::block_size(int64_t bytes) {
  if (bytes <= 512) return std::max<int64_t>(1, (bytes + 63) / 64) * 64;
  const int64_t step = int64_t{1} << (std::bit_width(static_cast<uint64_t>(bytes - 1)) - 4);
  return (bytes + step - 1) / step * step;
}

struct Pool::State {
  struct Block {
    int64_t size;
    const char* holder;
  };
  struct Kept {               // one size class
    std::vector<void*> free;  // has capacity for every block of the class, so that freeing one never allocates
    size_t blocks = 0;        // held and free ones
  };

  // The callers of these functions hold the mutex.
  void* take(int64_t size, const char* holder);
  void* take_new(int64_t size, Kept& of_size);
  void release() noexcept;

  const Source source;
  std::mutex mutex = {};
  std::map<int64_t, Kept> kept = {};
  std::unordered_map<void*, Block> held = {};
  MemoryUse use = {};
  int64_t limit = 0;
  bool ending = false;
};

Pool::Pool(Source source) : state_(new State{source}) {}

Pool::~Pool() {
  state_->ending = true;
  state_->release();
  for (const auto& [data, block] : state_->held) state_->source.free(data);
}

void* Pool::take(int64_t bytes, const char* holder) {
  const std::lock_guard lock(state_->mutex);
  void* data = nullptr;
  try {
    if (bytes <= largest_size) data = state_->take(block_size(bytes), holder);
  } catch (const std::bad_alloc&) {  // no memory for the bookkeeping
  }
  if (!data) ++state_->use.refused;
  return data;
}

void* Pool::State::take(int64_t size, const char* holder) {
  Kept& of_size = kept[size];
  if (of_size.free.empty()) {
    if (void* const fresh = take_new(size, of_size))
      of_size.free.push_back(fresh);
    else
      return nullptr;
  }
  void* const data = of_size.free.back();  // the latest freed, most likely still in the CPU's cache
  held[data] = {size, holder};         // may throw; until then the block is free
  of_size.free.pop_back();
  use.cached -= size;
  use.held += size;
  use.peak = std::max(use.peak, use.held);
  return data;
}

void Pool::give(void* data) noexcept {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->held.find(data);
  if (found == state_->held.end()) return;
  const int64_t size = found->second.size;
  state_->held.erase(found);
  state_->kept.find(size)->second.free.push_back(data);
  state_->use.held -= size;
  state_->use.cached += size;
}

// Returns a new block, counted as cached; nullptr if the source or the limit has no room.
void* Pool::State::take_new(int64_t size, Kept& of_size) {
  if (of_size.free.capacity() <= of_size.blocks) of_size.free.reserve(2 * of_size.blocks + 1);
  const auto fits = [&] { return !limit || use.held + use.cached <= limit - size; };
  if (!fits()) release();
  void* data = fits() ? source.allocate(size) : nullptr;
  if (!data && use.cached > 0) release(), data = fits() ? source.allocate(size) : nullptr;
  if (!data) return nullptr;
  ++of_size.blocks;
  use.cached += size;
  return data;
}

void Pool::State::release() noexcept {
  if (source.lasting && !ending) return;
  for (auto& [size, of_size] : kept) {
    for (void* block : of_size.free) source.free(block);
    use.cached -= size * static_cast<int64_t>(of_size.free.size());
    of_size.blocks -= of_size.free.size();
    of_size.free.clear();
  }
}
void Pool::release() {
  const std::lock_guard lock(state_->mutex);
  state_->release();
}
void Pool::set_limit(int64_t bytes) {
  const std::lock_guard lock(state_->mutex);
  state_->limit = bytes;
}
int64_t Pool::limit() const {
  const std::lock_guard lock(state_->mutex);
  return state_->limit;
}
MemoryUse Pool::use() const {
  const std::lock_guard lock(state_->mutex);
  return state_->use;
}
void Pool::reset_peak() {
  const std::lock_guard lock(state_->mutex);
  state_->use.peak = state_->use.held;
}

std::string Pool::description() const {
  const std::lock_guard lock(state_->mutex);
  struct Share {
    std::string_view holder;
    int64_t bytes = 0, blocks = 0;
  };
  std::map<std::string_view, Share> by_holder;
  for (const auto& [data, block] : state_->held) {
    Share& share = by_holder[block.holder];
    share.holder = block.holder, share.bytes += block.size, ++share.blocks;
  }
  std::vector<Share> shares;
  for (const auto& [name, share] : by_holder) shares.push_back(share);
  std::sort(shares.begin(), shares.end(), [](const Share& a, const Share& b) { return a.bytes > b.bytes; });
  std::string text = in_units(state_->use.held) + " in use, " + in_units(state_->use.cached) + " cached for reuse";
  if (state_->limit) text += ", limit " + in_units(state_->limit);
  constexpr size_t named = 4;
  for (size_t i = 0; i < std::min(named, shares.size()); ++i) {
    const Share& share = shares[i];
    text += i == 0 ? "; the largest uses: " : ", ";
    text += std::string(share.holder.empty() ? "tensors outside operations" : share.holder) + " " +
            in_units(share.bytes) + " in " + std::to_string(share.blocks) + (share.blocks == 1 ? " block" : " blocks");
  }
  return text;
}

}  // namespace orrery
