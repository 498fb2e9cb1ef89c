// Values of the losses that layers can add, in training or not.
#include "models/figures/base/figure.h"

namespace orrery::models {
namespace {

REGISTER_FIGURE(losses, {.name = "losses",
                         .description = "every extra loss that the model's layers can add, with or without a weight",
                         .of_pass = [](FigureRow& row, const nn::Pass& pass) {
                           for (const nn::Pass::Loss& loss : pass.losses)
                             row["loss/" + loss.name] += loss.value.to_vector().at(0);
                         }});

}  // namespace
}  // namespace orrery::models
