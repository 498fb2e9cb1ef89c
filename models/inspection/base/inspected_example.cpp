#include "models/inspection/base/inspected_example.h"

#include "engine/autograd/autograd.h"
#include "models/formats/shown_text.h"
#include "models/inspection/base/targets.h"

namespace orrery::models {

namespace {

thread_local const InspectedExample* example_of_run = nullptr;
struct Running {
  explicit Running(const InspectedExample* example) { example_of_run = example; }
  ~Running() { example_of_run = nullptr; }
};

}  // namespace

const InspectedExample* InspectedExample::running() { return example_of_run; }

Tensor InspectedExample::run() const {
  const NoGrad guard;
  const Running running(this);
  nn::ForwardPass pass;
  const Tensor logits = forward(pass).to(Device::cpu);
  const int64_t choices = logits.size(-1);
  return (logits.dtype() == Dtype::f64 ? logits : logits.to(Dtype::f32))
      .reshape(Shape{logits.numel() / choices, choices});
}

Tensor InspectedExample::run_with_graph() const {
  const NoGrad recording(true);
  const Running running(this);
  nn::ForwardPass pass;
  return forward(pass);
}

double InspectedExample::loss(const Tensor& logits) const { return loss_of(logits, targets_); }

std::string display_token(std::string_view token) {
  std::string label;
  for (size_t at = 0; at < token.size();) {
    const ShownCharacter next = shown_character(token, at);
    const char c = token[at];
    if (c == ' ')
      label += "␣";
    else if (c == '\n' || c == '\t')
      label += c == '\n' ? "\\n" : "\\t";
    else
      label += next.text();
    at += next.read;
  }
  return label;
}

}  // namespace orrery::models
