// Memory and launches, on a GPU or its emulation.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "engine/loops/loops.h"
#include "engine/matmul/peak.h"
#include "engine/ops/ops.h"
#include "engine/tensor/staging.h"
#include "tests/cuda/kernel_testing.h"

namespace orrery {
namespace {

template <class T>
__global__ void write_kernel(T* out, T value) {
  cuda::wait_for_earlier();
  out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}
template <class T>
__global__ void shared_kernel(T* out) {
  T& shared = cuda::shared_memory<T>();
  cuda::wait_for_earlier();
  shared = *out;
  *out = shared;
}
struct Large {
  float x[15000];  // more than the 48 KB that need no opt-in
};

TEST_CASE("device memory: copies in all directions, zero, alignment") {
  if (no_gpu()) return;
  CHECK(!cuda::device_properties().name.empty());
  CHECK(cuda::device_properties().major >= 8);
  std::vector<int32_t> from(1001), to(1001, -1);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<int32_t>(i);
  const int64_t bytes = 4004;
  void *const a = cuda::allocate(bytes), *const b = cuda::allocate(bytes);
  CHECK(reinterpret_cast<uintptr_t>(a) % 256 == 0);
  CHECK(reinterpret_cast<uintptr_t>(b) % 256 == 0);
  cuda::copy(a, true, from.data(), false, bytes);
  cuda::copy(b, true, a, true, bytes);
  cuda::zero(a, bytes);
  cuda::copy(to.data(), false, b, true, bytes);
  CHECK(to == from);
  cuda::copy(to.data(), false, a, true, bytes);
  CHECK(to == std::vector<int32_t>(1001, 0));
  cuda::free(a);
  cuda::free(b);
  cuda::synchronize();
}

TEST_CASE("device memory: an allocation returns nullptr if memory is used up, and later ones succeed again") {
  if (no_gpu()) return;
  CHECK(cuda::allocate(int64_t{1} << 50) == nullptr);
  expect_gpu_error([] { cuda::Workspace(int64_t{1} << 50); })
      .names("workspace")
      .names("memory")
      .value(int64_t{1} << 50);
  void* const data = cuda::allocate(16);
  REQUIRE(data);
  cuda::zero(data, 16);
  cuda::free(data);
}

TEST_CASE("workspace: the pool reuses the same block") {
  if (no_gpu()) return;
  const void* const first = cuda::Workspace(1000).data();
  CHECK(cuda::Workspace(999).data() == first);
  const cuda::Workspace large(1 << 20);
  cuda::zero(large.data(), 1 << 20);
  cuda::synchronize();
}

TEST_CASE("out of memory on the device: the error lists requested bytes, used bytes by operation, and a way out") {
  if (no_gpu()) return;
  const Tensor held = Tensor::zeros({1000}, Dtype::f32, Device::cuda), factor = held * 2.0, other = held * 3.0;
  const std::string message =
      expect_error([] { Tensor::empty({int64_t{1} << 48}, Dtype::f32, Device::cuda); }).message();
  const auto beginning = [&] {
    return Message(message).names("allocate").names("memory").names("cuda").value("1125899906842624 bytes");
  };
  beginning().names("in use").names("scale").value("8.2 KB").value("2 blocks");
  beginning().names("tensors").value("4.1 KB").value("1 block");
  beginning().names("GPU").offers("batch").offers("context");
}

TEST_CASE("pinned memory: copies to the device and back are asynchronous to the host") {
  if (no_gpu()) return;
  cuda::Pinned there(4000), back(4000);
  const cuda::Workspace device(4000);
  auto* const from = static_cast<int32_t*>(there.data());
  auto* const to = static_cast<int32_t*>(back.data());
  for (int i = 0; i < 1000; ++i) from[i] = i, to[i] = -1;
  there.send(device.data(), 4000);
  back.fetch(device.data(), 4000);
#if defined(EMULATE_CUDA)
  CHECK(to[7] != 7);  // no byte arrives before the wait
#endif
  back.wait();
  CHECK(to[0] == 0);
  CHECK(to[999] == 999);
}

TEST_CASE("a CUDA graph: capture executes nothing, each replay executes everything, in the graph's own memory") {
  if (no_gpu()) return;
  const Tensor x = Tensor::full({100}, 1, Dtype::f32, Device::cuda);
  const int64_t before = memory_use(Device::cuda).allocated;
  {
    const Graph twice([&] {
      const Tensor doubled = x * 2.0;
      x.copy_from(doubled + 1.0);
    });
    CHECK(x.to_vector()[99] == 1);
    CHECK(memory_use(Device::cuda).allocated == before);
    CHECK(twice.memory().use().allocated == 0);
    CHECK(twice.memory().use().cached > 0);  // no other allocation takes it
    twice.replay();
    CHECK(x.to_vector()[99] == 3);
    twice.replay();
    twice.replay();
    CHECK(x.to_vector()[0] == 15);
  }
  expect_error([&] { Graph([&] { x.item(); }); }).names("item").value("100 elements");
  const std::string by_copy = expect_gpu_error([&] { Graph([&] { x.to_vector(); }); }).message();
  CHECK(by_copy.find("cudaErrorStreamCapture") != std::string::npos);  // Unsupported or Invalidated
  CHECK((x + 1.0).to_vector()[5] == 16);                               // work continues after the error
}

TEST_CASE("a CUDA graph: work of another thread during the capture is executed, not captured") {
  if (no_gpu()) return;
  const Tensor x = Tensor::full({100}, 1, Dtype::f32, Device::cuda);
  const Tensor y = Tensor::full({100}, 5, Dtype::f32, Device::cuda);
  double observed = 0;
  std::string error;
  const Graph graph([&] {
    x.copy_from(x * 2.0);
    std::thread([&] {
      try {
        y.copy_from(y + 1.0);
        observed = y.to_vector()[99];
        const Graph another([&] { y.copy_from(y * 10.0); });  // two captures at a time
        another.replay();
        observed += y.to_vector()[99];
      } catch (const Error& e) {
        error = e.what();
      }
    }).join();
    x.copy_from(x + 1.0);
  });
  CHECK(error == "");
  CHECK(observed == 66);
  CHECK(x.to_vector()[99] == 1);
  graph.replay();
  graph.replay();
  CHECK(x.to_vector()[99] == 7);
  CHECK(y.to_vector()[99] == 60);
  expect_error([&] { Graph([] { Graph([] {}); }); }).names("record").names("thread").value("graph");
}

TEST_CASE("a rejected launch is an error that names kernel, location and shape") {
  if (no_gpu()) return;
  void* const data = cuda::allocate(16);
  const std::string invalid = "cudaErrorInvalidValue";
  const std::string location = text("cuda/runtime/runtime_test.cpp:", __LINE__ + 2);
  const auto too_wide = [&] {
    cuda::launch({"write", dim3(3, 2), 2000}, write_kernel<float>, static_cast<float*>(data), 1.0f);
  };
  expect_gpu_error(too_wide)
      .names("write")
      .value(invalid)
      .names(location)
      .value("3 x 2 blocks")
      .value("2000 threads")
      .offers("--device=cpu");
  {
    const CurrentOperation gelu("gelu");
    const auto in_operation = [&] {
      cuda::launch({"write", 1, 2000}, write_kernel<float>, static_cast<float*>(data), 1.0f);
    };
    expect_gpu_error(in_operation).names("write").names("gelu").value(invalid).names("cuda/runtime/runtime_test.cpp:");
  }
  const auto too_large = [&] {
    cuda::launch({"large", 1, 1, 300 * 1024}, shared_kernel<Large>, static_cast<Large*>(data));
  };
  expect_gpu_error(too_large).names("large").value(1).value(1).value("307200 bytes").names("shared memory");
  cuda::launch({"write", 1, 4}, write_kernel<float>, static_cast<float*>(data), 7.0f);  // the next launch works
  float result[4];
  cuda::copy(result, false, data, true, 16);
  CHECK(result[3] == 7);
  cuda::free(data);
}

TEST_CASE("shared memory beyond 48 KB") {
  if (no_gpu()) return;
  std::vector<float> x(15000, 3);
  void* const data = cuda::allocate(sizeof(Large));
  cuda::copy(data, true, x.data(), false, sizeof(Large));
  cuda::launch({"large", 1, 1, sizeof(Large)}, shared_kernel<Large>, static_cast<Large*>(data));
  std::vector<float> y(15000);
  cuda::copy(y.data(), false, data, true, sizeof(Large));
  CHECK(x == y);
  cuda::free(data);
}

TEST_CASE("the error for an unsupported old GPU names it") {
  const auto too_old = [] { cuda::check_supported({"GeForce GTX 1080", 6, 1, 20, 8000000000, 49152}); };
  expect_gpu_error(too_old).names("GeForce GTX 1080").value("6.1").offers("8.0").offers("--device=cpu");
  CHECK_NOTHROW(cuda::check_supported({"A100", 8, 0, 108, 40000000000, 167936}));
}

TEST_CASE("peak: a GPU's peak follows from its clock, and is unknown without a clock") {
  if (no_gpu()) return;
#if defined(EMULATE_CUDA)
  CHECK(cuda::device_properties().clock == 0);
  CHECK(peak_flops(Device::cuda, Dtype::bf16) == 0);
#else
  CHECK(cuda::device_properties().clock > 1e8);
  CHECK(peak_flops(Device::cuda, Dtype::bf16) ==
        peak_flops(cuda::device_properties(), Dtype::bf16, product_precision()));
#endif
}

#if defined(EMULATE_CUDA)
TEST_CASE("a CUDA graph: a capture that runs out of memory has an error message, and frees no captured block") {
  release_cached(Device::cuda);
  cuda_on_cpu::options.memory =
      static_cast<int64_t>(cuda::device_properties().memory - cuda::free_memory()) + (3 << 20);
  const int64_t large = 5 << 19, small = 1 << 20;
  const auto record = [&](int64_t second) {
    const Graph graph([&] {
      { const cuda::Workspace first(large); }
      const cuda::Workspace block(second);
      cuda::zero(block.data(), second);
    });
    graph.replay();
    CHECK(graph.memory().use().cached > 0);
  };
  // It does not fit next to the first one, which captured work writes to.
  expect_gpu_error([&] { record(small); }).names("workspace").names("memory").value("1048576 bytes");
  CHECK_NOTHROW(record(large));  // uses the same block
  cuda_on_cpu::options = {};
}

TEST_CASE("the error for a program without code for this GPU has its architectures and the build command") {
  cuda_on_cpu::options.holds_code = false;
  const std::string build = "cmake -S . -B build -DORRERY_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=";
  const std::string rest = " && cmake --build build --parallel;", none = "CMAKE_CUDA_ARCHITECTURES=none";
  const auto ampere = [] { cuda::check_supported({"GeForce RTX 3090", 8, 6, 82, 24000000000, 101376}); };
  expect_gpu_error(ampere)
      .names("RTX 3090")
      .value("8.6")
      .value(none)
      .offers(build + "86" + rest)
      .offers("--device=cpu");
  const auto hopper = [] { cuda::check_supported({"H100", 9, 0, 132, 80000000000, 232448}); };
  expect_gpu_error(hopper).names("H100").value("9.0").value(none).offers(build + "90a" + rest);
  void* const data = cuda::allocate(16);
  const auto launch = [&] { cuda::launch({"write", 1, 4}, write_kernel<float>, static_cast<float*>(data), 7.0f); };
  expect_gpu_error(launch).names("write").value("cudaErrorNoKernelImageForDevice").offers("build the program");
  cuda_on_cpu::options = {};
  cuda::free(data);
}

TEST_CASE("without a GPU: the device count is 0, and an allocation has an error message") {
  cuda_on_cpu::options.devices = 0;
  CHECK(cuda::device_count() == 0);
  const auto ask = [] { cuda::allocate(16); };
  expect_gpu_error(ask)
      .names("allocate")
      .names("GPU")
      .value("cudaErrorNoDevice")
      .offers("driver")
      .offers("--device=cpu");
  cuda_on_cpu::options.devices = 1;
}
#endif

}  // namespace
}  // namespace orrery
