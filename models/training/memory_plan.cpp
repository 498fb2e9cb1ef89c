#include "models/training/memory_plan.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "engine/autograd/autograd.h"
#include "engine/base/machine_memory.h"
#include "engine/base/wording.h"
#include "engine/ops/ops.h"
#include "models/model.h"
#include "models/training/extra_losses.h"
#include "nn/optimizers/base/optimizer.h"

namespace orrery::models {
namespace {

// What is measured shall cost a fraction of a second, whatever the model.
constexpr double most_multiplications = 4e9, most_scores = 4e6;
constexpr int64_t fewest_tokens = 16, most_tokens = 4096;
// What was drawn out may be this much too large; a run is refused only if it cannot fit even then.
constexpr double certain_share = 1 / 1.5;

std::string in_megabytes(double bytes) {
  return std::to_string(static_cast<int64_t>(std::ceil(std::min(bytes, 1e18) / 1e6))) + " MB";
}

// A number of the model's; `otherwise` if it has no such setting.
int64_t number_of(const TrainSettings& s, std::string_view key, int64_t otherwise) {
  const std::vector<Setting> members = s.model_settings.members();
  const Setting* const found = find_setting(members, key);
  const auto* const number = found ? std::get_if<int64_t*>(&found->value) : nullptr;
  return number ? **number : otherwise;
}

[[noreturn]] void fail_to_fit(const TrainSettings& s, const std::string& what, int64_t free) {
  std::vector<std::string> numbers;
  const std::vector<Setting> members = s.model_settings.members();
  for (const char* key :
       {"layers", "width", "head_size", "d_ff", "vocabulary", "batch", "context", "image_size", "attention",
        "feed_forward"}) {
    if (std::string_view(key) == "batch") numbers.push_back(text(key, " ", s.batch));
    const Setting* const found = find_setting(members, key);
    const bool of_width = std::string_view(key) == "head_size" && number_of(s, key, 0) == 0;
    if (!found || of_width) continue;
    const bool by_width = std::string_view(key) == "d_ff" && number_of(s, key, 1) == 0;
    numbers.push_back(text(key, " ", by_width ? std::to_string(4 * number_of(s, "width", 1)) : print_value(*found)));
  }
  fail("train: the run cannot fit into memory: ", what, ", but ", in_megabytes(static_cast<double>(free)),
       " are free on ", s.device, "; with ", join(numbers), ": lower the largest of these");
}

struct Sample {  // what is measured: so many sequences of so many tokens
  int64_t batch, tokens;
};
// All of a sequence if the work allows it, and as many sequences of the batch.
Sample choose_sample(const TrainSettings& s, const Task& task, int64_t parameters) {
  const auto width = static_cast<double>(number_of(s, "width", 1)),
             heads = static_cast<double>(number_of(s, "heads", 1));
  const double all = most_multiplications / (6 * static_cast<double>(parameters) * static_cast<double>(task.work())),
               one = std::min({all, std::sqrt(most_multiplications / (24 * width)), std::sqrt(most_scores / heads)});
  const int64_t tokens = std::min(task.length(), std::max(fewest_tokens, static_cast<int64_t>(one)));
  return {
      std::clamp<int64_t>(std::min(static_cast<int64_t>(all), most_tokens) / tokens, 1, task.training_batch(s.batch)),
      tokens};
}

int64_t layers_of(const TrainSettings& s) { return std::max<int64_t>(1, number_of(s, "layers", 1)); }
// Of a model without the setting, the whole.
TrainSettings settings_with_layers(TrainSettings s, int64_t layers) {
  if (number_of(s, "layers", 0) > 0) setting_of<int64_t>(s.model_settings, "layers") = layers;
  return s;
}

struct Peaks {  // bytes beside weights, gradients and moments
  double step, reading;
  double seconds;  // of forward and backward
};
struct Measured {
  double moments = 0, update = 0;  // bytes, and the seconds of what a step does with parameters alone
  Peaks whole{}, half{};  // at the sample's tokens, and at half of them
};

double peak_of(const auto& work) {
  const int64_t before = memory_use(Device::cpu).held;
  reset_peak(Device::cpu);
  work();
  return static_cast<double>(memory_use(Device::cpu).peak - before);
}

// The shortest of a few times, if they are short: the first one pays for what is made once, on first use.
double seconds_of(const auto& work) {
  constexpr double enough = 0.02;
  constexpr int most_times = 3;
  double shortest = INFINITY, all = 0;
  for (int i = 0; i < most_times && all < enough; ++i) {
    const auto began = std::chrono::steady_clock::now();
    work();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    shortest = std::min(shortest, seconds), all += seconds;
  }
  return shortest;
}

// One step, and one batch of a validation, of a model with so many layers.
class Measurement {
 public:
  Measurement(const TrainSettings& settings, const Task& task, int64_t layers)
      : s_(settings), task_(task), model_(make(settings, layers)) {
    for (const nn::NamedParameter& p : nn::parameters_of(*model_)) {
      const double highest = p.parameter->highest;  // spans at their longest
      nn::fill(p.parameter->value, nn::constant(std::isfinite(highest) ? highest : 0.01), {});
    }
    nn::convert(*model_, parse_dtype(s_.dtype));
    parameters_ = std::make_unique<nn::FlatParameters>(*model_);
    optimizer_ = nn::make_optimizer(s_.optimizer, *parameters_);
  }
  Measured run(const Sample& sample) {
    Measured found;
    for (const auto& [name, moment] : optimizer_->moments()) found.moments += static_cast<double>(moment.bytes());
    found.whole = peaks(sample.batch, sample.tokens);
    if (sample.tokens < task_.length()) found.half = peaks(sample.batch, std::max<int64_t>(1, sample.tokens / 2));
    found.update = seconds_of([&] { parameters_->zero_gradients(), optimizer_->step(0); });
    return found;
  }

 private:
  static std::unique_ptr<nn::Module> make(const TrainSettings& settings, int64_t layers) {
    const nn::ParameterCount untouched(largest_size);
    return make_model(settings_with_layers(settings, layers));
  }
  Tensor loss(std::span<const Tensor> batch, nn::Pass& pass) {
    Tensor total = task_.loss(*model_, batch, pass);
    for (const nn::Pass::Loss& extra : pass.losses) total = total + sum(extra.value).to(total.dtype());
    return total;
  }
  Peaks peaks(int64_t size, int64_t time) {
    const std::vector<Tensor> batch = task_.sample(size, time);
    const nn::Cache carried = carried_by(size);
    double held = 0;
    for (const auto& [path, entry] : carried.entries) held += static_cast<double>(entry.states.bytes());
    double seconds = 0;
    const double step = peak_of([&] {
      seconds = seconds_of([&] { learn(batch, carried); });
      optimizer_->step(0);
    });
    const double reading = peak_of([&] {
      const NoGrad guard;
      nn::Cache before = carried;
      nn::Pass pass;
      if (task_.carried() > 0) pass.cache = &before;
      static_cast<void>(loss(batch, pass));
    });
    return {step + held * static_cast<double>(s_.gradient_accumulation_steps), reading + held, seconds};
  }
  void learn(std::span<const Tensor> batch, const nn::Cache& carried) {
    nn::Cache before = carried;
    nn::Pass pass;
    if (task_.carried() > 0) pass.cache = &before;
    pass.training = true;
    for (const auto& [name, weight] : s_.losses.by_name)
      if (weight > 0) pass.wanted_losses.insert(name);
    parameters_->zero_gradients();
    const Tensor total = loss(batch, pass);
    for (const std::string& name : pass.wanted_losses) static_cast<void>(extra_loss(pass, name));
    total.backward();
  }
  // What streams have, once they have read as many tokens as they carry.
  nn::Cache carried_by(int64_t size) {
    constexpr int64_t tokens_at_once = 512;
    const NoGrad guard;
    nn::Cache cache = stream_cache();
    while (cache.tokens < task_.carried()) {
      nn::Pass pass;
      pass.cache = &cache;
      static_cast<void>(loss(task_.sample(size, std::min(tokens_at_once, task_.carried() - cache.tokens)), pass));
    }
    return cache;
  }

  const TrainSettings& s_;
  const Task& task_;
  std::unique_ptr<nn::Module> model_;
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

// Fills in moments, activations and seconds.  The measured models are no larger than the run: if they do not fit, nor
// does it.
void measure(const TrainSettings& s, const Task& task, int64_t parameters_of_two, MemoryPlan& plan) {
  const Sample sample = choose_sample(s, task, parameters_of_two);
  const int64_t layers = layers_of(s);
  const Measured one = Measurement(s, task, 1).run(sample),
                 two = layers > 1 ? Measurement(s, task, 2).run(sample) : one;
  const auto drawn_out = [&](double Peaks::*peak) {
    const double whole = with_layers(one.whole.*peak, two.whole.*peak, layers),
                 half = with_layers(one.half.*peak, two.half.*peak, layers);
    return with_tokens(whole, half, sample, task.length()) / static_cast<double>(sample.batch);
  };
  const double step = drawn_out(&Peaks::step) * static_cast<double>(task.training_batch(s.batch)),
               reading = drawn_out(&Peaks::reading) * static_cast<double>(task.validation_batch());
  plan.moments = static_cast<int64_t>(with_layers(one.moments, two.moments, layers));
  plan.activations = static_cast<int64_t>(std::min(std::max(step, reading), 1e18));
  if (parse_device(s.device) == Device::cpu)
    plan.seconds_of_step =
        with_layers(one.update, two.update, layers) +
        drawn_out(&Peaks::seconds) * task.mean_batch(s.batch) * static_cast<double>(s.gradient_accumulation_steps);
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

int64_t MemoryPlan::total() const {
  return weights + gradients + moments + guard + probe + activations + data + program;
}
std::vector<std::pair<std::string, int64_t>> MemoryPlan::kinds() const {
  std::vector<std::pair<std::string, int64_t>> all = {
      {"weights", weights}, {"gradients", gradients},     {"optimizer", moments}, {"nan guard", guard},
      {"probe", probe},     {"activations", activations}, {"data", data},         {"program", program}};
  std::erase_if(all, [](const auto& kind) { return kind.second == 0; });
  return all;
}

std::optional<int64_t> count_parameters(const TrainSettings& settings, int64_t most) {
  const auto count = [&](int64_t layers) -> std::optional<int64_t> {
    const nn::ParameterCount counted(most);
    try {
      make_model(settings_with_layers(settings, layers));
    } catch (const Error&) {
      if (counted.exceeded()) return std::nullopt;
      throw;
    }
    return counted.elements();
  };
  const int64_t layers = layers_of(settings);
  const std::optional<int64_t> one = count(1), two = one && layers > 1 ? count(2) : one;
  if (!one || !two) return std::nullopt;
  const int64_t more = *two - *one, further = layers - 1;
  if (further > 0 && more > (most - *one) / further) return std::nullopt;
  return *one + more * further;
}

MemoryPlan plan_memory(const TrainSettings& s, const Task& task) {
  const Device device = parse_device(s.device);
  MemoryPlan plan;
  plan.free = free_memory(device);
  // Each on the device, and twice on the host, where the next one is made while it is sent.
  int64_t batches = 0;
  for (const Tensor& x : task.sample(1, 1))
    batches += product_of_sizes("train: batch x length", {s.gradient_accumulation_steps, task.training_batch(s.batch),
                                                          task.length(), x.bytes(), 3});
  plan.data = task.bytes() + batches;
  if (device == Device::cpu) plan.program = std::max<int64_t>(0, resident_memory() - task.bytes());
  if (batches > plan.free)
    fail_to_fit(s,
                orrery::text("the batches of gradient_accumulation_steps ", s.gradient_accumulation_steps, " need ",
                             in_megabytes(static_cast<double>(batches))),
                plan.free);

  const Dtype dtype = parse_dtype(s.dtype);
  const int64_t gradient = dtype == Dtype::bf16 ? 4 : bytes_of(dtype),
                weight = dtype == Dtype::bf16 ? 4 + bytes_of(dtype) : gradient, most = plan.free / (weight + gradient);
  const std::optional<int64_t> parameters = count_parameters(s, most);
  if (!parameters)
    fail_to_fit(s, orrery::text("weights and gradients alone are more than ", most, " parameters"), plan.free);
  plan.parameters = *parameters, plan.weights = *parameters * weight, plan.gradients = *parameters * gradient;

  const TrainSettings two = settings_with_layers(s, std::min<int64_t>(2, layers_of(s)));
  const PoolLimit limit(free_memory(Device::cpu));
  try {
    measure(s, task, *count_parameters(two, most), plan);
  } catch (const Error&) {
    if (!limit.reached()) throw;
    fail_to_fit(s, layers_of(s) > 1 ? "a step of two layers alone needs more" : "a step of its one layer needs more",
                plan.free);
  }
  reset_peak(Device::cpu);
  release_cached(Device::cpu);
  if (s.nan_guard) plan.guard = plan.weights + plan.moments;
  if (s.probe && !s.resume) plan.probe = *parameters * bytes_of(dtype) * 2;
  const double certain = static_cast<double>(plan.weights + plan.gradients + plan.moments + plan.guard + plan.probe) +
                         static_cast<double>(plan.activations) * certain_share;
  if (certain > static_cast<double>(plan.free))
    fail_to_fit(s,
                orrery::text("parameters ", plan.parameters, ", weights, gradients and moments need ",
                             in_megabytes(static_cast<double>(plan.weights + plan.gradients + plan.moments)),
                             plan.guard > 0 ? ", their copies for nan_guard " : "",
                             plan.guard > 0 ? in_megabytes(static_cast<double>(plan.guard)) : "",
                             " and activations about ", in_megabytes(static_cast<double>(plan.activations))),
                plan.free);
  return plan;
}

// Nobody waits for so long a run: a number was a slip.
void check_duration(int64_t steps, double seconds_of_step) {
  constexpr double year = 365.25 * 24 * 3600, most = 10 * year;
  const double all = static_cast<double>(steps) * seconds_of_step;
  check(all <= most, "train: the run would take about ", grouped(std::llround(std::min(all / year, 1e18))),
        " years: ", grouped(steps), " steps of about ", significant(seconds_of_step, 2),
        " s; lower steps, or what makes them long, such as layers, width, context and batch");
}

}  // namespace orrery::models
