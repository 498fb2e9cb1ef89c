// Statistics of attention weight rows, by head, as means over a batch's queries: heads that focus,
// spread out or have switched off (Jha & Reagen 2024, arXiv:2410.09637, for entropies).
#include "models/figures/base/figure.h"
#include "nn/diagnostics/diagnostics.h"

namespace orrery::models {
namespace {

REGISTER_FIGURE(entropy, {.name = "entropy",
                          .description = "entropy of a head's attention weights in nats, mean over queries",
                          .watches = "row_entropy",
                          .of_value = [](FigureRow& row, nn::Module& attention, const Tensor& rows) {
                            tell_each(row, "entropy", attention.path(), means_of_heads(rows));
                          }});
REGISTER_FIGURE(attention_zeros, {.name = "attention_zero_fraction",
                                  .description = "fraction of exact zeros among a head's visible attention weights",
                                  .watches = "row_zero_fraction",
                                  .of_value = [](FigureRow& row, nn::Module& attention, const Tensor& rows) {
                                    tell_each(row, "attention_zero_fraction", attention.path(), means_of_heads(rows));
                                  }});
REGISTER_FIGURE(row_sum, {.name = "row_sum",
                          .description = "sum of a head's attention weights, mean over queries; 1 for softmax",
                          .watches = "row_sum",
                          .of_value = [](FigureRow& row, nn::Module& attention, const Tensor& rows) {
                            tell_each(row, "row_sum", attention.path(), means_of_heads(rows));
                          }});

}  // namespace
}  // namespace orrery::models
