#include "models/inspection/base/subject.h"

#include <cmath>
#include <limits>

#include "engine/autograd/autograd.h"
#include "engine/base/check.h"
#include "models/data/unicode.h"

namespace orrery::models {

Tensor Subject::run() const {
  const NoGrad guard;
  nn::Pass pass;
  const Tensor logits = forward(pass).to(Device::cpu);
  const int64_t answers = logits.size(-1);
  return (logits.dtype() == Dtype::f64 ? logits : logits.to(Dtype::f32))
      .reshape(Shape{logits.numel() / answers, answers});
}

double Subject::loss(const Tensor& logits) const {
  const std::vector<double> all = logits.to_vector();
  const auto width = static_cast<size_t>(logits.size(1));
  double sum = 0, count = 0;
  for (size_t row = 0; row < answers_.size(); ++row) {
    if (answers_[row] < 0) continue;
    const double* const z = all.data() + row * width;
    double largest = -std::numeric_limits<double>::infinity(), total = 0;
    for (size_t k = 0; k < width; ++k) largest = std::max(largest, z[k]);
    for (size_t k = 0; k < width; ++k) total += std::exp(z[k] - largest);
    sum += largest + std::log(total) - z[answers_[row]], count += 1;
  }
  return sum / count;  // of none: 0 / 0, NaN
}

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
