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
  struct SizeClass {          // blocks of one size
    std::vector<void*> free;  // has capacity for every block of the class, so that freeing one never allocates
    size_t blocks = 0;        // held and free ones
  };

  // The callers of these functions hold the mutex.
  void* take(int64_t size, const char* holder);
  void* take_new(int64_t size, SizeClass& size_class);
  void release() noexcept;

  const Source source;
  std::mutex mutex = {};
  std::map<int64_t, SizeClass> size_classes = {};
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
    if (bytes <= max_elements) data = state_->take(block_size(bytes), holder);
  } catch (const std::bad_alloc&) {  // no memory for the bookkeeping
  }
  if (!data) ++state_->use.refused;
  return data;
}

void* Pool::State::take(int64_t size, const char* holder) {
  SizeClass& size_class = size_classes[size];
  if (size_class.free.empty()) {
    if (void* const fresh = take_new(size, size_class))
      size_class.free.push_back(fresh);
    else
      return nullptr;
  }
  void* const data = size_class.free.back();  // the latest freed, most likely still in the CPU's cache
  held[data] = {size, holder};                // may throw; until then the block is free
  size_class.free.pop_back();
  use.cached -= size;
  use.allocated += size;
  use.peak = std::max(use.peak, use.allocated);
  return data;
}

void Pool::give(void* data) noexcept {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->held.find(data);
  if (found == state_->held.end()) return;
  const int64_t size = found->second.size;
  state_->held.erase(found);
  state_->size_classes.find(size)->second.free.push_back(data);
  state_->use.allocated -= size;
  state_->use.cached += size;
}

// Returns a new block, counted as cached; nullptr if the source or the limit has no room.
void* Pool::State::take_new(int64_t size, SizeClass& size_class) {
  if (size_class.free.capacity() <= size_class.blocks) size_class.free.reserve(2 * size_class.blocks + 1);
  const auto fits = [&] { return !limit || use.allocated + use.cached <= limit - size; };
  if (!fits()) release();
  void* data = fits() ? source.allocate(size) : nullptr;
  if (!data && use.cached > 0) release(), data = fits() ? source.allocate(size) : nullptr;
  if (!data) return nullptr;
  ++size_class.blocks;
  use.cached += size;
  return data;
}

void Pool::State::release() noexcept {
  if (source.keeps_blocks && !ending) return;
  for (auto& [size, size_class] : size_classes) {
    for (void* block : size_class.free) source.free(block);
    use.cached -= size * static_cast<int64_t>(size_class.free.size());
    size_class.blocks -= size_class.free.size();
    size_class.free.clear();
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
  state_->use.peak = state_->use.allocated;
}

std::string Pool::description() const {
  const std::lock_guard lock(state_->mutex);
  struct Usage {
    std::string_view holder;
    int64_t bytes = 0, blocks = 0;
  };
  std::map<std::string_view, Usage> by_holder;
  for (const auto& [data, block] : state_->held) {
    Usage& usage = by_holder[block.holder];
    usage.holder = block.holder, usage.bytes += block.size, ++usage.blocks;
  }
  std::vector<Usage> usages;
  for (const auto& [name, usage] : by_holder) usages.push_back(usage);
  std::sort(usages.begin(), usages.end(), [](const Usage& a, const Usage& b) { return a.bytes > b.bytes; });
  std::string text = in_units(state_->use.allocated) + " in use, " + in_units(state_->use.cached) + " cached for reuse";
  if (state_->limit) text += ", limit " + in_units(state_->limit);
  constexpr size_t max_listed = 4;
  for (size_t i = 0; i < std::min(max_listed, usages.size()); ++i) {
    const Usage& usage = usages[i];
    text += i == 0 ? "; the largest uses: " : ", ";
    text += std::string(usage.holder.empty() ? "tensors outside operations" : usage.holder) + " " +
            in_units(usage.bytes) + " in " + std::to_string(usage.blocks) + (usage.blocks == 1 ? " block" : " blocks");
  }
  return text;
}

}  // namespace orrery
