#include "engine/tensor/storage.h"

#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "engine/system/machine_memory.h"
#include "engine/system/parallel.h"
#include "engine/types/check.h"
#include "engine/types/machine_error.h"
#include "engine/types/sizes.h"
#include "engine/types/usage_error.h"

#if defined(ORRERY_CUDA) || defined(EMULATE_CUDA)
#define ORRERY_HAS_CUDA
#include "cuda/runtime/runtime.h"
#endif

namespace orrery {
namespace {

constexpr int64_t huge_page = int64_t{1} << 21;

// Under a limit, large blocks leave a reserve for libraries, which allocate memory too. Their pages
// are touched at once, because a system that overcommits would end the process later.
std::atomic<bool> host_is_limited = false;
bool machine_has(int64_t bytes) {
  constexpr int64_t reserved_bytes = 8'000'000;
  return available_memory() - reserved_bytes >= bytes;
}

void* allocate_on_host(int64_t bytes) {
  const bool large = bytes >= 2 * huge_page, is_limited = host_is_limited && bytes >= huge_page / 2;
  if (is_limited && !machine_has(bytes)) return nullptr;
  void* data = nullptr;
  if (posix_memalign(&data, large ? huge_page : 64, static_cast<size_t>(bytes))) return nullptr;
  if (large) madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // fewer page faults; a failure does no harm
  constexpr int64_t page = 4096;
  for (int64_t at = 0; is_limited && at < bytes; at += page) static_cast<char*>(data)[at] = 0;
  return data;
}

// Never destroyed, because tensors in static objects may be destroyed even later.
const std::shared_ptr<Pool>& pool_of_host() {
  // Makes each freed large block return to the system at once; otherwise the threshold rises.
  static const int fixed [[maybe_unused]] = mallopt(M_MMAP_THRESHOLD, 1 << 20);
  static const auto* const instance =
      new std::shared_ptr<Pool>(std::make_shared<Pool>(Pool::Source{allocate_on_host, std::free}));
  return *instance;
}
std::shared_ptr<Pool> pool_of(Device device) {
  if (device == Device::cpu) return pool_of_host();
#if defined(ORRERY_HAS_CUDA)
  return cuda::pool();
#else
  fail("allocate: built without CUDA; configure with -DORRERY_CUDA=ON");
#endif
}

void* take(Pool& pool, Device device, int64_t bytes) {
  if (void* const data = pool.take(bytes, current_operation())) return data;
  std::string free;
#if defined(ORRERY_HAS_CUDA)
  if (device == Device::cuda) free = text("; the GPU has ", cuda::free_memory(), " bytes free");
#endif
  throw MachineError(text("allocate: out of memory on ", device, ": ", bytes, " bytes requested; ", pool.description(),
                          free, "; ", out_of_memory_advice()));
}

}  // namespace

Buffer::Buffer(Device device, int64_t bytes) : Buffer(device, bytes, pool_of(device)) {}
Buffer::Buffer(Device device, int64_t bytes, std::shared_ptr<Pool> pool)
    : device_(device), bytes_(bytes), pool_(std::move(pool)), data_(take(*pool_, device, bytes)) {
#if !defined(NDEBUG)
  if (device == Device::cpu)
    std::memset(data_, 0xff, static_cast<size_t>(bytes));  // NaN: unwritten numbers must not be read
#endif
}
Buffer::~Buffer() { pool_->give(data_); }

MemoryUse memory_use(Device device) { return pool_of(device)->use(); }
void reset_peak(Device device) { pool_of(device)->reset_peak(); }
void release_cached(Device device) {
  pool_of(device)->release();
  if (device == Device::cpu) malloc_trim(0);  // small blocks in holes of the heap
}
void set_memory_limit(Device device, int64_t bytes) {
  if (device == Device::cpu) host_is_limited = bytes != 0;
  pool_of(device)->set_limit(bytes);
}
int64_t memory_limit(Device device) { return pool_of(device)->limit(); }
int64_t free_memory(Device device) {
  const std::shared_ptr<Pool> pool = pool_of(device);
  const MemoryUse use = pool->use();
  int64_t free = 0;
  if (device == Device::cpu) free = available_memory();
#if defined(ORRERY_HAS_CUDA)
  if (device == Device::cuda) free = cuda::free_memory();
#endif
  free = std::min(free, max_elements) + use.cached;
  return pool->limit() ? std::min(free, std::max<int64_t>(0, pool->limit() - use.allocated)) : free;
}

void synchronize() {
#if defined(ORRERY_HAS_CUDA)
  if (cuda::started()) cuda::synchronize();
#endif
}
Device parse_device(const std::string& name) {
  for (const Device device : {Device::cpu, Device::cuda})
    if (name == orrery::name(device)) return device;
  fail_usage("device: '", name, "' is unknown; use cpu or cuda");
}
void check_available(Device device) {
  if (device == Device::cpu) return;
#if defined(ORRERY_HAS_CUDA)
  cuda::device_properties();
#else
  fail(
      "device 'cuda': this orrery was built without CUDA; configure with -DORRERY_CUDA=ON (needs nvcc), or use "
      "--device=cpu");
#endif
}

std::string description([[maybe_unused]] Device device) {
#if defined(ORRERY_HAS_CUDA)
  if (device == Device::cuda) return cuda::description(cuda::device_properties());
#endif
  return "";
}

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
