// The launches of one training step, recorded and not guessed: a GPT of true size runs through the emulated library of
// the project (tests/support/cuda_on_cpu.h) with kernels that do nothing, so it takes seconds and little memory.
//
//   cmake -S . -B build -DORRERY_TESTS=ON && cmake --build build --target gpu_launches
//   build/gpu_launches FILE BATCH [heads=12] [attention=softmax] [vocabulary=50257]
//
// FILE: lines of phase (forward, backward, optimizer), operation, launch, blocks, threads, times, bytes of shared
// memory that the launch asked for, kernel, and what a product or attention is given to do:
//   product M N K BATCH PIECES ALIGNED BYTES    pieces of k; 1 if the rows of both operands begin at 16 bytes; bytes of
//                                               operands and of what it adds to and writes, without an epilogue's own
//   pieces M N BATCH PIECES           are added up
//   attention BATCH HEADS QUERIES KEYS SIZE
// Copies and memsets that are queued have bytes for blocks and no kernel.
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "cuda/attention/problem.cuh"
#include "cuda/matmul/matmul.cuh"
#include "engine/autograd/autograd.h"
#include "engine/base/pool.h"
#include "engine/ops/ops.h"
#include "models/gpt.h"
#include "nn/losses/base/loss.h"
#include "nn/optimizers/base/optimizer.h"

using namespace orrery;

namespace {

struct Entry {
  std::string phase = {}, operation = {}, launch = {};
  size_t blocks = 0;
  unsigned threads = 0;
  size_t shared = 0;
  const void* kernel = nullptr;
  std::string work = {};
  auto key() const { return std::tie(phase, operation, launch, blocks, threads, shared, kernel, work); }
};
std::vector<std::pair<Entry, int>> entries;  // and how often, in the order of the first
bool counting = false;
std::string phase;
const void* launched = nullptr;  // whose result was not checked yet
std::string work_launched;
std::map<void*, size_t> blocks;
size_t used = 0, peak = 0;

void note(Entry e) {
  if (!counting) return;
  e.phase = phase, e.operation = current_operation();
  const auto same = [&](const auto& other) { return other.first.key() == e.key(); };
  const auto found = std::find_if(entries.begin(), entries.end(), same);
  if (found != entries.end())
    ++found->second;
  else
    entries.push_back({e, 1});
}

template <class T, class Result>
bool is_product(const cuda_on_cpu::Parameter& parameter, std::string& work) {
  if (*parameter.type != typeid(cuda::MatmulPlan<T, Result>)) return false;
  const auto& plan = *static_cast<const cuda::MatmulPlan<T, Result>*>(parameter.data);
  const cuda::Matmul<T, Result>& p = plan.product;
  const auto once = [&](const cuda::Operand<T>& operand) { return operand.batch_stride ? p.batch : 1; };
  const int64_t operands = (once(p.a) * p.m * p.k + once(p.b) * p.k * p.n) * static_cast<int64_t>(sizeof(T));
  const int64_t result = p.batch * p.m * p.n * static_cast<int64_t>(sizeof(Result));
  const int64_t bytes = operands + result * (1 + (p.accumulate ? 1 : 0) + (p.residual ? 1 : 0));
  const int64_t aligned = plan.vectors_a && plan.vectors_b;
  work = "product";
  for (const int64_t number : {p.m, p.n, p.k, p.batch, plan.pieces, aligned, bytes})
    work += " " + std::to_string(number);
  return true;
}
template <class Weighting>
bool is_attention(const cuda_on_cpu::Parameter& parameter, std::string& work) {
  if (*parameter.type != typeid(cuda::WeightedProblem<float, Weighting>)) return false;
  const auto& p = *static_cast<const cuda::WeightedProblem<float, Weighting>*>(parameter.data);
  work = "attention";
  for (const int number : {p.batch, p.query_heads, p.queries, p.keys, p.head_size})
    work += " " + std::to_string(number);
  return true;
}
template <class T, class Result>
bool is_sum_of_pieces(cuda_on_cpu::Parameters parameters, std::string& work) {
  if (parameters.size() < 3 || *parameters[0].type != typeid(cuda::Matmul<T, Result>)) return false;
  const auto& p = *static_cast<const cuda::Matmul<T, Result>*>(parameters[0].data);
  work = "pieces";
  for (const int64_t number : {p.m, p.n, p.batch, *static_cast<const int64_t*>(parameters[2].data)})
    work += " " + std::to_string(number);
  return true;
}
std::string work_of(cuda_on_cpu::Parameters parameters) {
  std::string work;
  if (is_sum_of_pieces<bf16, bf16>(parameters, work) || is_sum_of_pieces<bf16, float>(parameters, work) ||
      is_sum_of_pieces<float, float>(parameters, work))
    return work;
  for (const cuda_on_cpu::Parameter& p : parameters)
    if (is_product<bf16, bf16>(p, work) || is_product<bf16, float>(p, work) || is_product<float, float>(p, work) ||
        is_attention<cuda::SoftmaxWeights>(p, work))
      break;
  return work;
}

std::string without_arguments(const std::string& name) {
  int depth = 0;
  for (size_t n = 0; n < name.size(); ++n) {
    depth += (name[n] == '<') - (name[n] == '>');
    if (name[n] == '(' && depth == 0 && name.compare(n, 10, "(anonymous") != 0) return name.substr(0, n);
  }
  return name;
}

// Names of kernels: dladdr knows none of those whose formula has no name outside of its file.
std::string name_of(const void* kernel) {
  static std::map<std::string, std::map<size_t, std::string>> modules;
  Dl_info where;
  if (!kernel || !dladdr(kernel, &where)) return "";
  auto& names = modules[where.dli_fname];
  if (names.empty()) {
    FILE* const symbols = popen((std::string("nm -C --defined-only ") + where.dli_fname).c_str(), "r");
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

// These stand in for the library's own.
namespace cuda_on_cpu {
cudaError_t launch(const cudaLaunchConfig_t&, const void* kernel, Body, Parameters parameters) {
  launched = kernel, work_launched = counting ? work_of(parameters) : "";
  return cudaSuccess;
}
}  // namespace cuda_on_cpu
namespace orrery::cuda {
void check(cudaError_t, const Launch& l) {
  if (!launched) return;  // shared memory was asked for, nothing was launched
  note({.launch = l.name,
        .blocks = l.grid.x,
        .threads = l.block.x,
        .shared = l.shared_bytes,
        .kernel = launched,
        .work = work_launched});
  launched = nullptr;
}
}  // namespace orrery::cuda
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

int main(int count, char** arguments) try {
  if (count < 3) return std::fprintf(stderr, "launches FILE BATCH [heads=N] [attention=NAME] [vocabulary=N]\n"), 2;
  const int64_t batch = std::atoi(arguments[2]);
  auto settings = models::named_model("gpt2-124m").settings.as<models::GptSettings>();
  for (int n = 3; n < count; ++n) {
    const std::string word = arguments[n], value = word.substr(word.find('=') + 1);
    if (word.starts_with("heads="))
      settings.heads = std::stoi(value);
    else if (word.starts_with("attention="))
      settings.attention = parse_spec(value);
    else if (word.starts_with("vocabulary="))
      settings.vocabulary = std::stoi(value);
    else
      return std::fprintf(stderr, "%s: not heads=, attention= or vocabulary=\n", arguments[n]), 2;
  }
  models::Gpt model(settings);
  nn::convert(model, Dtype::bf16);
  nn::move(model, Device::cuda);
  nn::FlatParameters parameters(model);
  const auto optimizer = nn::make_optimizer(parse_spec("adamw(beta2=0.95, decay=0.1)"), parameters);
  const Tensor tokens = Tensor::zeros(Shape{2, batch, settings.context}, Dtype::i32, Device::cuda);
  const Tensor losses = Tensor::zeros(Shape{1}, Dtype::f64, Device::cuda);
  for (const bool second : {false, true}) {  // the first step asks for memory
    counting = second;
    phase = "forward";
    parameters.zero_gradients();
    nn::Pass pass;
    pass.training = true;
    optimizer->request(1e-3, 1.0);
    const Tensor loss = scale(nn::cross_entropy(model(tokens[0], pass), tokens[1], 0), 1.0);
    add_in_place(losses[0], loss.detach().to(Dtype::f64));
    phase = "backward";
    loss.backward();
    phase = "optimizer";
    optimizer->update(losses[0]);
  }
  counting = false;

  FILE* const file = std::fopen(arguments[1], "w");
  if (!file) return std::perror(arguments[1]), 1;
  std::fprintf(file, "# gpt2-124m in bf16, adamw: batch=%ld heads=%ld attention=%s vocabulary=%ld, memory %.2f GB\n",
               long(batch), long(settings.heads), settings.attention.name.c_str(), long(settings.vocabulary),
               static_cast<double>(peak) / 1e9);
  std::fprintf(file, "# phase\toperation\tlaunch\tblocks\tthreads\ttimes\tshared\tkernel\twork\n");
  int all = 0;
  for (const auto& [e, times] : entries) {
    std::fprintf(file, "%s\t%s\t%s\t%zu\t%u\t%d\t%zu\t%s\t%s\n", e.phase.c_str(), e.operation.c_str(),
                 e.launch.c_str(), e.blocks, e.threads, times, e.shared, name_of(e.kernel).c_str(), e.work.c_str());
    all += times;
  }
  std::fclose(file);
  std::printf("%d launches and copies, peak memory %.2f GB\n", all, static_cast<double>(peak) / 1e9);
} catch (const std::exception& error) {
  return std::fprintf(stderr, "%s\n", error.what()), 1;
}
