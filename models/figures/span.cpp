// How far back a head reads (nn/attentions/base/span.h), in tokens; of spans that each token asks for, the mean.
#include "nn/attentions/base/span.h"
#include "models/figures/base/figure.h"

namespace orrery::models {
namespace {

REGISTER_FIGURE(span, {.name = "span",
                       .description = "of a head, in tokens",
                       .watches = "span",
                       .of_value = [](FigureRow& row, nn::Module& module, const Tensor& shown) {
                         const auto& span = dynamic_cast<nn::Span&>(module);
                         const Tensor tokens = span.tokens_read(shown);
                         const int64_t heads = tokens.shape().rank() == 3 ? tokens.size(1) : tokens.size(0);
                         const Tensor rows = tokens.shape().rank() == 3 ? tokens : tokens.reshape(Shape{1, heads, 1});
                         // The path ends with the name of the span itself, which the figure's name says already.
                         tell_each(row, "span", module.path().substr(0, module.path().rfind('.')),
                                   means_of_heads(rows));
                       }});

}  // namespace
}  // namespace orrery::models
