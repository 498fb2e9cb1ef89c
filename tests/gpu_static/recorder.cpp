#include "tests/gpu_static/recorder.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>

#include "cuda/attention/problem.cuh"
#include "cuda/matmul/tensor_core_runs.cuh"
#include "engine/autograd/autograd.h"
#include "engine/system/pool.h"

using namespace orrery;

namespace recorder {
namespace {

const void* launched = nullptr;  // kernel whose result is not checked yet
std::string work_launched;
std::map<void*, size_t> blocks;
size_t used = 0, peak = 0;

void note(Entry e) {
  if (!active) return;
  e.phase = phase, e.operation = current_operation();
  const auto same = [&](const auto& other) { return other.first.key() == e.key(); };
  const auto found = std::find_if(entries.all.begin(), entries.all.end(), same);
  if (found != entries.all.end())
    ++found->second;
  else
    entries.all.push_back({e, 1});
}

template <class T, class Result>
std::string product_of(const cuda::MatmulPlan<T, Result>& plan) {
  const cuda::Matmul<T, Result>& p = plan.product;
  const auto once = [&](const cuda::Operand<T>& operand) { return operand.batch_stride ? p.batch : 1; };
  const int64_t operands = (once(p.a) * p.m * p.k + once(p.b) * p.k * p.n) * static_cast<int64_t>(sizeof(T));
  const int64_t result = p.batch * p.m * p.n * static_cast<int64_t>(sizeof(Result));
  const int64_t bytes = operands + result * (1 + (p.accumulate ? 1 : 0) + (p.residual ? 1 : 0));
  const int64_t aligned = plan.vectors_a && plan.vectors_b, sums_rows = p.row_sums != nullptr;
  std::string work = "product";
  for (const int64_t number :
       {p.m, p.n, p.k, p.batch, plan.splits, aligned, bytes, plan.tiles_down, plan.tiles_across, sums_rows})
    work += " " + std::to_string(number);
  return work;
}
template <class T, class Result>
bool is_product(const cuda_on_cpu::Parameter& parameter, std::string& work) {
  if (*parameter.type != typeid(cuda::MatmulPlan<T, Result>)) return false;
  work = product_of(*static_cast<const cuda::MatmulPlan<T, Result>*>(parameter.data));
  return true;
}
std::string slots_of(const cuda::SlotsOfProducts& all) {
  int64_t bytes = 0;  // slots are read, tiles of C are written
  for (int i = 0; i < all.count; ++i) {
    const cuda::Runs& runs = all.products[i];
    const int64_t steps = runs.steps_of_tile();
    for (int64_t first = 0; first < runs.tiles() * steps; first += steps)
      if (const int64_t cuts = runs.run_of(first + steps - 1) - runs.run_of(first); cuts > 0)
        bytes += (cuts + 2) * cuda::Slot::floats * 4;
  }
  return "slots " + std::to_string(bytes);
}
bool is_in_runs(const cuda_on_cpu::Parameter& parameter, std::string& work) {
  if (*parameter.type == typeid(cuda::Runs))
    work = product_of(static_cast<const cuda::Runs*>(parameter.data)->plan);
  else if (*parameter.type == typeid(cuda::SlotsOfProducts))
    work = slots_of(*static_cast<const cuda::SlotsOfProducts*>(parameter.data));
  return !work.empty();
}
// Accepts any weighting, named here or not: every WeightedProblem begins with an AttentionProblem.
bool is_attention(const cuda_on_cpu::Parameter& parameter, std::string& work) {
  if (!std::string_view(parameter.type->name()).starts_with("N6orrery4cuda15WeightedProblemIf")) return false;
  const auto& p = *static_cast<const AttentionProblem<float>*>(parameter.data);
  work = "attention";
  for (const int number : {p.batch, p.query_heads, p.queries, p.keys, p.head_size})
    work += " " + std::to_string(number);
  if (p.first == -MaskView::unbounded && p.last == MaskView::unbounded) work += " full";
  return true;
}
template <class T, class Result>
bool is_split_k_sum(cuda_on_cpu::Parameters parameters, std::string& work) {
  if (parameters.size() < 3 || *parameters[0].type != typeid(cuda::Matmul<T, Result>)) return false;
  const auto& p = *static_cast<const cuda::Matmul<T, Result>*>(parameters[0].data);
  work = "pieces";
  for (const int64_t number : {p.m, p.n, p.batch, *static_cast<const int64_t*>(parameters[2].data)})
    work += " " + std::to_string(number);
  return true;
}
std::string work_of(cuda_on_cpu::Parameters parameters) {
  std::string work;
  if (is_split_k_sum<bf16, bf16>(parameters, work) || is_split_k_sum<bf16, float>(parameters, work) ||
      is_split_k_sum<float, float>(parameters, work))
    return work;
  for (const cuda_on_cpu::Parameter& p : parameters)
    if (is_product<bf16, bf16>(p, work) || is_product<bf16, float>(p, work) || is_product<float, float>(p, work) ||
        is_attention(p, work) || is_in_runs(p, work))
      break;
  return work;
}

std::string without_arguments(const std::string& name) {
  int depth = 0;
  for (size_t n = 0; n < name.size(); ++n) {
    depth += (name[n] == '<') - (name[n] == '>');
    if (name[n] == '(' && depth == 0) return name.substr(0, n);
  }
  return name;
}

// Returns a kernel's name without the mark of a local symbol, so that moving a formula to a header
// keeps the name. dladdr does not find kernels whose formula is local to its file.
std::string name_of(const void* kernel) {
  static std::map<std::string, std::map<size_t, std::string>> modules;
  Dl_info where;
  if (!kernel || !dladdr(kernel, &where)) return "";
  auto& names = modules[where.dli_fname];
  if (names.empty()) {
    const std::string command = std::string("nm -C --defined-only ") + where.dli_fname;
    FILE* const symbols = popen((command + " | sed 's/(anonymous namespace):://g'").c_str(), "r");
    char line[1 << 16];
    while (symbols && std::fgets(line, sizeof line, symbols)) {
      std::string text(line);
      if (text.size() > 20 && text[17] != ' ')
        names[std::stoull(text, nullptr, 16)] = without_arguments(text.substr(19, text.size() - 20));
    }
    if (symbols) pclose(symbols);
  }
  return names[static_cast<size_t>(static_cast<const char*>(kernel) - static_cast<const char*>(where.dli_fbase))];
}

}  // namespace

bool Entries::operator==(const Entries& other) const {
  return std::equal(all.begin(), all.end(), other.all.begin(), other.all.end(), [](const auto& a, const auto& b) {
    return a.first.key() == b.first.key() && a.second == b.second;
  });
}
int Entries::count() const {
  int sum = 0;
  for (const auto& [entry, times] : all) sum += times;
  return sum;
}
bool Entries::has_work() const {
  return std::any_of(all.begin(), all.end(), [](const auto& e) {
    return e.first.launch != "copy to host" && e.first.launch != "copy to device";
  });
}
void Entries::write(std::FILE* file) const {
  for (const auto& [e, times] : all)
    std::fprintf(file, "%s\t%s\t%s\t%zu\t%u\t%d\t%zu\t%s\t%s\n", e.phase.c_str(), e.operation.c_str(), e.launch.c_str(),
                 e.blocks, e.threads, times, e.shared, name_of(e.kernel).c_str(), e.work.c_str());
}
size_t peak_memory() { return peak; }

}  // namespace recorder

// Replacements for the library's own functions.
using namespace recorder;

namespace cuda_on_cpu {
cudaError_t launch(const cudaLaunchConfig_t&, const void* kernel, Body, Parameters parameters) {
  launched = kernel, work_launched = active ? work_of(parameters) : "";
  return cudaSuccess;
}
}  // namespace cuda_on_cpu
namespace orrery::cuda {
void check(cudaError_t, const Launch& l) {
  if (!launched) return;  // shared memory was requested, nothing was launched
  note({.launch = l.name,
        .blocks = l.grid.x,
        .threads = l.block.x,
        .shared = l.shared_bytes,
        .kernel = launched,
        .work = work_launched});
  launched = nullptr;
}
}  // namespace orrery::cuda
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  constexpr char name[] = "none: launches are recorded";
  std::copy_n(name, sizeof name, properties->name);
  properties->major = 9, properties->minor = 0, properties->multiProcessorCount = multiprocessors;
  properties->sharedMemPerBlockOptin = 227 * 1024, properties->totalGlobalMem = size_t{80} << 30;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, size_t bytes) {
  *data = mmap(nullptr, bytes + 512, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (*data == MAP_FAILED) return cudaErrorMemoryAllocation;
  blocks[*data] = bytes, used += bytes, peak = std::max(peak, used);
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  if (data) used -= blocks[data], munmap(data, blocks[data] + 512), blocks.erase(data);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void*, const void*, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  constexpr const char* names[] = {"copy", "copy to device", "copy to host", "copy on device"};
  note({.launch = names[kind], .blocks = bytes});
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void*, int, size_t bytes, cudaStream_t) {
  note({.launch = "memset", .blocks = bytes});
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  if (at_synchronize) at_synchronize();
  return cudaSuccess;
}
void Tensor::backward() const {
  phase = "backward";
  orrery::backward(*this, Tensor::full(shape(), 1, dtype(), device()));
  phase = "optimizer";
}
