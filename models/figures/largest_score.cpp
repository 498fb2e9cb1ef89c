// Without normalization only training limits the scores; a growing maximum shows divergence.
#include <algorithm>
#include <cmath>

#include "engine/ops/ops.h"
#include "models/figures/base/figure.h"

namespace orrery::models {
namespace {

REGISTER_FIGURE(largest_score, {.name = "max_score",
                                .description = "largest |score| of an attention, except masked scores",
                                .watches = "scores",
                                .of_value = [](FigureRow& row, nn::Module& attention, const Tensor& scores) {
                                  const Tensor all = absolute(scores).reshape(Shape{1, scores.numel()});
                                  tell(row, "max_score", attention.path(), max(all, 1).to_vector().at(0));
                                }});

}  // namespace
}  // namespace orrery::models
