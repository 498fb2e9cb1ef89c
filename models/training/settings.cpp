#include "models/training/settings.h"

#include "nn/attentions/base/attention.h"
#include "nn/optimizers/base/optimizer.h"
#include "nn/schedules/base/schedule.h"

namespace orrery::models {

std::span<const KeyHint> familiar_names() {
  static const KeyHint names[] = {
      {"n_layer", "layers"},
      {"n_head", "heads"},
      {"n_embd", "width"},
      {"block_size", "context"},
      {"vocab_size", "vocabulary"},
      {"batch_size", "batch"},
      {"gradient_accumulation_steps", "accumulate"},
      {"learning_rate", "rate"},
      {"min_lr", "final_rate"},
      {"max_iters", "steps"},
      {"lr_decay_iters", "steps"},
      {"warmup_iters", "warm_up"},
      {"weight_decay", "optimizer.decay"},
      {"beta1", "optimizer.beta1"},
      {"beta2", "optimizer.beta2"},
      {"grad_clip", "clip"},
      {"decay_lr", "schedule"},
      {"eval_interval", "evaluate_every"},
      {"out_dir", "out"},
      {"init_from", "resume"},
      {"dataset", "data"},
  };
  return names;
}

TrainSettings make_settings(const std::vector<std::pair<std::string, std::string>>& assignments) {
  TrainSettings settings;
  for (const auto& [key, value] : assignments)
    if (key == "model") settings.model = value;
  settings.gpt = presets().at(settings.model).settings;
  for (const auto& [key, value] : assignments) set_setting(settings, "train", key, value, familiar_names());
  return settings;
}

TrainSettings resolved(TrainSettings settings) {
  GptSettings& gpt = settings.gpt;
  gpt.attention = nn::resolved_attention(gpt.attention);
  gpt.feed_forward = nn::resolved(nn::feed_forwards(), gpt.feed_forward);
  gpt.normalization = nn::resolved(nn::normalizations(), gpt.normalization);
  gpt.final_normalization = nn::resolved(nn::normalizations(), gpt.final_normalization);
  gpt.position = nn::resolved(nn::positions(), gpt.position);
  settings.schedule = nn::resolved(nn::schedules(), settings.schedule);
  settings.optimizer = nn::resolved(nn::optimizers(), settings.optimizer);
  return settings;
}

}  // namespace orrery::models
