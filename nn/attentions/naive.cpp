// Naive pointwise attention, the negative control: pointwise(F, alpha=0), no factor of the length.
// A Study on ReLU and Softmax in Transformer, arXiv:2302.06461, reports that it does not converge:
// with scores and values of variance 1 and F = relu, o has variance n / 2 for n keys.
#include "nn/attentions/base/attention.h"

namespace orrery::nn {
namespace {

const bool registered = register_preset(attentions(),
                                        {.name = "naive",
                                         .formula = "pointwise(F, alpha=0), with the settings of pointwise",
                                         .source = "A Study on ReLU and Softmax in Transformer, arXiv:2302.06461",
                                         .parameters = "as softmax",
                                         .saves = "q, k, v"},
                                        "pointwise(relu, alpha=0)");
const bool cases = add_attention_cases("naive", {"naive(relu)", "naive(tanh)"});

}  // namespace
}  // namespace orrery::nn
