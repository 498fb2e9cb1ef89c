// Records the launches of one training step or of all benchmarks; estimates nothing (recorder.h).
//
//   cmake -S . -B build -DORRERY_TESTS=ON && cmake --build build --target gpu_launches
//   build/gpu_launches FILE BATCH [heads=12] [attention=softmax] [vocabulary=50257]
//                                 [multiprocessors=132]     a step of gpt2-124m
//   build/gpu_launches FILE benchmarks                      the benchmarks that tests/gpu.sh times
//
// FILE has a line per launch: phase (forward, backward, optimizer), operation, launch, blocks,
// threads, count, requested bytes of shared memory, kernel, and the work of a product or attention:
//   product M N K BATCH PIECES ALIGNED BYTES DOWN ACROSS SUMS
//       PIECES: K splits; ALIGNED: 1 if the rows of both operands begin at 16 bytes; BYTES: of the
//       operands, the addend and the result, without an epilogue's own; DOWN, ACROSS: tiles of C;
//       SUMS: 1 if the tiles of C's first columns sum A's rows
//   pieces M N BATCH PIECES           sums of the K splits
//   slots BYTES                       sums of the slots of products in runs; the bytes that they move
//   attention BATCH HEADS QUERIES KEYS SIZE     and "full" if no mask hides later keys
// Queued copies and memsets have bytes in place of blocks, and no kernel. A line "# benchmark" comes
// before the launches of a benchmark: dtype, name, work, unit, parameters of the model (0: none).
#include <cstdlib>
#include <exception>

#include "engine/ops/ops.h"
#include "models/architectures/gpt.h"
#include "nn/losses/base/loss.h"
#include "nn/optimizers/base/optimizer.h"
#include "tests/gpu_static/benchmarks.h"
#include "tests/gpu_static/recorder.h"

using namespace orrery;

namespace {

models::GptSettings settings_of(int count, char** arguments) {
  auto settings = models::named_model("gpt2-124m").settings.as<models::GptSettings>();
  for (int n = 0; n < count; ++n) {
    const std::string word = arguments[n], value = word.substr(word.find('=') + 1);
    if (word.starts_with("heads="))
      settings.heads = std::stoi(value);
    else if (word.starts_with("attention="))
      settings.attention = parse_spec(value);
    else if (word.starts_with("vocabulary="))
      settings.vocabulary = std::stoi(value);
    else if (word.starts_with("multiprocessors="))
      recorder::multiprocessors = std::stoi(value);
    else
      fail(word, ": not heads=, attention=, vocabulary= or multiprocessors=");
  }
  return settings;
}

// Records the second step, because the first one allocates memory.
void record_step(const models::GptSettings& settings, int64_t batch) {
  models::Gpt model(settings);
  nn::convert(model, Dtype::bf16);
  nn::move(model, Device::cuda);
  nn::FlatParameters parameters(model);
  const auto optimizer = nn::make_optimizer(parse_spec("adamw(beta2=0.95, weight_decay=0.1)"), parameters);
  const Tensor tokens = Tensor::zeros(Shape{2, batch, settings.context}, Dtype::i32, Device::cuda);
  const Tensor losses = Tensor::zeros(Shape{1}, Dtype::f64, Device::cuda);
  const Tensor fraction = Tensor::full(Shape{}, 1, Dtype::f32, Device::cuda);  // fraction of the step's targets
  for (const bool second : {false, true}) {
    recorder::active = second;
    recorder::phase = "forward";
    parameters.zero_gradients();
    nn::ForwardPass pass;
    pass.training = true;
    optimizer->send_request(1e-3, 1.0);
    const Tensor loss = nn::cross_entropy(model(tokens[0], pass), tokens[1], 0) * fraction;
    add_in_place(losses[0], loss.detach().to(Dtype::f64));
    loss.backward();
    optimizer->update(losses[0]);
  }
  recorder::active = false;
}

void write_columns(std::FILE* file) {
  std::fprintf(file, "# phase\toperation\tlaunch\tblocks\tthreads\ttimes\tshared\tkernel\twork\n");
}

}  // namespace

int main(int count, char** arguments) try {
  check(count >= 3,
        "gpu_launches FILE benchmarks, or FILE BATCH [heads=N] [attention=NAME] [vocabulary=N] [multiprocessors=N]");
  std::FILE* const file = std::fopen(arguments[1], "w");
  if (!file) return std::perror(arguments[1]), 1;
  if (arguments[2] == std::string("benchmarks")) {
    write_columns(file);
    record_benchmarks(file);
    return std::fclose(file);
  }
  const int64_t batch = std::atoi(arguments[2]);
  const models::GptSettings settings = settings_of(count - 3, arguments + 3);
  record_step(settings, batch);
  const double peak = static_cast<double>(recorder::peak_memory()) / 1e9;
  std::fprintf(file, "# gpt2-124m in bf16, adamw: batch=%ld heads=%ld attention=%s vocabulary=%ld, memory %.2f GB\n",
               long(batch), long(settings.heads), settings.attention.name.c_str(), long(settings.vocabulary), peak);
  write_columns(file);
  recorder::entries.write(file);
  std::printf("%d launches and copies, peak memory %.2f GB\n", recorder::entries.count(), peak);
  return std::fclose(file);
} catch (const std::exception& error) {
  return std::fprintf(stderr, "%s\n", error.what()), 1;
}
