"""Ten training steps of a two-layer GPT in PyTorch, float64, on a CPU.

    python3 -m pip install torch==2.13.0 numpy
    python3 tests/golden/gpt_two_layers.py          # writes gpt_two_layers.safetensors beside this file

The model: vocabulary 17, context 8, width 8, 2 heads, 2 blocks; pre-norm, learned positions, layer norm with bias and
epsilon 1e-5, linear layers without bias, feed-forward 4 times as wide with the tanh form of GELU, causal softmax attention
scaled by 1/sqrt(head size), the embedding serves as output layer, no dropout.  Loss: mean cross-entropy in nats.
The optimizer: AdamW, rate 1e-3, betas 0.9 and 0.99, epsilon 1e-8, decay 0.1 on matrices and none on vectors, gradients
multiplied by min(1, 1 / norm), the norm over all of them.  (torch.nn.utils.clip_grad_norm_ adds 1e-6 to the norm; here the
factor is formed by hand, so that the numbers can be compared to the last digits.)

The file: initial.NAME and final.NAME for each parameter, gradient.NAME of the first step before clipping, tokens and
targets (10, 3, 8), losses (10) before each step, gradient_norms (10) before clipping.
"""
import math
import pathlib

import torch
import torch.nn.functional as F

from golden import write

V, T, C, H, LAYERS, B, STEPS = 17, 8, 8, 2, 2, 3, 10
torch.manual_seed(1)
torch.set_default_dtype(torch.float64)


def initial_parameters():
    shapes = {"token_embedding.weight": (V, C), "position_embedding.weight": (T, C)}
    for i in range(LAYERS):
        block = f"blocks.{i}."
        for norm in ("attention_norm", "feed_forward_norm"):
            shapes[f"{block}{norm}.weight"] = shapes[f"{block}{norm}.bias"] = (C,)
        for matrix in ("query", "key", "value", "output"):
            shapes[f"{block}attention.{matrix}.weight"] = (C, C)
        shapes[f"{block}feed_forward.input.weight"] = (4 * C, C)
        shapes[f"{block}feed_forward.output.weight"] = (C, 4 * C)
    shapes["norm.weight"] = shapes["norm.bias"] = (C,)
    # Large values, so that no part of the model is near its linear range; every weight of a norm differs from 1.
    return {name: (name.endswith("norm.weight") + 0.3 * torch.randn(shape)).requires_grad_() for name, shape in shapes.items()}


def forward(p, tokens):
    def norm(x, name):
        return F.layer_norm(x, (C,), p[name + ".weight"], p[name + ".bias"], 1e-5)

    def heads(x):
        return x.view(x.shape[0], T, H, C // H).transpose(1, 2)

    x = p["token_embedding.weight"][tokens] + p["position_embedding.weight"]
    for i in range(LAYERS):
        block = f"blocks.{i}."
        n = norm(x, block + "attention_norm")
        q, k, v = (heads(n @ p[f"{block}attention.{m}.weight"].T) for m in ("query", "key", "value"))
        scores = q @ k.transpose(-1, -2) / math.sqrt(C // H)
        scores = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -math.inf)
        read = (scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape)
        x = x + read @ p[block + "attention.output.weight"].T
        n = norm(x, block + "feed_forward_norm")
        hidden = F.gelu(n @ p[block + "feed_forward.input.weight"].T, approximate="tanh")
        x = x + hidden @ p[block + "feed_forward.output.weight"].T
    return norm(x, "norm") @ p["token_embedding.weight"].T


parameters = initial_parameters()
result = {"initial." + name: p.detach().clone() for name, p in parameters.items()}
sequences = torch.randint(V, (STEPS, B, T + 1))
result["tokens"], result["targets"] = sequences[..., :-1].int(), sequences[..., 1:].int()

optimizer = torch.optim.AdamW(
    [{"params": [p for p in parameters.values() if p.dim() > 1], "weight_decay": 0.1},
     {"params": [p for p in parameters.values() if p.dim() == 1], "weight_decay": 0.0}], lr=1e-3, betas=(0.9, 0.99), eps=1e-8)
losses, norms = [], []
for tokens, targets in zip(sequences[..., :-1], sequences[..., 1:]):
    optimizer.zero_grad()
    loss = F.cross_entropy(forward(parameters, tokens).reshape(-1, V), targets.reshape(-1))
    loss.backward()
    if not losses:
        result.update({"gradient." + name: p.grad.clone() for name, p in parameters.items()})
    norm = torch.sqrt(sum((p.grad ** 2).sum() for p in parameters.values()))
    for p in parameters.values():
        p.grad *= min(1.0, 1.0 / norm.item())
    optimizer.step()
    losses.append(loss.item())
    norms.append(norm.item())
result.update({"final." + name: p.detach() for name, p in parameters.items()})
result["losses"], result["gradient_norms"] = torch.tensor(losses), torch.tensor(norms)
write(pathlib.Path(__file__).with_suffix(".safetensors"), result)
for step, (loss, norm) in enumerate(zip(losses, norms)):
    print(f"step {step}: loss {loss:.12f}, gradient norm {norm:.12f}")
