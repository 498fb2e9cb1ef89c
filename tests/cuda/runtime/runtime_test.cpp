// Memory and launches, on a card or on its emulation.
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
  out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}
template <class T>
__global__ void shared_kernel(T* out) {
  T& shared = cuda::shared_memory<T>();
  shared = *out;
  *out = shared;
}
struct Large {
  float x[15000];  // more than the 48 KB that need no asking
};

TEST_CASE("device memory: copies in all directions, zero, alignment") {
  if (no_card()) return;
  CHECK(!cuda::card().name.empty());
  CHECK(cuda::card().major >= 8);
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

TEST_CASE("device memory: nullptr when it is used up, and it can be used after that") {
  if (no_card()) return;
  CHECK(cuda::allocate(int64_t{1} << 50) == nullptr);
  CHECK(contains(error_of([] { cuda::Workspace(int64_t{1} << 50); }),
                 "workspace: out of memory on the device: asked for 1125899906842624 bytes; "));
  void* const data = cuda::allocate(16);
  REQUIRE(data);
  cuda::zero(data, 16);
  cuda::free(data);
}

TEST_CASE("workspace: the pool's, which hands the same block out again") {
  if (no_card()) return;
  const void* const first = cuda::Workspace(1000).data();
  CHECK(cuda::Workspace(999).data() == first);
  const cuda::Workspace large(1 << 20);
  cuda::zero(large.data(), 1 << 20);
  cuda::synchronize();
}

TEST_CASE("out of memory on the device: what was asked for, what is held and by whom, what is free") {
  if (no_card()) return;
  const Tensor held = Tensor::zeros({1000}, Dtype::f32, Device::cuda), factor = held * 2.0, other = held * 3.0;
  const std::string message = error_of([] { Tensor::empty({int64_t{1} << 48}, Dtype::f32, Device::cuda); });
  INFO(message);
  CHECK(contains(message, "allocate: out of memory on cuda: asked for 1125899906842624 bytes; "));
  CHECK(contains(message, " held, "));
  CHECK(contains(message, "scale 8.2 KB in 2 blocks"));
  CHECK(contains(message, "tensors outside of operations 4.1 KB in 1 block"));
  CHECK(contains(message, "; the card has "));
  CHECK(contains(message, "use a smaller batch or context"));
}

TEST_CASE("pinned memory: numbers go to the device and come back while the host goes on") {
  if (no_card()) return;
  cuda::Pinned there(4000), back(4000);
  const cuda::Workspace device(4000);
  auto* const from = static_cast<int32_t*>(there.data());
  auto* const to = static_cast<int32_t*>(back.data());
  for (int i = 0; i < 1000; ++i) from[i] = i, to[i] = -1;
  there.send(device.data(), 4000);
  back.fetch(device.data(), 4000);
#if defined(EMULATE_CUDA)
  CHECK(to[7] != 7);  // nothing has arrived before it is waited for
#endif
  back.wait();
  CHECK(to[0] == 0);
  CHECK(to[999] == 999);
}

TEST_CASE("a graph: nothing is done when it is recorded, everything at each replay, in memory of its own") {
  if (no_card()) return;
  const Tensor x = Tensor::full({100}, 1, Dtype::f32, Device::cuda);
  const int64_t before = memory_use(Device::cuda).held;
  {
    const Graph twice([&] {
      const Tensor doubled = x * 2.0;
      x.copy_from(doubled + 1.0);
    });
    CHECK(x.to_vector()[99] == 1);
    CHECK(memory_use(Device::cuda).held == before);
    CHECK(twice.memory().use().held == 0);
    CHECK(twice.memory().use().cached > 0);  // nobody else takes it
    twice.replay();
    CHECK(x.to_vector()[99] == 3);
    twice.replay();
    twice.replay();
    CHECK(x.to_vector()[0] == 15);
  }
  CHECK(contains(error_of([&] { Graph([&] { x.item(); }); }), "item"));
  CHECK(contains(error_of([&] { Graph([&] { x.to_vector(); }); }), "cudaErrorStreamCapture"));
  CHECK((x + 1.0).to_vector()[5] == 16);  // and work goes on after that
}

TEST_CASE("a graph: what another thread does meanwhile is done, and not recorded") {
  if (no_card()) return;
  const Tensor x = Tensor::full({100}, 1, Dtype::f32, Device::cuda);
  const Tensor y = Tensor::full({100}, 5, Dtype::f32, Device::cuda);
  double seen = 0;
  std::string error = "not run";
  const Graph graph([&] {
    x.copy_from(x * 2.0);
    std::thread([&] {
      error = error_of([&] {
        y.copy_from(y + 1.0);
        seen = y.to_vector()[99];
        const Graph another([&] { y.copy_from(y * 10.0); });  // two records at a time
        another.replay();
        seen += y.to_vector()[99];
      });
    }).join();
    x.copy_from(x + 1.0);
  });
  CHECK(error == "no error");
  CHECK(seen == 66);
  CHECK(x.to_vector()[99] == 1);
  graph.replay();
  graph.replay();
  CHECK(x.to_vector()[99] == 7);
  CHECK(y.to_vector()[99] == 60);
  CHECK(contains(error_of([&] { Graph([] { Graph([] {}); }); }), "record: this thread records a graph already"));
}

TEST_CASE("a refused launch is an error that names kernel, place and shape") {
  if (no_card()) return;
  void* const data = cuda::allocate(16);
  const int line = __LINE__ + 2;
  const std::string message = error_of([&] {
    cuda::launch({"write", dim3(3, 2), 2000}, write_kernel<float>, static_cast<float*>(data), 1.0f);
  });
  CHECK(message == "write: cudaErrorInvalidValue at cuda/runtime/runtime_test.cpp:" + std::to_string(line) +
                       ", launched with 3 x 2 blocks of 2000");
  {
    const CurrentOperation gelu("gelu");
    CHECK(contains(error_of([&] {
                     cuda::launch({"write", 1, 2000}, write_kernel<float>, static_cast<float*>(data), 1.0f);
                   }),
                   "write of gelu: cudaErrorInvalidValue at cuda/runtime/runtime_test.cpp:"));
  }
  CHECK(contains(error_of([&] {
                   cuda::launch({"large", 1, 1, 300 * 1024}, shared_kernel<Large>, static_cast<Large*>(data));
                 }),
                 "launched with 1 blocks of 1 and 307200 bytes of shared memory"));
  cuda::launch({"write", 1, 4}, write_kernel<float>, static_cast<float*>(data), 7.0f);  // the next launch works
  float result[4];
  cuda::copy(result, false, data, true, 16);
  CHECK(result[3] == 7);
  cuda::free(data);
}

TEST_CASE("shared memory beyond 48 KB") {
  if (no_card()) return;
  std::vector<float> x(15000, 3);
  void* const data = cuda::allocate(sizeof(Large));
  cuda::copy(data, true, x.data(), false, sizeof(Large));
  cuda::launch({"large", 1, 1, sizeof(Large)}, shared_kernel<Large>, static_cast<Large*>(data));
  std::vector<float> y(15000);
  cuda::copy(y.data(), false, data, true, sizeof(Large));
  CHECK(x == y);
  cuda::free(data);
}

TEST_CASE("a card that is too old is named") {
  CHECK(error_of([] {
          cuda::check_supported({"GeForce GTX 1080", 6, 1, 20, 8000000000, 49152});
        }) ==
        "start: the GPU GeForce GTX 1080 has compute capability 6.1; the kernels need 8.0 or later; use --device=cpu");
  CHECK(error_of([] { cuda::check_supported({"A100", 8, 0, 108, 40000000000, 167936}); }) == "no error");
}

TEST_CASE("peak: of a card by its clock, and unknown where it has none") {
  if (no_card()) return;
#if defined(EMULATE_CUDA)
  CHECK(cuda::card().clock == 0);
  CHECK(peak_flops(Device::cuda, Dtype::bf16) == 0);
#else
  CHECK(cuda::card().clock > 1e8);
  CHECK(peak_flops(Device::cuda, Dtype::bf16) == peak_flops(cuda::card(), Dtype::bf16, product_precision()));
#endif
}

#if defined(EMULATE_CUDA)
TEST_CASE("a graph: a recording that meets the end of memory ends with a sentence, and gives nothing back") {
  release_cached(Device::cuda);
  cuda_on_cpu::options.memory = static_cast<int64_t>(cuda::card().memory - cuda::free_memory()) + (3 << 20);
  const int64_t large = 5 << 19, small = 1 << 20;
  const auto record = [&](int64_t second) {
    return error_of([&] {
      const Graph graph([&] {
        { const cuda::Workspace first(large); }
        const cuda::Workspace block(second);
        cuda::zero(block.data(), second);
      });
      graph.replay();
      CHECK(graph.memory().use().cached > 0);
    });
  };
  const std::string message = record(small);  // it does not fit beside the first, which recorded work writes to
  CHECK(record(large) == "no error");         // the same block again
  cuda_on_cpu::options = {};
  CHECK(contains(message, "workspace: out of memory on the device: asked for 1048576 bytes; "));
}

TEST_CASE("a program without code for the card says for which it was built, and how to build for this one") {
  cuda_on_cpu::options.holds_code = false;
  const std::string start = error_of([] {
    cuda::check_supported({"GeForce RTX 3090", 8, 6, 82, 24000000000, 101376});
  });
  const std::string start_of_hopper = error_of([] {
    cuda::check_supported({"H100", 9, 0, 132, 80000000000, 232448});
  });
  void* const data = cuda::allocate(16);
  const std::string launch = error_of([&] {
    cuda::launch({"write", 1, 4}, write_kernel<float>, static_cast<float*>(data), 7.0f);
  });
  cuda_on_cpu::options = {};
  cuda::free(data);
  CHECK(start ==
        "start: this program holds no code for the GPU GeForce RTX 3090 of compute capability 8.6; it was built with "
        "CMAKE_CUDA_ARCHITECTURES=none.  For this card:  cmake -S . -B build -DORRERY_CUDA=ON "
        "-DCMAKE_CUDA_ARCHITECTURES=86 && cmake --build build --parallel;  --device=cpu needs none");
  CHECK(contains(start_of_hopper, "-DCMAKE_CUDA_ARCHITECTURES=90a && "));
  CHECK(contains(launch, "write: cudaErrorNoKernelImageForDevice"));
}

TEST_CASE("without a card: no device, and a sentence for who wants one") {
  cuda_on_cpu::options.devices = 0;
  CHECK(cuda::device_count() == 0);
  const std::string message = error_of([] { cuda::allocate(16); });
  cuda_on_cpu::options.devices = 1;
  CHECK(message.rfind("allocate: no GPU can be used (cudaErrorNoDevice); is its driver installed?", 0) == 0);
}
#endif

}  // namespace
}  // namespace orrery
