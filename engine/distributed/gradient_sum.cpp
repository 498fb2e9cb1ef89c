#include "engine/distributed/gradient_sum.h"

#include <bit>

#include "engine/loops/tensor_sums.h"

namespace orrery {

GradientSum::GradientSum(const Tensor& gradient, int64_t parts)
    : gradient_(gradient), parts_(parts), stack_(parts) {
  for (int64_t i = 0; i < buffers_of(parts); ++i) buffers_.push_back(Tensor::zeros_like(gradient));
}

void GradientSum::take(int64_t part) {
  if (part == 0) stack_.clear();
  int64_t additions = stack_.push({part, part + 1});
  auto below = buffers_.begin() + stack_.size() - 1 + additions;  // one above the topmost buffer in use
  if (part == parts_ - 1) {
    for (; additions > 0; --additions) add_in_place(gradient_, *--below);
  } else if (additions == 0) {
    below->copy_from(gradient_);
  } else {
    add_in_place(*--below, gradient_);
    for (; additions > 1; --additions, --below) add_in_place(*(below - 1), *below);
  }
}

int64_t GradientSum::buffers_of(int64_t parts) {
  return static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(parts))) - 1;
}

}  // namespace orrery
