#include "models/training/memory_plan.h"

#include <algorithm>
#include <cmath>

#include "engine/autograd/autograd.h"
#include "engine/base/machine_memory.h"
#include "engine/ops/ops.h"
#include "nn/losses/base/loss.h"
#include "nn/optimizers/base/optimizer.h"

namespace orrery::models {
namespace {

// What is measured shall cost a fraction of a second, whatever the model.
constexpr double most_multiplications = 4e9, most_scores = 4e6;
constexpr int64_t fewest_tokens = 16, most_tokens = 4096, validation_batch = 16;
// What was drawn out may be this much too large; a run is refused only if it cannot fit even then.
constexpr double certain_share = 1 / 1.5;

std::string in_megabytes(double bytes) {
  return std::to_string(static_cast<int64_t>(std::ceil(std::min(bytes, 1e18) / 1e6))) + " MB";
}

[[noreturn]] void fail_to_fit(const TrainSettings& s, const std::string& what, int64_t free) {
  const GptSettings& g = s.gpt;
  fail("train: the run cannot fit into memory: ", what, ", but ", in_megabytes(static_cast<double>(free)),
       " are free on ", s.device, "; with layers ", g.layers, ", width ", g.width, ", d_ff ",
       g.d_ff ? g.d_ff : 4 * g.width, ", vocabulary ", g.vocabulary, ", batch ", s.batch, ", context ", g.context,
       ", attention ", g.attention, ", feed_forward ", g.feed_forward, ": lower the largest of these");
}

struct Sample {  // what is measured: so many sequences of so many tokens
  int64_t batch, tokens;
};
// All of a sequence if the work allows it, and as many sequences of the batch.
Sample choose_sample(const TrainSettings& s, int64_t parameters) {
  const double width = static_cast<double>(s.gpt.width), heads = static_cast<double>(s.gpt.heads),
               all = most_multiplications / (6 * static_cast<double>(parameters)),
               one = std::min({all, std::sqrt(most_multiplications / (24 * width)), std::sqrt(most_scores / heads)});
  const int64_t tokens = std::min(s.gpt.context, std::max(fewest_tokens, static_cast<int64_t>(one)));
  return {std::clamp<int64_t>(std::min(static_cast<int64_t>(all), most_tokens) / tokens, 1, s.batch), tokens};
}

struct Peaks {  // bytes beside weights, gradients and moments
  double step, reading;
};
struct Measured {
  double moments = 0;
  Peaks whole{}, half{};  // at the sample's tokens, and at half of them
};

double peak_of(const auto& work) {
  const int64_t before = memory_use(Device::cpu).held;
  reset_peak(Device::cpu);
  work();
  return static_cast<double>(memory_use(Device::cpu).peak - before);
}

// One step, and one batch of a validation, of a model with so many layers.
class Measurement {
 public:
  Measurement(const TrainSettings& settings, int64_t layers) : s_(settings), model_(make(settings, layers)) {
    for (const nn::NamedParameter& p : nn::parameters_of(*model_)) nn::fill(p.parameter->value, nn::constant(0.01), {});
    nn::convert(*model_, parse_dtype(s_.dtype));
    parameters_ = std::make_unique<nn::FlatParameters>(*model_);
    optimizer_ = nn::make_optimizer(s_.optimizer, *parameters_);
  }
  Measured run(const Sample& sample) {
    Measured found;
    for (const auto& [name, moment] : optimizer_->moments()) found.moments += static_cast<double>(moment.bytes());
    found.whole = peaks(sample.batch, sample.tokens);
    if (sample.tokens < s_.gpt.context) found.half = peaks(sample.batch, std::max<int64_t>(1, sample.tokens / 2));
    return found;
  }

 private:
  static std::unique_ptr<Gpt> make(const TrainSettings& settings, int64_t layers) {
    GptSettings few = settings.gpt;
    few.layers = layers;
    const nn::ParameterCount untouched(largest_size);
    return std::make_unique<Gpt>(few);
  }
  Tensor loss(const Tensor& tokens, nn::Pass& pass) {
    Tensor total = nn::cross_entropy((*model_)(tokens, pass), tokens, pass.training ? s_.label_smoothing : 0);
    for (const nn::Pass::Loss& extra : pass.losses) total = total + sum(extra.value).to(total.dtype());
    return total;
  }
  Peaks peaks(int64_t batch, int64_t time) {
    const Tensor tokens = Tensor::zeros(Shape{batch, time}, Dtype::i32);
    const double step = peak_of([&] {
      nn::Pass pass;
      pass.training = true;
      for (const auto& [name, weight] : s_.losses.by_name)
        if (weight > 0) pass.wanted_losses.insert(name);
      parameters_->zero_gradients();
      loss(tokens, pass).backward();
      optimizer_->step(0);
    });
    const double reading = peak_of([&] {
      const NoGrad guard;
      nn::Pass pass;
      static_cast<void>(loss(tokens, pass));
    });
    return {step, reading};
  }

  const TrainSettings& s_;
  std::unique_ptr<Gpt> model_;
  std::unique_ptr<nn::FlatParameters> parameters_;
  std::unique_ptr<nn::Optimizer> optimizer_;
};

// From the peak at t tokens and at t / 2, read as b t + c t^2, to all tokens.
double with_tokens(double whole, double half, const Sample& sample, int64_t context) {
  if (sample.tokens == context) return whole;
  const double ratio = static_cast<double>(context) / static_cast<double>(sample.tokens),
               square = std::max(0.0, 2 * (whole - 2 * half));
  return (whole - square) * ratio + square * ratio * ratio;
}
double with_layers(double one, double two, int64_t layers) {
  return one + std::max(0.0, two - one) * static_cast<double>(layers - 1);
}

// Fills in moments and activations.  The measured models are no larger than the run: if they do not fit, nor does it.
void measure(const TrainSettings& s, const TextSize& text, int64_t parameters_of_two, MemoryPlan& plan) {
  const Sample sample = choose_sample(s, parameters_of_two);
  const Measured one = Measurement(s, 1).run(sample), two = s.gpt.layers > 1 ? Measurement(s, 2).run(sample) : one;
  const auto drawn_out = [&](double Peaks::*peak) {
    const double whole = with_layers(one.whole.*peak, two.whole.*peak, s.gpt.layers),
                 half = with_layers(one.half.*peak, two.half.*peak, s.gpt.layers);
    return with_tokens(whole, half, sample, s.gpt.context) / static_cast<double>(sample.batch);
  };
  const double windows = std::ceil(static_cast<double>(text.validation) / static_cast<double>(s.gpt.context));
  const double step = drawn_out(&Peaks::step) * static_cast<double>(s.batch),
               reading = drawn_out(&Peaks::reading) * std::min<double>(validation_batch, windows);
  plan.moments = static_cast<int64_t>(with_layers(one.moments, two.moments, s.gpt.layers));
  plan.activations = static_cast<int64_t>(std::min(std::max(step, reading), 1e18));
}

class PoolLimit {  // what is measured may fail, but not take the machine down
 public:
  explicit PoolLimit(int64_t free) : before_(memory_limit(Device::cpu)), refused_(memory_use(Device::cpu).refused) {
    const MemoryUse use = memory_use(Device::cpu);
    set_memory_limit(Device::cpu, use.held + std::max<int64_t>(1, free));
  }
  ~PoolLimit() { set_memory_limit(Device::cpu, before_); }
  PoolLimit(const PoolLimit&) = delete;
  bool reached() const { return memory_use(Device::cpu).refused > refused_; }

 private:
  int64_t before_, refused_;
};

}  // namespace

int64_t MemoryPlan::total() const { return weights + gradients + moments + activations + data + program; }
std::vector<std::pair<std::string, int64_t>> MemoryPlan::kinds() const {
  std::vector<std::pair<std::string, int64_t>> all = {{"weights", weights},   {"gradients", gradients},
                                                      {"optimizer", moments}, {"activations", activations},
                                                      {"text", data},         {"program", program}};
  std::erase_if(all, [](const auto& kind) { return kind.second == 0; });
  return all;
}

std::optional<int64_t> count_parameters(const GptSettings& settings, int64_t most) {
  const auto count = [&](int64_t layers) -> std::optional<int64_t> {
    GptSettings few = settings;
    few.layers = layers;
    const nn::ParameterCount counted(most);
    try {
      const Gpt model(few);
    } catch (const Error&) {
      if (counted.exceeded()) return std::nullopt;
      throw;
    }
    return counted.elements();
  };
  const std::optional<int64_t> one = count(1), two = one && settings.layers > 1 ? count(2) : one;
  if (!one || !two) return std::nullopt;
  const int64_t more = *two - *one, further = settings.layers - 1;
  if (further > 0 && more > (most - *one) / further) return std::nullopt;
  return *one + more * further;
}

MemoryPlan plan_memory(const TrainSettings& s, const TextSize& text) {
  const Device device = parse_device(s.device);
  const auto whole_text = static_cast<int64_t>(text.train + text.validation);
  MemoryPlan plan;
  plan.free = free_memory(device);
  const int64_t batches = product_of_sizes(
      "train: batch x context", {s.gradient_accumulation_steps, s.batch, s.gpt.context, 2, 3, bytes_of(Dtype::i32)});
  plan.data = whole_text * bytes_of(Dtype::i32) + batches;
  if (device == Device::cpu) plan.program = std::max<int64_t>(0, resident_memory() - whole_text * bytes_of(Dtype::i32));
  if (batches > plan.free)
    fail_to_fit(s,
                orrery::text("the batches of gradient_accumulation_steps ", s.gradient_accumulation_steps, " need ",
                             in_megabytes(static_cast<double>(batches))),
                plan.free);

  const Dtype dtype = parse_dtype(s.dtype);
  const int64_t gradient = dtype == Dtype::bf16 ? 4 : bytes_of(dtype),
                weight = dtype == Dtype::bf16 ? 4 + bytes_of(dtype) : gradient, most = plan.free / (weight + gradient);
  const std::optional<int64_t> parameters = count_parameters(s.gpt, most);
  if (!parameters)
    fail_to_fit(s, orrery::text("weights and gradients alone are more than ", most, " parameters"), plan.free);
  plan.parameters = *parameters, plan.weights = *parameters * weight, plan.gradients = *parameters * gradient;

  GptSettings two = s.gpt;
  two.layers = std::min<int64_t>(2, two.layers);
  const PoolLimit limit(free_memory(Device::cpu));
  try {
    measure(s, text, *count_parameters(two, most), plan);
  } catch (const Error&) {
    if (!limit.reached()) throw;
    fail_to_fit(s, "a step of two layers alone needs more", plan.free);
  }
  reset_peak(Device::cpu);
  release_cached(Device::cpu);
  const double certain = static_cast<double>(plan.weights + plan.gradients + plan.moments) +
                         static_cast<double>(plan.activations) * certain_share;
  if (certain > static_cast<double>(plan.free))
    fail_to_fit(s,
                orrery::text("parameters ", plan.parameters, ", weights, gradients and moments need ",
                             in_megabytes(static_cast<double>(plan.weights + plan.gradients + plan.moments)),
                             " and activations about ", in_megabytes(static_cast<double>(plan.activations))),
                plan.free);
  return plan;
}

}  // namespace orrery::models
