#include "models/training/settings.h"

#include "nn/attentions/base/attention.h"
#include "nn/optimizers/base/optimizer.h"
#include "nn/schedules/base/schedule.h"

namespace orrery::models {
namespace {

// spec = change(registry, spec), for each spec with the registry that reads it.
template <class Change>
void change_specs(TrainSettings& settings, const Change& change) {
  GptSettings& gpt = settings.gpt;
  gpt.attention = change(nn::attentions(), gpt.attention);
  gpt.feed_forward = change(nn::feed_forwards(), gpt.feed_forward);
  gpt.normalization = change(nn::normalizations(), gpt.normalization);
  gpt.final_normalization = change(nn::normalizations(), gpt.final_normalization);
  gpt.position = change(nn::positions(), gpt.position);
  settings.schedule = change(nn::schedules(), settings.schedule);
  settings.optimizer = change(nn::optimizers(), settings.optimizer);
}

}  // namespace

std::span<const ForeignKey> nanogpt_keys() {
  static const ForeignKey keys[] = {
      {"n_layer", "layers"},
      {"n_head", "heads"},
      {"n_embd", "width"},
      {"block_size", "context"},
      {"vocab_size", "vocabulary"},
      {"batch_size", "batch"},
      {"max_iters", "steps"},
      {"min_lr", "min_learning_rate"},
      {"warmup_iters", "warmup_steps"},
      {"weight_decay", "optimizer.weight_decay"},
      {"beta1", "optimizer.beta1"},
      {"beta2", "optimizer.beta2"},
      {"eval_interval", "evaluate_every"},
      {"out_dir", "out"},
      {"decay_lr", "for a learning rate that does not fall use schedule=constant"},
      {"dataset", "did you mean 'data', the path of a text file?"},
      {"init_from", "to go on with the run in `out` use resume=yes"},
      {"eval_iters", "every validation reads the whole validation text; leave it out"},
      {"log_interval", "every step is reported; leave it out"},
      {"compile", "there is nothing to compile; leave it out"},
  };
  return keys;
}

TrainSettings make_settings(const std::vector<std::pair<std::string, std::string>>& assignments) {
  TrainSettings settings;
  for (const auto& [key, value] : assignments)
    if (key == "model") settings.model = value;
  settings.gpt = presets().at(settings.model).settings;
  const std::vector<Setting> members = settings_of(settings);
  const auto rename = [&] {
    change_specs(settings, [](const auto& registry, const Spec& spec) { return nn::renamed(registry, spec); });
  };
  for (const auto& [key, value] : assignments) {
    if (key.find('.') != std::string::npos) rename();  // an item of a spec has one name, whatever it was given by
    set_setting(std::span<const Setting>(members), "train", key, value, nanogpt_keys());
  }
  rename();
  const int64_t decay = settings.lr_decay_iters, steps = settings.steps;
  check(decay == 0 || decay == steps, "train: lr_decay_iters ", decay, " is not the number of steps, ", steps,
        "; here a schedule ends with the run: leave lr_decay_iters out, or set steps=", decay);
  return settings;
}

TrainSettings from_the_beginning(TrainSettings settings) {
  settings.resume = settings.from_previous = settings.other_text = false;
  return settings;
}

Dtype parse_dtype(const std::string& name) {
  return name == "f64" ? Dtype::f64 : name == "bf16" ? Dtype::bf16 : Dtype::f32;
}

TrainSettings resolved(TrainSettings settings) {
  settings.gpt.attention = nn::resolved_attention(settings.gpt.attention);
  change_specs(settings, [](const auto& registry, const Spec& spec) { return nn::resolved(registry, spec); });
  return settings;
}

}  // namespace orrery::models
