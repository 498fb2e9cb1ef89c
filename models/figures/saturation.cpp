// Where alpha x leaves (-2, 2), tanh and erf are flat and pass no gradient (Zhu et al. 2025, arXiv:2503.10622).
#include "models/figures/base/figure.h"

namespace orrery::models {
namespace {

REGISTER_FIGURE(
    saturation,
    {.name = "saturation",
     .description = "share of the inputs of a dynamic normalization (dyt, derf, dynamic) with |alpha x| > 2",
     .watches = "saturation",
     .of_value = [](FigureRow& row, nn::Module& normalization, const Tensor& share) {
       tell(row, "saturation", normalization.path(), share.to_vector().at(0));
     }});

}  // namespace
}  // namespace orrery::models
