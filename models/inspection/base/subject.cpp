#include "models/inspection/base/subject.h"

#include "engine/autograd/autograd.h"
#include "models/formats/shown_text.h"
#include "models/inspection/base/answers.h"

namespace orrery::models {

Tensor Subject::run() const {
  const NoGrad guard;
  nn::Pass pass;
  const Tensor logits = forward(pass).to(Device::cpu);
  const int64_t answers = logits.size(-1);
  return (logits.dtype() == Dtype::f64 ? logits : logits.to(Dtype::f32))
      .reshape(Shape{logits.numel() / answers, answers});
}

double Subject::loss(const Tensor& logits) const { return loss_of(logits, answers_); }

std::string shown_word(std::string_view piece) {
  std::string word;
  for (size_t at = 0; at < piece.size();) {
    const ShownCharacter next = shown_character(piece, at);
    const char c = piece[at];
    if (c == ' ')
      word += "␣";
    else if (c == '\n' || c == '\t')
      word += c == '\n' ? "\\n" : "\\t";
    else
      word += next.text();
    at += next.read;
  }
  return word;
}

}  // namespace orrery::models
