#include "models/training/short_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "models/data/text.h"
#include "nn/losses/base/loss.h"
#include "nn/optimizers/base/optimizer.h"

namespace orrery::models {

ShortRun short_run(GptSettings settings, const std::string& data, int64_t steps, uint64_t seed) {
  constexpr int64_t batch = 4, warmup_steps = 20;
  constexpr double learning_rate = 1e-3;
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer("character", data);
  const Text text(data, *tokenizer);
  text.check_context(settings.context);
  settings.vocabulary = tokenizer->size();
  Gpt model(settings);
  nn::initialize(model, seed);
  nn::FlatParameters parameters(model);
  const auto optimizer = nn::make_optimizer(parse_spec("adamw(beta2=0.99, weight_decay=0.1)"), parameters);
  const TextBatches batches(text.train(), batch, settings.context, seed);

  const auto start = std::chrono::steady_clock::now();
  ShortRun run;
  for (int64_t step = 0; step < steps; ++step) {
    const Batch b = batches.at(step);
    nn::Pass pass;
    pass.training = true, pass.key = RandomKey{seed, 1}.derive(static_cast<uint64_t>(step));
    parameters.zero_gradients();
    const Tensor loss = nn::cross_entropy(model(b.inputs, pass), b.targets);
    run.losses.push_back(loss.item());
    if (!std::isfinite(run.losses.back())) break;
    loss.backward();
    optimizer->step(learning_rate * std::min(1.0, static_cast<double>(step + 1) / warmup_steps), 1);
  }
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (run.losses.empty()) return run;
  const auto last = std::min<std::ptrdiff_t>(20, static_cast<std::ptrdiff_t>(run.losses.size()));
  run.first_loss = run.losses.front();
  run.last_loss = std::accumulate(run.losses.end() - last, run.losses.end(), 0.0) / static_cast<double>(last);
  return run;
}

}  // namespace orrery::models
