"""An encoder-decoder by torch.nn.Transformer, float64: logits, loss and gradients, with padding, pre- and post-norm.

    python3 -m pip install torch==2.13.0 numpy
    python3 tests/golden/encoder_decoder.py         # writes encoder_decoder.safetensors beside this file

One layer each, width 8, 2 heads, feed-forward 16 with ReLU, vocabulary 11, one table of embeddings times sqrt(8) for source,
target and head, sinusoidal places (sine and cosine side by side), label smoothing 0.1 over the targets that are not padding.  The file:
for pre and post each, NAME.PARAMETER by the names of models/architectures/encoder_decoder.cpp, NAME.gradient.PARAMETER, NAME.logits, NAME.loss."""
import math
import pathlib

import torch
import torch.nn.functional as F

from golden import write

C, H, D_FF, V, BEGIN, END = 8, 2, 16, 11, 9, 10
PAIRS = [([1, 2, 3, 4, END], [5, 6, END]), ([3, END], [1, 1, 2, 8, 7, END]), ([7, 7, 2, END], [4, END])]
torch.manual_seed(1)
torch.set_default_dtype(torch.float64)


def padded(rows, padding):
    longest = max(map(len, rows))
    return torch.tensor([row + [padding] * (longest - len(row)) for row in rows])


def embedded(table, tokens):
    time = torch.arange(tokens.shape[1])[:, None] * torch.exp(torch.arange(0, C, 2) * (-math.log(1e4) / C))
    return table[tokens] * math.sqrt(C) + torch.stack([time.sin(), time.cos()], 2).flatten(1)


def by_our_names(model, table):
    theirs = dict(model.named_parameters())
    ours = {"encoder.embedding.weight": table}

    def take(name, of):
        for part in ("weight", "bias"):
            ours[f"{name}.{part}"] = theirs[f"{of}.{part}"]

    def attention(name, of, cross):
        weight, bias = theirs[f"{of}.in_proj_weight"], theirs[f"{of}.in_proj_bias"]
        if cross:
            ours[f"{name}.query.weight"], ours[f"{name}.key_value.weight"] = weight[:C], weight[C:]
            ours[f"{name}.query.bias"], ours[f"{name}.key_value.bias"] = bias[:C], bias[C:]
        else:
            ours[f"{name}.query_key_value.weight"], ours[f"{name}.query_key_value.bias"] = weight, bias
        take(f"{name}.output", f"{of}.out_proj")

    for side, steps in (("encoder", ["attention", "feed_forward"]), ("decoder", ["attention", "cross_attention", "feed_forward"])):
        layer = f"{side}.layers.0"
        for place, step in enumerate(steps):
            take(f"{side}.0.{step}.norm", f"{layer}.norm{place + 1}")
        attention(f"{side}.0.attention.layer", f"{layer}.self_attn", False)
        if side == "decoder":
            attention("decoder.0.cross_attention.layer", f"{layer}.multihead_attn", True)
        take(f"{side}.0.feed_forward.layer.input", f"{layer}.linear1")
        take(f"{side}.0.feed_forward.layer.output", f"{layer}.linear2")
        take(f"{side}.norm", f"{side}.norm")
    return ours


def gradients_by_our_names(model, table):
    for parameter in model.parameters():
        parameter.data = parameter.grad
    return by_our_names(model, table.grad)


file = {}
for name, first in (("pre", True), ("post", False)):
    model = torch.nn.Transformer(C, H, 1, 1, D_FF, 0.0, batch_first=True, norm_first=first)
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape) + ("norm" in path and path.endswith("weight")))
    table = (0.4 * torch.randn(V, C)).requires_grad_()
    sources, inputs, targets = (padded(rows, padding) for rows, padding in (
        ([s for s, _ in PAIRS], 0), ([[BEGIN] + t[:-1] for _, t in PAIRS], 0), ([t for _, t in PAIRS], -1)))
    padding = torch.arange(sources.shape[1])[None] >= torch.tensor([len(s) for s, _ in PAIRS])[:, None]
    later = torch.ones(inputs.shape[1], inputs.shape[1], dtype=torch.bool).triu(1)
    logits = model(embedded(table, sources), embedded(table, inputs), tgt_mask=later, src_key_padding_mask=padding,
                   memory_key_padding_mask=padding) @ table.T
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1, label_smoothing=0.1)
    loss.backward()
    file[f"{name}.logits"], file[f"{name}.loss"] = logits, loss
    file |= {f"{name}.{path}": value.detach().clone() for path, value in by_our_names(model, table).items()}
    file |= {f"{name}.gradient.{path}": value.detach().clone() for path, value in gradients_by_our_names(model, table).items()}
write(pathlib.Path(__file__).with_suffix(".safetensors"), file)
