// Gradient cases of positions in attentions; they are here because nn/positions uses no attention.
#include "nn/attentions/base/cases.h"

namespace orrery::nn {
namespace {

const bool fixed_slopes = add_attention_case("position", "alibi", {.spec = "softmax", .position = "alibi"});
const bool learned_slopes =
    add_attention_case("position", "alibi", {.spec = "softmax", .position = "alibi(learned=yes)"});
const bool learned_slopes_of_pointwise =
    add_attention_case("position", "alibi", {.spec = "pointwise(softplus)", .position = "alibi(learned=yes)"});
const bool keys_of_softmax =
    add_attention_case("position", "relative", {.spec = "softmax", .position = "relative(95, keys)"});
const bool keys_of_span = add_attention_case(
    "position", "relative", {.spec = "softmax(span=adaptive_span(12, R=4))", .position = "relative(12, keys)"});
const bool bias_of_softmax =
    add_attention_case("position", "relative", {.spec = "softmax(soft_cap=3)", .position = "relative(95, bias)"});
const bool bias_of_pointwise =
    add_attention_case("position", "relative", {.spec = "pointwise(gelu)", .position = "relative(context, bias)"});
const bool keys_of_sparsemax =
    add_attention_case("position", "relative", {.spec = "sparsemax", .position = "relative(context, keys)"});
const bool half_split = add_attention_case("position", "rotary", {.spec = "softmax", .position = "rotary"});
const bool interleaved =
    add_attention_case("position", "rotary", {.spec = "relu_former", .position = "rotary(pairs=interleaved)"});
const bool rotary_of_gau = add_attention_case("position", "rotary", {.spec = "gau(size=6)", .position = "rotary"});

}  // namespace
}  // namespace orrery::nn
