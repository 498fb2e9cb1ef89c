#include "engine/tensor/staging.h"

#include <cstring>

#include "engine/types/check.h"

#if defined(ORRERY_CUDA) || defined(EMULATE_CUDA)
#define ORRERY_HAS_CUDA
#include "cuda/runtime/runtime.h"
#endif

namespace orrery {

struct detail::HostBlock::Memory {
#if defined(ORRERY_HAS_CUDA)
  std::unique_ptr<cuda::Pinned> pinned;
#endif
  std::unique_ptr<std::byte[]> plain;
};

detail::HostBlock::HostBlock(const Tensor& like) : memory_(std::make_unique<Memory>()) {
#if defined(ORRERY_HAS_CUDA)
  if (like.device() == Device::cuda) {
    memory_->pinned = std::make_unique<cuda::Pinned>(like.bytes());
    return;
  }
#endif
  memory_->plain = std::make_unique<std::byte[]>(static_cast<size_t>(like.bytes()));
}
detail::HostBlock::~HostBlock() = default;

void* detail::HostBlock::data() {
#if defined(ORRERY_HAS_CUDA)
  if (memory_->pinned) return memory_->pinned->wait(), memory_->pinned->data();
#endif
  return memory_->plain.get();
}
void detail::HostBlock::send(const Tensor& to) {
#if defined(ORRERY_HAS_CUDA)
  if (memory_->pinned) return memory_->pinned->send(to.mutable_raw(), to.bytes());
#endif
  copy_bytes(to.device(), to.mutable_raw(), Device::cpu, memory_->plain.get(), to.bytes());
}
void detail::HostBlock::fetch(const Tensor& from) {
#if defined(ORRERY_HAS_CUDA)
  if (memory_->pinned) return memory_->pinned->fetch(from.raw(), from.bytes());
#endif
  copy_bytes(Device::cpu, memory_->plain.get(), from.device(), from.raw(), from.bytes());
}

HostToDevice::HostToDevice(const Tensor& to) : to_(to) {
  for (auto& block : blocks_) block = std::make_unique<detail::HostBlock>(to);
}
void HostToDevice::check_dtype(Dtype dtype) const {
  check(dtype == to_.dtype(), "host to device: ", name(dtype), " values for a tensor of dtype ", name(to_.dtype()),
        "; the dtypes must be equal");
}
void HostToDevice::send(const Tensor& numbers) {
  check(numbers.device() == Device::cpu && numbers.dtype() == to_.dtype() && numbers.shape() == to_.shape(),
        "host to device: ", name(numbers.dtype()), " values of shape ", numbers.shape(), " on ", numbers.device(),
        "; they must be ", name(to_.dtype()), " of shape ", to_.shape(), " on cpu");
  block_ = (block_ + 1) % blocks_.size();
  std::memcpy(blocks_[block_]->data(), numbers.raw(), static_cast<size_t>(numbers.bytes()));
  send();
}
DeviceToHost::DeviceToHost(const Tensor& from) : from_(from) {
  for (auto& block : blocks_) block = std::make_unique<detail::HostBlock>(from);
}
void DeviceToHost::check_ticket(Dtype dtype, size_t ticket) const {
  check(dtype == from_.dtype(), "device to host: ", name(dtype), " values of a tensor of dtype ", name(from_.dtype()),
        "; the dtypes must be equal");
  check(ticket > 0 && ticket <= fetched_ && ticket + blocks_.size() > fetched_, "device to host: ticket ", ticket,
        " of ", fetched_, " is invalid; only the latest ", blocks_.size(), " are kept");
}

HostCopy::HostCopy(const Tensor& of) : of_(of), host_(of) {
#if defined(ORRERY_HAS_CUDA)
  if (of.device() == Device::cuda)
    host_ = Tensor::view(std::make_shared<Buffer>(Device::cpu, of.bytes(), cuda::page_locked_pool()), 0, of.shape(),
                         of.dtype());
#endif
}
void HostCopy::copy(const Tensor& from, const Tensor& to, int64_t begin, int64_t end) const {
  if (of_.device() == host_.device()) return;
  to.flat_view(begin, Shape{end - begin}).copy_from(from.flat_view(begin, Shape{end - begin}));
}

Graph::Graph([[maybe_unused]] const std::function<void()>& work, [[maybe_unused]] const Graph* const shares_memory_of) {
  check_available(Device::cuda);
#if defined(ORRERY_HAS_CUDA)
  pool_ = shares_memory_of ? shares_memory_of->pool_ : cuda::new_pool();
  recorded_ = {cuda::record(pool_, work), cuda::destroy_graph};
  replay_ = cuda::replay;
#endif
}

}  // namespace orrery
