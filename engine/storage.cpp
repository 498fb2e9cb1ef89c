#include "engine/storage.h"

#include <sys/mman.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "engine/check.h"
#include "engine/parallel.h"

#if defined(ORRERY_CUDA) || defined(EMULATE_CUDA)
#define ORRERY_HAS_CUDA
#include "cuda/runtime.h"
#endif

namespace orrery {
namespace {

// Eight classes to a factor of two: at most 12.5 % of a block is unused.
int64_t size_class(int64_t bytes) {
  if (bytes <= 512) return (bytes + 63) / 64 * 64;
  const int64_t step = int64_t{1} << (std::bit_width(static_cast<uint64_t>(bytes - 1)) - 4);
  return (bytes + step - 1) / step * step;
}

constexpr int64_t huge_page = int64_t{1} << 21;

void* system_allocate(Device device, int64_t bytes) {
  if (device == Device::cuda) {
#if defined(ORRERY_HAS_CUDA)
    return cuda::allocate(bytes);
#else
    fail("allocate: built without CUDA (configure with -DCUDA=ON)");
#endif
  }
  const bool large = bytes >= 2 * huge_page;
  void* data = nullptr;
  if (posix_memalign(&data, large ? huge_page : 64, static_cast<size_t>(bytes))) return nullptr;
  if (large) madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // fewer page faults; a refusal does no harm
  return data;
}

void system_free(Device device, void* data) {
#if defined(ORRERY_HAS_CUDA)
  if (device == Device::cuda) return cuda::free(data);
#endif
  if (device == Device::cpu) std::free(data);
}

class Allocator {
 public:
  explicit Allocator(Device device) : device_(device) {}

  void* take(int64_t bytes) {
    const int64_t size = size_class(bytes);
    const std::lock_guard lock(mutex_);
    void* data = take_cached(size);
    if (!data) {
      const auto fits = [&] { return !limit_ || use_.held + use_.cached + size <= limit_; };
      if (!fits()) release();
      if (fits()) data = system_allocate(device_, size);
      if (!data && use_.cached > 0) release(), data = fits() ? system_allocate(device_, size) : nullptr;
      if (!data)
        fail("allocate: out of memory on ", device_, ": asked for ", bytes, " bytes, ", use_.held, " held",
             limit_ ? text(", limit ", limit_) : "", "; use a smaller batch or context");
    }
    use_.held += size;
    use_.peak = std::max(use_.peak, use_.held);
    return data;
  }
  void give(void* data, int64_t bytes) {
    const int64_t size = size_class(bytes);
    const std::lock_guard lock(mutex_);
    free_[size].push_back(data);
    use_.held -= size;
    use_.cached += size;
  }
  void release() {
    for (auto& [size, blocks] : free_)
      for (void* block : blocks) system_free(device_, block), use_.cached -= size;
    free_.clear();
  }
  void release_locked() {
    const std::lock_guard lock(mutex_);
    release();
  }
  void set_limit(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    limit_ = bytes;
  }
  MemoryUse use() {
    const std::lock_guard lock(mutex_);
    return use_;
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    use_.peak = use_.held;
  }

 private:
  void* take_cached(int64_t size) {
    const auto found = free_.find(size);
    if (found == free_.end() || found->second.empty()) return nullptr;
    void* data = found->second.back();  // the latest freed: most likely still in the processor's cache
    found->second.pop_back();
    use_.cached -= size;
    return data;
  }

  Device device_;
  std::mutex mutex_;
  std::map<int64_t, std::vector<void*>> free_;
  MemoryUse use_;
  int64_t limit_ = 0;
};

// Never destroyed: tensors in static objects may outlive any order of destruction.
Allocator& allocator(Device device) {
  static Allocator* const cpu = new Allocator(Device::cpu);
  static Allocator* const cuda = new Allocator(Device::cuda);
  return device == Device::cpu ? *cpu : *cuda;
}

}  // namespace

Buffer::Buffer(Device device, int64_t bytes)
    : device_(device), bytes_(bytes), data_(allocator(device).take(std::max<int64_t>(bytes, 1))) {
#if !defined(NDEBUG)
  if (device == Device::cpu)
    std::memset(data_, 0xff, static_cast<size_t>(bytes));  // NaN: nobody may read what nobody wrote
#endif
}
Buffer::~Buffer() { allocator(device_).give(data_, std::max<int64_t>(bytes_, 1)); }

MemoryUse memory_use(Device device) { return allocator(device).use(); }
void reset_peak(Device device) { allocator(device).reset_peak(); }
void release_cached(Device device) { allocator(device).release_locked(); }
void set_memory_limit(Device device, int64_t bytes) { allocator(device).set_limit(bytes); }

void copy_bytes(Device to_device, void* to, Device from_device, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  if (to_device == Device::cpu && from_device == Device::cpu) {
    parallel_for(bytes, int64_t{1} << 18, [=](int64_t begin, int64_t end) {
      std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin,
                  static_cast<size_t>(end - begin));
    });
    return;
  }
#if defined(ORRERY_HAS_CUDA)
  cuda::copy(to, to_device == Device::cuda, from, from_device == Device::cuda, bytes);
#endif
}

void zero_bytes(Device device, void* data, int64_t bytes) {
  if (bytes == 0) return;
#if defined(ORRERY_HAS_CUDA)
  if (device == Device::cuda) return cuda::zero(data, bytes);
#endif
  if (device == Device::cpu)
    parallel_for(bytes, int64_t{1} << 18, [=](int64_t begin, int64_t end) {
      std::memset(static_cast<char*>(data) + begin, 0, static_cast<size_t>(end - begin));
    });
}

}  // namespace orrery
