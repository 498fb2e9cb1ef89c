#include "models/inspection/base/subject.h"

#include "engine/autograd/autograd.h"
#include "models/data/unicode.h"
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
    const auto character = character_if_any(piece, at);
    const auto byte = static_cast<unsigned char>(piece[at]);
    if (byte == ' ')
      word += "␣";
    else if (byte == '\n')
      word += "\\n";
    else if (byte == '\t')
      word += "\\t";
    else if (!character || byte < 32 || byte == 127)
      word += "\\x" + std::string{"0123456789abcdef"[byte / 16], "0123456789abcdef"[byte % 16]};
    else
      word += piece.substr(at, character->bytes);
    at += character ? character->bytes : 1;
  }
  return word;
}

}  // namespace orrery::models
