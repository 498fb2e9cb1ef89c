#include "models/training/memory_plan.h"

#include <algorithm>
#include <cmath>

#include "engine/distributed/gradient_sum.h"
#include "engine/system/machine_memory.h"
#include "engine/system/pool.h"
#include "engine/types/format.h"
#include "models/architectures/masks.h"
#include "models/model.h"
#include "models/training/rehearsal.h"

namespace orrery::models {
namespace {

constexpr int64_t reserved_bytes = 24'000'000;  // bytes for the growth of the heap, the kernel and library buffers
// Limits of the measured steps, so that they take a fraction of a second for any model.
constexpr double max_multiplications = 4e9, max_scores = 4e6;
constexpr int64_t min_tokens = 16, max_tokens = 4096;
// An extrapolation may be 1.5 times too large; refuse a GPU run only if even 1 / 1.5 cannot fit.
constexpr double certain_fraction = 1 / 1.5;
// On the CPU, the full run is rehearsed if the estimate is within this factor of the free memory.
constexpr double uncertainty_factor = 2.5, max_rehearsal_seconds = 30;  // seconds of a step

// Returns an integer setting of the model; `otherwise` if the model lacks the setting.
int64_t integer_setting(const TrainSettings& s, std::string_view key, int64_t otherwise) {
  const std::vector<Setting> members = s.model_settings.members();
  const Setting* const found = find_setting(members, key);
  const auto* const number = found ? std::get_if<int64_t*>(&found->value) : nullptr;
  return number ? **number : otherwise;
}

[[noreturn]] void fail_to_fit(const TrainSettings& s, std::string_view about, double needed, const std::string& what,
                              const MemoryPlan& plan) {
  std::vector<std::string> numbers;
  const std::vector<Setting> members = s.model_settings.members();
  for (const char* key : {"layers", "width", "head_size", "d_ff", "vocabulary", "batch_size", "context", "image_size",
                          "attention", "feed_forward"}) {
    if (std::string_view(key) == "batch_size") numbers.push_back(text(key, " ", s.batch_size));
    const Setting* const found = find_setting(members, key);
    const bool of_width = std::string_view(key) == "head_size" && integer_setting(s, key, 0) == 0;
    if (!found || of_width) continue;
    const bool by_width = std::string_view(key) == "d_ff" && integer_setting(s, key, 1) == 0;
    numbers.push_back(
        text(key, " ", by_width ? std::to_string(4 * integer_setting(s, "width", 1)) : print_value(*found)));
  }
  throw MemoryError(orrery::text("train: the run does not fit into memory: it needs ", about, " ", in_megabytes(needed),
                                 " (", what, "), but ", in_megabytes(static_cast<double>(plan.free)), " are free on ",
                                 s.device, "; its sizes: ", join(numbers), "; lower the largest of these"),
                    plan);
}

// Chooses the full length if the work limit allows it, then as much of the batch as it allows.
BatchSizes choose_batch_sizes(const TrainSettings& s, const Task& task, int64_t parameters) {
  const auto width = static_cast<double>(integer_setting(s, "width", 1)),
             heads = static_cast<double>(integer_setting(s, "heads", 1));
  const double all = max_multiplications /
                     (6 * static_cast<double>(parameters) * static_cast<double>(task.uses_per_parameter())),
               one = std::min({all, std::sqrt(max_multiplications / (24 * width)), std::sqrt(max_scores / heads)});
  const int64_t tokens = std::min(task.sequence_length(), std::max(min_tokens, static_cast<int64_t>(one))),
                sequences = std::clamp<int64_t>(std::min(static_cast<int64_t>(all), max_tokens) / tokens, 1,
                                                task.training_batch(s.batch_size));
  return {sequences, sequences, tokens};
}

// Returns the bytes of a second copy of the model with gradients, as signal propagation makes it.
double bytes_of_copy(const TrainSettings& s, int64_t parameters) {
  return 2 * static_cast<double>(parameters) * bytes_of(parse_dtype(s.dtype));
}

// Growth of the process, and a checkpoint's state: its tokenizer is parsed and printed twice.
int64_t outside_of_tensors(const Task& task) {
  constexpr int64_t of_a_byte = 16;
  return reserved_bytes + of_a_byte * static_cast<int64_t>(task.tokenizer().size());
}

// Returns the extra bytes while parameters are packed: the unpacked ones live until then, before
// there is an optimizer state or a sum of parts. A resumed run reads the optimizer's whole file.
int64_t bytes_of_loading(const TrainSettings& s, const MemoryPlan& plan) {
  const int64_t leaf_gradients =
                    plan.parameters * bytes_of(parse_dtype(s.dtype)) - plan.optimizer_state - plan.gradient_sums,
                masters = parse_dtype(s.dtype) == Dtype::bf16 ? plan.weights : 0;
  return std::max<int64_t>(leaf_gradients, s.resume ? plan.optimizer_state + masters : 0);
}

std::string listed(const MemoryPlan& plan) {
  std::vector<std::string> kinds;
  for (const auto& [kind, bytes] : plan.kinds())
    kinds.push_back(text(kind, kind == "activations" && plan.by_validation ? " of a validation " : " ",
                         in_megabytes(static_cast<double>(bytes))));
  return join(kinds);
}

void fill_in(MemoryPlan& plan, const Peaks& peaks) {
  const auto bytes = [](double x) { return static_cast<int64_t>(std::min(x, 1e18)); };
  plan.activations = bytes(peaks.stream_state + std::max({peaks.step, peaks.validation, peaks.metrics}));
  plan.by_validation = peaks.validation > std::max(peaks.step, peaks.metrics);
  plan.signal_propagation = std::max<int64_t>(0, bytes(peaks.signal_propagation) - plan.activations);
}

struct Measured {
  double optimizer_state = 0;  // bytes
  Cost update{};               // of the part of a step that depends on parameters alone
  Peaks whole{}, half{};       // at the sample's tokens, and at half of them
};

Measured measure_layers(const TrainSettings& s, const Task& task, int64_t layers, const BatchSizes& sizes) {
  const TrainSettings settings = settings_with_layers(s, layers);
  const double copies = bytes_of_copy(settings, *count_parameters(settings, max_elements));
  Rehearsal rehearsal(settings, task);
  Measured found;
  const auto peaks = [&](int64_t tokens) {
    Peaks all = rehearsal.run({sizes.training, sizes.validation, tokens});
    all.signal_propagation = std::max(0.0, all.signal_propagation - copies);
    return all;
  };
  found.optimizer_state = static_cast<double>(rehearsal.optimizer_state_bytes());
  found.whole = peaks(sizes.tokens);
  if (sizes.tokens < task.sequence_length()) found.half = peaks(std::max<int64_t>(1, sizes.tokens / 2));
  found.update = rehearsal.cost_of_update();
  return found;
}

// Extrapolates a peak to all tokens, from its values at t tokens and at t / 2: b t + c t^2.
double with_tokens(double whole, double half, const BatchSizes& sizes, int64_t context) {
  if (sizes.tokens == context) return whole;
  const double ratio = static_cast<double>(context) / static_cast<double>(sizes.tokens),
               square = std::max(0.0, 2 * (whole - 2 * half));
  return (whole - square) * ratio + square * ratio * ratio;
}
double with_layers(double one, double two, int64_t layers) {
  return one + std::max(0.0, two - one) * static_cast<double>(layers - 1);
}

// Sets optimizer state, activations, signal propagation and seconds. The measured models are at
// most as large as the run: if they do not fit, the run does not fit.
void extrapolate(const TrainSettings& s, const Task& task, const Ranks& ranks, int64_t parameters_of_two,
                 MemoryPlan& plan) {
  const BatchSizes sizes = choose_batch_sizes(s, task, parameters_of_two);
  const int64_t layers = layers_of(s);
  const Measured one = measure_layers(s, task, 1, sizes), two = layers > 1 ? measure_layers(s, task, 2, sizes) : one;
  const auto of_one = [&](double Peaks::*peak) {
    const double whole = with_layers(one.whole.*peak, two.whole.*peak, layers),
                 half = with_layers(one.half.*peak, two.half.*peak, layers);
    return with_tokens(whole, half, sizes, task.sequence_length()) / static_cast<double>(sizes.training);
  };
  const auto training = static_cast<double>(task.training_batch(s.batch_size)),
             validation = static_cast<double>(task.validation_batch());
  plan.optimizer_state = static_cast<int64_t>(with_layers(one.optimizer_state, two.optimizer_state, layers));
  fill_in(plan,
          {.step = of_one(&Peaks::step) * training,
           .validation = of_one(&Peaks::validation) * validation,
           .metrics = of_one(&Peaks::metrics) * training,
           .signal_propagation = s.signal_propagation && !s.resume
                                     ? of_one(&Peaks::signal_propagation) * training + bytes_of_copy(s, plan.parameters)
                                     : 0,
           .stream_state = with_layers(one.whole.stream_state, two.whole.stream_state, layers) * training /
                           static_cast<double>(sizes.training)});
  const double batch = task.mean_batch_size(s.batch_size);
  const int64_t micro_batches = s.gradient_accumulation_steps,
                own = micro_batches_of(ranks.rank(), ranks.count(), s.gradient_parts, micro_batches).size();
  plan.flops_of_step = with_layers(one.update.flops, two.update.flops, layers) +
                       of_one(&Peaks::flops) * batch * static_cast<double>(micro_batches);
  if (parse_device(s.device) == Device::cpu)
    plan.seconds_of_step = with_layers(one.update.seconds, two.update.seconds, layers) +
                           of_one(&Peaks::seconds) * batch * static_cast<double>(own);
}

// Measures the full model, batches and lengths; extrapolates nothing.
void rehearse(const TrainSettings& s, const Task& task, MemoryPlan& plan) {
  Rehearsal rehearsal(s, task);
  plan.optimizer_state = rehearsal.optimizer_state_bytes();
  fill_in(plan, rehearsal.run({task.training_batch(s.batch_size), task.validation_batch(), task.sequence_length()}));
}

}  // namespace

int64_t layers_of(const TrainSettings& s) { return std::max<int64_t>(1, integer_setting(s, "layers", 1)); }
TrainSettings settings_with_layers(TrainSettings s, int64_t layers) {
  if (integer_setting(s, "layers", 0) > 0) setting_of<int64_t>(s.model_settings, "layers") = layers;
  return s;
}

HostMemoryLimit::HostMemoryLimit() : before_(memory_limit(Device::cpu)), refused_(memory_use(Device::cpu).refused) {
  const int64_t free = std::max<int64_t>(1, free_memory(Device::cpu) - reserved_bytes);
  set_memory_limit(Device::cpu, memory_use(Device::cpu).allocated + free);
}
HostMemoryLimit::~HostMemoryLimit() { set_memory_limit(Device::cpu, before_); }
bool HostMemoryLimit::reached() const { return memory_use(Device::cpu).refused > refused_; }

int64_t MemoryPlan::total() const {
  return weights + gradients + gradient_sums + optimizer_state + masks + guard + signal_propagation + activations +
         data + program;
}
std::vector<std::pair<std::string, int64_t>> MemoryPlan::kinds() const {
  std::vector<std::pair<std::string, int64_t>> all = {{"weights", weights},
                                                      {"gradients", gradients},
                                                      {"gradient sums", gradient_sums},
                                                      {"optimizer", optimizer_state},
                                                      {"masks", masks},
                                                      {"nan guard", guard},
                                                      {"signal propagation", signal_propagation},
                                                      {"activations", activations},
                                                      {"data", data},
                                                      {"program", program}};
  std::erase_if(all, [](const auto& kind) { return kind.second == 0; });
  return all;
}

std::optional<int64_t> count_parameters(const TrainSettings& settings, int64_t limit) {
  const auto count = [&](int64_t layers) -> std::optional<int64_t> {
    const nn::ParameterCount counted(limit);
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
  if (further > 0 && more > (limit - *one) / further) return std::nullopt;
  return *one + more * further;
}

MemoryPlan plan_memory(const TrainSettings& s, const Task& task, const Ranks& ranks) {
  const Device device = parse_device(s.device);
  const bool on_host = device == Device::cpu;
  MemoryPlan plan;
  // Memory that the process holds already counts as needed and as free.
  const auto measure_free_memory = [&] {
    release_cached(Device::cpu);
    const int64_t resident = on_host ? resident_memory() : 0;
    plan.free = free_memory(device) / ranks.count_on_host() + resident;
    if (on_host) plan.program = std::max<int64_t>(0, resident - task.bytes()) + outside_of_tensors(task);
  };
  measure_free_memory();
  int64_t batches = 0;
  for (const Tensor& x : task.dummy_batch(1, 1))
    // Per micro-batch: as made, on the device, twice on the host to overlap with the transfer.
    batches += product_of_sizes(
        "train: batch_size x length",
        {4 * s.gradient_accumulation_steps + 1, task.training_batch(s.batch_size), task.sequence_length(), x.bytes()});
  plan.data = task.bytes() + batches;
  const int64_t fixed = on_host ? plan.program + plan.data : batches;
  if (fixed > plan.free)
    fail_to_fit(s, "about", static_cast<double>(fixed),
                orrery::text("the batches of gradient_accumulation_steps ", s.gradient_accumulation_steps, " alone ",
                             in_megabytes(static_cast<double>(batches))),
                plan);

  const Dtype dtype = parse_dtype(s.dtype);
  const int64_t gradient = dtype == Dtype::bf16 ? 4 : bytes_of(dtype),
                weight = dtype == Dtype::bf16 ? 4 + bytes_of(dtype) : gradient,
                sums = GradientSum::buffers_of(s.gradient_parts, ranks.share_of_mine(s.gradient_parts)),
                max_parameters = (plan.free - fixed) / (weight + (1 + sums) * gradient);
  const std::optional<int64_t> parameters = count_parameters(s, max_parameters);
  if (!parameters)
    fail_to_fit(s, "more than", static_cast<double>(plan.free),
                orrery::text("weights and gradients alone are more than ", max_parameters, " parameters"), plan);
  plan.parameters = *parameters, plan.gradients = Pool::block_size(*parameters * gradient);
  plan.gradient_sums = sums * plan.gradients;
  plan.masks = bytes_of_masks(s.model_settings, layers_of(s));
  plan.weights = plan.gradients + (dtype == Dtype::bf16 ? Pool::block_size(*parameters * bytes_of(dtype)) : 0);

  const TrainSettings two = settings_with_layers(s, std::min<int64_t>(2, layers_of(s)));
  const auto measured = [&](const auto& measure, const std::string& too_large) {
    {
      const HostMemoryLimit limit;
      try {
        measure();
      } catch (const Error&) {
        if (!limit.reached()) throw;
        fail_to_fit(s, "more than", static_cast<double>(std::max(plan.free, plan.total())), too_large, plan);
      }
    }
    reset_peak(Device::cpu);
    release_cached(Device::cpu);
    if (s.nan_guard) plan.guard = plan.weights + plan.optimizer_state;
    plan.activations = std::max(plan.activations, bytes_of_loading(s, plan));
  };
  const auto needs = [&](double fraction) {  // with scaled activations and signal propagation
    return static_cast<double>(plan.weights + plan.gradients + plan.gradient_sums + plan.optimizer_state + plan.masks +
                               plan.guard) +
           static_cast<double>(plan.activations + plan.signal_propagation) * fraction +
           static_cast<double>(on_host ? plan.program + plan.data : 0);
  };
  const auto check_fits = [&](double fraction) {
    if (needs(fraction) > static_cast<double>(plan.free)) fail_to_fit(s, "about", needs(1), listed(plan), plan);
  };
  measured([&] { extrapolate(s, task, ranks, *count_parameters(two, max_parameters), plan); },
           layers_of(s) > 1 ? "a step of two layers alone does not fit" : "a step of its one layer does not fit");
  if (!on_host) return check_fits(certain_fraction), plan;
  check_fits(1 / uncertainty_factor);
  if (needs(uncertainty_factor) <= static_cast<double>(plan.free)) return plan;
  if (plan.seconds_of_step > max_rehearsal_seconds) return check_fits(1), plan;
  measured([&] { rehearse(s, task, plan); }, listed(plan));
  measure_free_memory();
  check_fits(1);
  return plan;
}

// Throws for durations that only a typo in a setting explains.
void check_duration(int64_t steps, double seconds_of_step) {
  constexpr double year = 365.25 * 24 * 3600, max_seconds = 10 * year;
  const double all = static_cast<double>(steps) * seconds_of_step;
  if (all <= max_seconds) return;
  throw DurationError(orrery::text(
      "train: the run would take about ", with_commas(std::llround(std::min(all / year, 1e18))),
      " years: ", with_commas(steps), " steps of about ", significant(seconds_of_step, 2),
      " s; lower steps, or the sizes that make a step slow, such as layers, width, context and batch_size"));
}

}  // namespace orrery::models
