"""Golden residual blocks: how a sublayer's output is added (models/architectures/block.h).  Pre-norm, x (B, T, C):

    middle = x + a_1 attention(norm_1(x)),   y = b middle + a_2 feed_forward(norm_2(middle)) / d

a, the residual gain, one for each sublayer and learned from 0 is SkipInit (2002.10444); d, the feed-forward divisor,
and b, its residual factor, are the output scaling of 2501.03489.  Choices: layer normalization with weight and bias,
epsilon 1e-5; causal softmax attention of 2 heads with one matrix for queries, keys and values (3 C, C); dense relu; no other
biases.  Parameters have the paths of the model, matrices are output x input.
"""
import torch
import torch.nn.functional as F

import attention_rows as rows
from attentions import layer_norm
from cases import Cases, seed

cases = Cases("block", "blocks.safetensors")
B, T, C, H, M = 2, 7, 6, 2, 11


def attention(x, matrix, output):
    q, k, v = (part.reshape(*x.shape[:2], H, C // H) for part in (x @ matrix.T).split(C, dim=-1))
    see = rows.seen(x.shape[0], x.shape[1], x.shape[1], causal=True)
    return rows.read(rows.softmax(rows.scores(q, k), see.visible), v).reshape(x.shape) @ output.T


def block(gain=1.0, divisor=1.0, residual=1.0):

    def run(x, **p):
        def norm(name, x):
            return layer_norm(x, p[f"{name}.weight"]) + p[f"{name}.bias"]

        first, second = p.get("attention_gain", gain), p.get("feed_forward_gain", gain)
        read = attention(norm("attention_norm", x), p["attention.query_key_value.weight"],
                         p["attention.output.weight"])
        middle = x + first * read
        made = F.relu(norm("feed_forward_norm", middle) @ p["feed_forward.input.weight"].T)
        made = made @ p["feed_forward.output.weight"].T
        made = second * made / p.get("feed_forward_divisor", divisor)
        return p.get("feed_forward_residual", residual) * middle + made

    return run


def case(name, learned, **fixed):
    seed(name)
    parameters = {
        "attention_norm.weight": 1 + 0.3 * torch.randn(C), "attention_norm.bias": 0.3 * torch.randn(C),
        "attention.query_key_value.weight": 0.6 * torch.randn(3 * C, C),
        "attention.output.weight": 0.6 * torch.randn(C, C),
        "feed_forward_norm.weight": 1 + 0.3 * torch.randn(C), "feed_forward_norm.bias": 0.3 * torch.randn(C),
        "feed_forward.input.weight": 0.6 * torch.randn(M, C), "feed_forward.output.weight": 0.6 * torch.randn(C, M)
    }
    parameters.update({key: torch.tensor([value]) for key, value in learned.items()})
    items = {"residual_gain": fixed.get("gain", 1), "feed_forward_divisor": fixed.get("divisor", 1),
             "feed_forward_residual": fixed.get("residual", 1)}
    for key, starts in (("residual_gain", "attention_gain"), ("feed_forward_divisor", "feed_forward_divisor"),
                        ("feed_forward_residual", "feed_forward_residual")):
        if starts in learned:
            items[key] = "learned(1)"
    cases.add(f"block_{name}", "block", block(**fixed), {"x": torch.randn(B, T, C)}, parameters, batch=B, rows=T,
              width=C, heads=H, inner=M, **items)


def make():
    case("plain", {})
    case("skip_init", {"attention_gain": 0.4, "feed_forward_gain": -0.7})
    case("output_scaling", {"feed_forward_divisor": 1.7, "feed_forward_residual": 0.6})
    case("fixed_numbers", {}, gain=0.5, divisor=2.5, residual=0.8)
    case("all_learned", {"attention_gain": 0.9, "feed_forward_gain": 0.3, "feed_forward_divisor": -1.4,
                         "feed_forward_residual": 1.2})
    return cases
