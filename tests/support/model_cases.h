// A small model of each class and variant, each with a function that runs it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/training/settings.h"
#include "models/translation_model.h"
#include "tests/support/random_tensors.h"

namespace orrery::testing {

struct ModelCase {
  Assignments settings;
  std::function<Tensor(nn::Module&)> run;  // on a batch of two
  std::string described() const {
    std::string all;
    for (const auto& [key, value] : settings) all += key + "=" + value + " ";
    return all;
  }
};

inline Tensor some_tokens(int64_t batch, int64_t time) {
  std::vector<int32_t> all;
  for (int64_t i = 0; i < batch * time; ++i) all.push_back(static_cast<int32_t>(i * i % 7));
  return Tensor::from(Shape{batch, time}, all);
}
inline Tensor run_text(nn::Module& model) {
  nn::ForwardPass pass;
  return model(some_tokens(2, 8), pass);
}
inline Tensor run_image(nn::Module& model) {
  nn::ForwardPass pass;
  return model(random_tensor({2, 8, 8, 1}, 1).to(Dtype::f32), pass);
}
inline Tensor run_pair(nn::Module& model) {
  nn::ForwardPass pass;
  dynamic_cast<models::TranslationModel&>(model).encode(some_tokens(2, 5), {}, pass);
  return model(some_tokens(2, 6), pass);
}

inline std::vector<ModelCase> model_cases() {
  const Assignments text = {{"model", "gpt"}, {"vocabulary", "9"}, {"context", "8"}};
  const Assignments image = {{"model", "vit"}, {"image_size", "8"}, {"channels", "1"}, {"classes", "3"}};
  std::vector<ModelCase> all = {
      {image, run_image},
      {{{"model", "resnet"}, {"image_size", "8"}, {"channels", "1"}, {"classes", "3"}}, run_image},
      {{{"model", "stream"},
        {"vocabulary", "9"},
        {"context", "8"},
        {"cache_length", "8"},
        {"attention", "softmax(span=adaptive_span(8, R=4), persistent=3)"}},
       run_text},
      {{{"model", "encoder_decoder"}, {"vocabulary", "9"}, {"attention", "relu_former"}}, run_pair},
      {{{"model", "encoder_decoder"},
        {"vocabulary", "9"},
        {"attention", "pointwise(prelu, parameters_per=model)"},
        {"cross_attention", "pointwise(relu, parameters_per=model)"}},
       run_pair},
      {{{"model", "encoder_decoder"}, {"vocabulary", "9"}, {"norm_place", "pre"}, {"feed_forward", "memory(relu)"}},
       run_pair}};
  const auto add = [&](const Assignments& base, const ModelCase& like, const Assignments& more) {
    all.push_back({base, like.run});
    all.back().settings.insert(all.back().settings.end(), more.begin(), more.end());
  };
  const ModelCase of_text{{}, run_text}, of_image{{}, run_image};
  for (const char* attention :
       {"softmax", "softmax(persistent=slots(3, split=yes))", "softmax(soft_cap=2)", "pointwise(relu, alpha=1)",
        "pointwise(prelu)", "pointwise(xielu, parameters_per=model)", "relu_former", "rela", "linear(elu)", "sparsemax",
        "entmax15", "gau", "softmax(qk_norm=rms, gate=silu)"})
    add(text, of_text, {{"attention", attention}});
  for (const char* feed_forward :
       {"dense(relu)", "dense(prelu)", "gated(silu)", "gated(prelu)", "memory(relu)", "memory(softmax, norm=layer)",
        "persistent(slots=5, heads=2, projections=yes)", "none"})
    add(text, of_text, {{"feed_forward", feed_forward}});
  for (const char* normalization :
       {"none", "rms", "dyt", "derf", "dynamic(hardtanh, learn_alpha=no)", "dynamic(xielu)", "batch"})
    add(text, of_text, {{"normalization", normalization}});
  for (const char* mask : {"causal and (sinks(1) or window(3))", "causal or prefix(3)"})
    add(text, of_text, {{"mask", mask}});
  add(image, of_image, {{"mask", "dilated(2) or window(2)"}});
  for (const char* norm_place : {"post", "pre"})
    add(text, of_text, {{"norm_place", norm_place}, {"residual_gain", "0.5"}});
  add(text, of_text, {{"parallel", "yes"}, {"residual_gain", "learned(0.7)"}});
  add(text, of_text,
      {{"feed_forward_divisor", "learned(2)"}, {"feed_forward_residual", "learned(1.5)"}, {"head_bias", "yes"}});
  add(image, of_image, {{"pooling", "class_token"}, {"normalization", "dyt"}});
  for (ModelCase& each : all)
    if (each.settings[0].second != "resnet")
      each.settings.insert(each.settings.end(), {{"layers", "2"}, {"heads", "2"}, {"width", "16"}});
  return all;
}

}  // namespace orrery::testing
