// Other names of a run's settings: former ones, nanoGPT's, and registered names of losses.
#include "models/training/settings.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::Message;

namespace {

Message error(const Assignments& assignments) {
  return expect_error([&] { make_settings(assignments); }).names("train");
}
std::string value(const Assignments& assignments, const std::string& key) {
  for (const auto& [name, value] : list_settings(make_settings(assignments)))
    if (name == key) return value;
  return "no key " + key;
}

}  // namespace

TEST_CASE("former names of settings are read, current names are shown, and the later of two settings wins") {
  const std::vector<std::array<std::string, 3>> names = {
      {"rate", "learning_rate", "0.5"},
      {"final_rate", "min_learning_rate", "0.25"},
      {"warm_up", "warmup_steps", "7"},
      {"warm_up_form", "warmup_form", "quadratic"},
      {"clip", "grad_clip", "3"},
      {"held_out", "validation_fraction", "0.5"},
      {"accumulate", "gradient_accumulation_steps", "4"},
      {"keep", "keep_checkpoints", "9"},
      {"inner", "d_ff", "96"},
      {"batch", "batch_size", "3"},
      {"key_heads", "kv_heads", "2"},
      {"graph", "cuda_graph", "yes"},
      {"figures_every", "metrics_every", "7"},
      {"from_previous", "resume_from_previous", "yes"},
      {"other_text", "allow_new_text", "yes"},
      {"probe", "signal_propagation", "yes"},
      {"lr", "learning_rate", "0.5"},
      {"num_heads", "heads", "8"},
      {"d_model", "width", "96"},
  };
  for (const auto& each : names) {
    const auto& [former, present, set] = each;
    INFO(each[0]);
    const std::string before = value({}, present);
    CHECK(before != set);
    CHECK(value({{former, set}}, present) == set);
    CHECK(value({{present, before}, {former, set}}, present) == set);
    CHECK(value({{former, before}, {present, set}}, present) == set);
    CHECK(value({{former, set}}, former) == "no key " + former);
    error({{former, "none"}}).names(find_setting(settings_without_values<TrainSettings>(), former) ? former : present);
  }
}

TEST_CASE("former names of settings with text values are read and shown as the current names") {
  const std::vector<std::array<std::string, 3>> names = {{"figures", "metrics", "all"},
                                                         {"rate_factors", "lr_scales", "*.bias=2"},
                                                         {"decays", "weight_decay_rules", "*.bias=yes"},
                                                         {"initial_std", "initialization", "0.3"}};
  for (const auto& each : names) {
    const auto& [former, present, set] = each;
    CHECK(value({{former, set}}, present) == set);
    CHECK(value({{former, set}}, former) == "no key " + former);
  }
  const Assignments stream = {{"model", "stream"}, {"memory", "24"}},
                    translation = {{"model", "translation-small"}, {"longest", "9"}};
  CHECK(value(stream, "cache_length") == "24");
  CHECK(value(stream, "memory") == "no key memory");
  CHECK(value(translation, "max_length") == "9");
  CHECK(value(translation, "longest") == "no key longest");
}

TEST_CASE("former values of settings are read and shown as the current values") {
  const std::vector<std::array<std::string, 3>> values = {
      {"initialization", "by_width", "inverse_sqrt_width"},
      {"initialization", "equal(0.3)", "normal(0.3)"},
      {"initialization", "fixup(by_width)", "fixup(inverse_sqrt_width)"},
      {"initialization", "by_inputs", "fan_in"},
      {"metrics", "usual", "default"},
      {"tokenizer", "numbers", "token_ids"},
      {"optimizer", "lion(learning_rates=equal)", "lion(lr_scales=none)"},
      {"optimizer", "lion(rates=by_group(spans=2))", "lion(lr_scales=groups(spans=2))"},
      {"optimizer", "adam(beta1=0.8)", "adamw(beta1=0.8)"},
      {"normalization", "layernorm", "layer"},
      {"final_normalization", "rmsnorm(epsilon=1e-3)", "rms(epsilon=1e-3)"},
      {"position", "rope(base=500)", "rotary(base=500)"},
      {"feed_forward", "mlp(relu)", "dense(relu)"},
      {"feed_forward", "glu(silu)", "gated(silu)"},
      {"feed_forward", "memory(relu, norm=layernorm)", "memory(relu, norm=layer)"},
      {"attention", "softmax(qk_norm=rmsnorm)", "softmax(qk_norm=rms)"},
      {"dtype", "float32", "f32"},  // nanoGPT's and PyTorch's names
      {"dtype", "float64", "f64"},
      {"dtype", "bfloat16", "bf16"},
  };
  for (const auto& each : values) {
    const auto& [key, former, present] = each;
    INFO(each[1]);
    CHECK(value({{key, former}}, key) == present);
    CHECK(value({{key, present}}, key) == present);
  }
  CHECK(value({{"optimizer", "lion"}, {"optimizer.learning_rates", "by_group(spans=2)"}}, "optimizer") ==
        "lion(lr_scales=groups(spans=2))");
  error({{"metrics", "usual"}, {"batch", "0"}}).names("batch").value(0).offers(1);
}

TEST_CASE("former names inside specs are read and shown as the current names") {
  const auto optimizer = [](const Assignments& assignments) { return value(assignments, "optimizer"); };
  CHECK(optimizer({{"optimizer", "adamw(decay=0.05, rates=by_group(gammas=2))"}}) ==
        "adamw(weight_decay=0.05, lr_scales=groups(gammas=2))");
  CHECK(optimizer({{"optimizer", "adagrad(clip=1)"}}) == "adagrad(grad_clip=1)");
  CHECK(optimizer({{"optimizer", "muon(adamw_rate=1)"}}) == "muon(adamw_learning_rate=1)");
  CHECK(optimizer({{"optimizer", "adamw(weight_decay=1)"}, {"optimizer.decay", "2"}}) == "adamw(weight_decay=2)");
  CHECK(optimizer({{"optimizer", "adamw(decay=1)"}, {"optimizer.decay", "2"}, {"optimizer.weight_decay", "3"}}) ==
        "adamw(weight_decay=3)");
  CHECK(value({{"position", "rotary(share=0.5)"}}, "position") == "rotary(partial_rotary_factor=0.5)");
  CHECK(value({{"attention", "softmax(own=no)"}}, "attention") == "softmax(attend_to_self=no)");
  CHECK(value({{"schedule", "warmup_stable_decay(decay=0.2, fall=exponential)"}}, "schedule") ==
        "warmup_stable_decay(decay_fraction=0.2, decay_form=exponential)");
  CHECK(value({{"attention", "no_such(own=no)"}}, "attention") == "no_such(own=no)");  // refused on construction
}

TEST_CASE("nanoGPT's names of settings are accepted") {
  const std::vector<std::array<std::string, 3>> names = {
      {"n_layer", "layers", "6"},
      {"n_head", "heads", "6"},
      {"n_embd", "width", "384"},
      {"block_size", "context", "256"},
      {"batch_size", "batch_size", "64"},
      {"max_iters", "steps", "5000"},
      {"learning_rate", "learning_rate", "0.002"},
      {"min_lr", "min_learning_rate", "2e-4"},
      {"warmup_iters", "warmup_steps", "50"},
      {"eval_interval", "evaluate_every", "250"},
      {"gradient_accumulation_steps", "gradient_accumulation_steps", "5"},
      {"grad_clip", "grad_clip", "0.5"},
      {"dropout", "dropout", "0.2"},
      {"bias", "bias", "yes"},
      {"vocab_size", "vocabulary", "50304"},
      {"out_dir", "out", "there"},
      {"weight_decay", "optimizer", "adamw(beta1=0.9, beta2=0.99, weight_decay=0.5)"},
      {"beta1", "optimizer", "adamw(beta1=0.5, beta2=0.99, weight_decay=0.1)"},
      {"beta2", "optimizer", "adamw(beta1=0.9, beta2=0.5, weight_decay=0.1)"},
  };
  for (const auto& each : names) {
    const auto& [theirs, ours, set] = each;
    INFO(each[0]);
    CHECK(value({{theirs, ours == "optimizer" ? "0.5" : set}}, ours) == set);
  }
  CHECK(value({{"n_layer", "3"}, {"layers", "5"}, {"n_layer", "7"}}, "layers") == "7");
  error({{"n_layer", "0"}}).names("layers").value(0).offers(1);
  error({{"dataset", "openwebtext"}}).value("dataset").offers("data");
}

TEST_CASE("lr_decay_iters must equal the number of steps, in any order of the settings") {
  CHECK(value({{"lr_decay_iters", "50"}, {"max_iters", "50"}}, "steps") == "50");
  CHECK(value({{"steps", "50"}, {"lr_decay_iters", "50"}}, "lr_decay_iters") == "no key lr_decay_iters");
  error({{"lr_decay_iters", "100"}, {"max_iters", "50"}})
      .names("lr_decay_iters")
      .value(100)
      .value(50)
      .offers("steps=100");
}

TEST_CASE("losses are weighted by the names under which layers' losses are registered") {
  Assignments weights;
  for (const auto& [name, loss] : nn::losses())
    if (!loss.weight_of.empty()) weights.emplace_back("losses." + name, "0");
  CHECK(weights.size() == 4);
  Assignments listed = list_settings(make_settings({}));
  std::erase_if(listed, [](const auto& setting) { return !setting.first.starts_with("losses."); });
  CHECK(listed == weights);
  CHECK(value({{"losses.span_penalty", "0.5"}}, "losses.span_penalty") == "0.5");
  error({{"losses.span_penalty", "-1"}}).names("losses.span_penalty").value(-1).offers(0);
  error({{"losses.span_penalt", "1"}}).value("losses.span_penalt").offers("losses.span_penalty");
  error({{"losses.cross_entropy", "1"}})
      .value("losses.cross_entropy")
      .offers("losses.entropy_margin_loss, losses.entropy_regularizer, losses.normalization_loss, losses.span_penalty");
}
