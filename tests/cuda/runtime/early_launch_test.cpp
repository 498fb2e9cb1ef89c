// Early launch (cuda/runtime/launch.cuh): every kernel waits before its first access to device
// memory and lets the next one start, and every launch may start early.
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "cuda/loops/sort.h"
#include "cuda/matmul/tensor_core_kernels.cuh"
#include "cuda/matmul/tensor_core_runs.cuh"
#include "cuda/matmul/tile_copies.cuh"
#include "engine/loops/loops.h"
#include "engine/tensor/staging.h"
#include "tests/cuda/attention/on_gpu.h"
#include "tests/cuda/matmul/products.h"
#include "tests/support/plain_attention.h"
#include "tests/support/tree.h"
#if defined(EMULATE_CUDA)
#include "tests/support/early_launch.h"
#endif

namespace orrery {
namespace {

TEST_CASE("early launch: needs code for compute capability 9.0 and a driver for CUDA 12.3; one line describes it") {
  cuda::DeviceProperties gpu{"H100", 9, 0, 132, 80000000000, 232448};
  gpu.code = 90, gpu.driver = 12030;
  CHECK(gpu.launches_early());
  CHECK(cuda::description(gpu) == "H100, compute capability 9.0, 132 multiprocessors; kernels start early");
  gpu.driver = 12020;
  CHECK_FALSE(gpu.launches_early());
  CHECK(cuda::description(gpu).ends_with("one after another: an early start needs a driver for CUDA 12.3"));
  gpu.code = 80, gpu.driver = 13000;  // PTX for 8.0 has no waits, but a driver compiles it for 9.0
  CHECK_FALSE(gpu.launches_early());
  CHECK(cuda::description(gpu).ends_with("an early start needs code for compute capability 9.0 or later"));
}

TEST_CASE("early launch: the description of a device says how it starts kernels") {
  CHECK(description(Device::cpu).empty());
  if (no_gpu()) return;
  CHECK(description(Device::cuda) == cuda::description(cuda::device_properties()));
}

#if defined(EMULATE_CUDA)
using cuda_on_cpu::Site;

struct Doubled {
  template <class T>
  HOST_DEVICE T operator()(T x) const {
    return x + x;
  }
};
struct Added {
  template <class T>
  HOST_DEVICE T operator()(T x, T y) const {
    return x + y;
  }
};
struct Total {
  In<float> x;
  Out<float> y;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const In<float> in = x.at(r * row.n);
    const float total = row.sum([&](int i) { return in[i]; });
    row.once([&] { y[r] = total; });
  }
};
struct Summed {  // y = x, and the sums of columns
  In<float> x;
  Out<float> y;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const auto in = row.preload(In<float>{x.pointer + r * row.n});
    row.map(y.at(r * row.n), [](float v) { return v; }, in);
    row.add_to_columns([](float v) { return Values<float, 1>{{v}}; }, in);
  }
};
struct Element {
  In<float> x;
  HOST_DEVICE float operator()(int64_t i, int64_t) const { return x[i]; }
};

bool maps() {
  DeviceArray<float> x(Device::cuda, whole_numbers<float>(64, 1)), y(Device::cuda, 64);
  map(Device::cuda, 64, Doubled(), y.data(), x.input());
  Broadcast<2> shape;
  shape.rank = 2, shape.size[0] = 2, shape.size[1] = 32;
  shape.stride[0][0] = 32, shape.stride[0][1] = shape.stride[1][1] = 1, shape.stride[1][0] = 0;
  map(Device::cuda, shape, Added(), y.data(), y.input(), x.input());
  const std::vector<float> given = whole_numbers<float>(64, 1);
  const std::vector<double> found = y.read();
  for (size_t i = 0; i < 64; ++i)
    if (found[i] != 2 * given[i] + given[i % 32]) return false;
  return true;
}
bool sums() {
  bool all = true;
  for (const int n : {5, 45, 2000, 40000}) {
    const std::vector<float> given = whole_numbers<float>(2 * n, 3);
    DeviceArray<float> x(Device::cuda, given), y(Device::cuda, 2);
    if (n < 40000)
      rows(Device::cuda, 2, n, Total{{x.data()}, {y.data()}});
    else
      reduce(Device::cuda, 2, n, 1, Element{{x.data()}}, y.data());
    double expected[2] = {};
    for (int i = 0; i < 2 * n; ++i) expected[i / n] += given[static_cast<size_t>(i)];
    all = all && y.read() == std::vector<double>(expected, expected + 2);
  }
  return all;
}
bool sums_columns() {
  const std::vector<float> given = whole_numbers<float>(2 * 512, 3);
  DeviceArray<float> x(Device::cuda, given), y(Device::cuda, 2 * 512), total(Device::cuda, 512);
  const std::array<SumOfRows<float>, 1> out = {{{total.data(), false, false}}};
  if (!cuda::rows_with_sums<1, float>(2, 512, Summed{{x.data()}, {y.data()}}, out)) return false;
  const std::vector<double> found = total.read();
  for (size_t i = 0; i < 512; ++i)
    if (found[i] != given[i] + given[512 + i]) return false;
  return true;
}
bool sorts() {
  DeviceArray<int32_t> key(Device::cuda, std::vector<int32_t>{3, 1, 2, 0}), sorted(Device::cuda, 4),
      order(Device::cuda, 4);
  cuda::sort(key.input(), 4, 4, sorted.data(), order.data());
  return order.read() == std::vector<double>{3, 1, 2, 0};
}
bool multiplies() {
  const Form small{.m = 20, .n = 24, .k = 40}, split{.m = 8, .n = 8, .k = 1100},
      terms{.m = 20, .n = 24, .k = 40, .bf16_terms = 2}, unaligned{.m = 20, .n = 24, .k = 40, .gap = 1};
  bool all = right<float>(small) && right<float>(split) && right<float>(terms);
  for (const int architecture : {86, 90}) {  // without warp groups and with them
    cuda_on_cpu::options.architecture = architecture;
    all = all && right<bf16>(small) && right<bf16>(unaligned);
  }
  return all;
}
bool multiplies_in_pipeline() {
  cuda_on_cpu::options.architecture = 90;
  const Form four_tiles{.m = 130, .n = 264, .k = 8};
  const Data<bf16> data(four_tiles);
  const auto multiply = [](const auto& p) {
    using Kernels = cuda::TensorCoreKernels<256>;
    const cuda::Plain<bf16> plain{};
    REQUIRE(cuda::pipelined(cuda::plan_of<Kernels>(p, plain)));
    cuda::run_matmul<Kernels>(p, plain);
  };
  return on_gpu(four_tiles, data, multiply) == by_hand(four_tiles, data);
}
bool multiplies_in_runs() {
  const Form form{.m = 8, .n = 8, .k = 132 * 64, .transpose_a = true};  // each run has a step
  const Data<bf16, float> data(form);
  const auto multiply = [](const auto& p) { cuda::multiply_in_runs(p); };
  return on_gpu(form, data, multiply) == by_hand(form, data);
}

constexpr Sizes small{.batch = 2,
                      .queries = 9,
                      .keys = 11,
                      .query_heads = 2,
                      .kv_heads = 1,
                      .head_size = 8,
                      .value_size = 8};
bool attends() {
  Sizes sizes = small;
  sizes.slots = 3;
  Case c{.sizes = sizes, .options = {.ramp = 4}};
  c.biased = c.positioned = c.spanned = true;
  c.lengths = {11, 5};
  c.fill();
  return difference(attention_on_gpu<double>(c, cuda::SoftmaxWeights{}).output, plain(c).output) < 1e-12;
}
bool attends_on_tensor_cores() {
  Case c{.sizes = small};
  c.lengths = {11, 5};
  c.fill(true);
  bool all = true;
  for (const int architecture : {86, 90}) {  // without warp groups and with them
    cuda_on_cpu::options.architecture = architecture;
    all = all && difference(attention_on_gpu<bf16>(c, cuda::SoftmaxWeights{}).output, plain(c).output) < 0.05;
  }
  return all;
}

// Returns "cuda/FOLDER/FILE:LINE" for each line in cuda/ with `call`.
std::set<std::string> lines_with(const std::string& call) {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(testing::source_root / "cuda")) {
    if (!entry.is_regular_file()) continue;
    int number = 0;
    for (const std::string& line : testing::lines_of(testing::contents(entry.path()))) {
      ++number;
      if (line.find(call) != line.npos)
        found.insert(text(std::filesystem::relative(entry.path(), testing::source_root).string(), ":", number));
    }
  }
  return found;
}
std::string name_of(const Site& site) {
  const std::string file = site.file;
  const size_t folder = file.rfind("cuda/");
  return text(folder == file.npos ? file : file.substr(folder), ":", site.line);
}

TEST_CASE("early launch: every kernel accesses device memory after its wait only, and needs its wait and its signal") {
  const std::function<bool()> runs[] = {
      maps,    sums, sums_columns, sorts, multiplies, multiplies_in_pipeline, multiplies_in_runs,
      attends, attends_on_tensor_cores};
  std::set<std::string> unchecked = lines_with("wait_for_earlier();");
  // empty_kernel has none; products in tiles share two; the three kernels of attention by warp groups share one.
  CHECK(unchecked.size() + 3 == lines_with("__global__").size());
  unchecked.merge(lines_with("allow_next();"));
  cuda_on_cpu::options.closed_memory = true;
  for (const auto& run : runs) {
    in_every_order([&] { CHECK(run()); });
    if (thread_sanitizer) continue;
    for (const Site& site : cuda_on_cpu::barriers_reached(run)) {
      if (unchecked.erase(name_of(site)) == 0) continue;
      CAPTURE(name_of(site));
      cuda_on_cpu::options.dropped = site;
      std::string fault;
      try {
        run();
      } catch (const cuda_on_cpu::Fault& found) {
        fault = found.what();
      }
      CHECK((fault.starts_with("device memory is accessed before") || fault.starts_with("allow_next(): a block")));
      cuda_on_cpu::options.dropped = {};
    }
  }
  cuda_on_cpu::options = {};
  for (const std::string& call : unchecked) CHECK_MESSAGE(thread_sanitizer, "no kernel of this test reaches ", call);
}

__global__ void unready_kernel(float* out, int wait) {
  if (wait < 2) out[0] = 1;
  if (wait == 1) cuda::wait_for_earlier();
  if (wait == 2 && threadIdx.x == 0) return;
  cuda::wait_for_earlier();
}
TEST_CASE("early launch: the emulation finds accesses before the wait, threads and blocks without a call") {
  const cuda::Workspace memory(16);
  cuda_on_cpu::options.closed_memory = true;
  const auto run = [&](int wait) {
    return [&memory, wait] {
      cuda::launch({"unready", 2, 64}, unready_kernel, static_cast<float*>(memory.data()), wait);
    };
  };
  for (const int wait : {0, 1}) expect_fault(run(wait)).names("accessed before").names("wait_for_earlier()");
  expect_fault(run(2)).names("wait_for_earlier()").value("1 of 64 threads");
  expect_fault(run(3)).names("allow_next()").names("without");
  cuda_on_cpu::options = {};
}

struct Tile {
  alignas(1024) unsigned char lines[1024];
  cuda::TransactionBarrier full;
};
enum class Copied { by_thread, tile, bytes, stored };
// Starts a copy before the wait that lands after it.
__global__ void early_copy_kernel(const __grid_constant__ cuda::TensorMap map, const bf16* in, Copied copied) {
  Tile& tile = cuda::shared_memory<Tile>();
  tile.full.init(1);
  cuda::barriers_initialized();
  tile.full.expect(copied == Copied::tile || copied == Copied::bytes ? 1024 : 0);
  if (copied == Copied::by_thread) cuda::cp_async<16>(tile.lines, in);
  if (copied == Copied::tile) cuda::tile_load(tile.lines, map, tile.full, {0, 0, 0, 0});
  if (copied == Copied::bytes) cuda::bulk_load(tile.lines, in, 1024, tile.full);
  if (copied == Copied::stored) cuda::tile_store(map, tile.lines, {0, 0, 0, 0});
  cuda::tile_stores_commit();
  cuda::wait_for_earlier();
  cuda::allow_next();
  cuda::cp_async_wait<0>();
  cuda::tile_stores_wait<0>();
  tile.full.wait(0);
}
TEST_CASE("early launch: copies that start before the wait and land after it access device memory too early") {
  DeviceArray<bf16> x(Device::cuda, 64 * 8);
  const cuda::TensorMap map = *cuda::tensor_map({x.data(), {64, 8, 1, 1}, {64, 0, 0}, {64, 8, 1, 1}});
  const auto run = [&](Copied copied) {
    return [&, copied] { cuda::launch({"early", 1, 1, sizeof(Tile)}, early_copy_kernel, map, x.input(), copied); };
  };
  for (const Copied copied : {Copied::by_thread, Copied::tile, Copied::bytes, Copied::stored}) {
    CAPTURE(static_cast<int>(copied));
    run(copied)();
    cuda_on_cpu::options.closed_memory = true;
    expect_fault(run(copied)).names("accessed before").names("wait_for_earlier()");
    cuda_on_cpu::options = {};
  }
}

TEST_CASE("early launch: every launch may start early, also in a CUDA graph") {
  CHECK(maps());
  DeviceArray<float> x(Device::cuda, whole_numbers<float>(64, 1)), y(Device::cuda, 64);
  const Graph graph([&] { map(Device::cuda, 64, Doubled(), y.data(), x.input()); });
  const bool early = cuda::device_properties().launches_early();
  CHECK(early == (cuda_on_cpu::options.architecture >= 90));
  CHECK(cuda_on_cpu::launches > 0);
  CHECK(cuda_on_cpu::early_launches == (early ? cuda_on_cpu::launches.load() : 0));
}
#endif

}  // namespace
}  // namespace orrery
