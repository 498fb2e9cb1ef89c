// Statistics of attention weight rows, by head, as means over a batch's queries: heads that focus,
// spread out or have switched off (Jha & Reagen 2024, arXiv:2410.09637, for entropies).
#include "models/figures/base/figure.h"
#include "nn/diagnostics/diagnostics.h"

namespace orrery::models {
namespace {

REGISTER_FIGURE(entropy, {.name = "entropy",
                          .description = "of a head's rows of weights, in nats",
                          .watches = "row_entropy",
                          .of_value = [](FigureRow& row, nn::Module& attention, const Tensor& rows) {
                            tell_each(row, "entropy", attention.path(), means_of_heads(rows));
                          }});
REGISTER_FIGURE(attention_zeros, {.name = "attention_zeros",
                                  .description = "share of exact zeros among the weights of a head that may be others",
                                  .watches = "row_zero_share",
                                  .of_value = [](FigureRow& row, nn::Module& attention, const Tensor& rows) {
                                    tell_each(row, "attention_zeros", attention.path(), means_of_heads(rows));
                                  }});
REGISTER_FIGURE(row_sum, {.name = "row_sum",
                          .description = "of a head's weights: 1 of softmax, and what others are meant to keep near 1",
                          .watches = "row_sum",
                          .of_value = [](FigureRow& row, nn::Module& attention, const Tensor& rows) {
                            tell_each(row, "row_sum", attention.path(), means_of_heads(rows));
                          }});

}  // namespace
}  // namespace orrery::models
