"""Outputs and every gradient of single layers, activations, losses and optimizers in PyTorch, float64, on a CPU.

    python3 -m pip install torch==2.13.0 numpy
    python3 tests/golden/layers.py                  # writes layers.safetensors beside this file

The file: CASE.NAME for each input, CASE.y for the output, CASE.dy for the gradient that arrives (absent where y is a
scalar: it is 1) and CASE.dNAME for the gradient of each input.  The cases, with their shapes and constants:
    layer_norm       x (3, 5), weight, bias (5); epsilon 1e-5
    rms_norm         x (3, 5), weight (5); epsilon 1e-5
    linear           x (3, 5), weight (4, 5), bias (4)
    attention        q, k (2, 5, 2, 4), v (2, 5, 2, 3): batch, time, heads, head size; causal, scale 1/sqrt(4)
    attention_full   q (2, 3, 2, 4), k (2, 5, 2, 4), v (2, 5, 2, 3); no mask, scale 1/sqrt(4)
    feed_forward     x (3, 5), input (8, 5), output (5, 8), both out x in; gelu with erf between them
    cross_entropy    logits (4, 7), targets (4); mean over rows, nats
    prelu            x (13), slope (1)
    xielu            x (13), alpha_positive, alpha_negative (1), before softplus; beta 0.5, Huang and Schlag 2024
    activation       x: a grid that avoids the kinks; activation.NAME.y and activation.NAME.dy_dx
    adamw, sgd, sgd_nesterov
                     p (2, 3), g (3, 2, 3): three gradients; steps (3, 2, 3): p after each step.  adamw: rate 0.01, betas
                     0.9 and 0.99, epsilon 1e-8, decay 0.1; sgd: rate 0.1, momentum 0.9, decay 0.05
"""
import math
import pathlib

import torch
import torch.nn.functional as F

from golden import write

torch.manual_seed(2)
torch.set_default_dtype(torch.float64)
result = {}


def case(name, function, **inputs):
    leaves = {key: x.clone().requires_grad_(x.is_floating_point()) for key, x in inputs.items()}
    y = function(**leaves)
    dy = torch.randn(y.shape) if y.dim() else torch.ones(())
    y.backward(dy)
    result[f"{name}.y"] = y
    if y.dim():
        result[f"{name}.dy"] = dy
    for key, x in leaves.items():
        result[f"{name}.{key}"] = x if x.is_floating_point() else x.int()
        if x.is_floating_point():
            result[f"{name}.d{key}"] = x.grad


def attention(causal):
    def read(q, k, v):
        scores = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(q.shape[-1])
        if causal:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
        return torch.einsum("bhts,bshd->bthd", scores.softmax(-1), v)
    return read


def xielu(x, alpha_positive, alpha_negative, beta=0.5):
    positive, negative = F.softplus(alpha_positive), beta + F.softplus(alpha_negative)
    return torch.where(x > 0, positive * x * x + beta * x, negative * (torch.expm1(x) - x) + beta * x)


random = torch.randn
case("layer_norm", lambda x, weight, bias: F.layer_norm(x, (5,), weight, bias, 1e-5), x=random(3, 5), weight=random(5), bias=random(5))
case("rms_norm", lambda x, weight: F.rms_norm(x, (5,), weight, 1e-5), x=random(3, 5), weight=random(5))
case("linear", F.linear, input=random(3, 5), weight=random(4, 5), bias=random(4))
case("attention", attention(True), q=random(2, 5, 2, 4), k=random(2, 5, 2, 4), v=random(2, 5, 2, 3))
case("attention_full", attention(False), q=random(2, 3, 2, 4), k=random(2, 5, 2, 4), v=random(2, 5, 2, 3))
case("feed_forward", lambda x, input, output: F.gelu(x @ input.T) @ output.T, x=random(3, 5), input=random(8, 5), output=random(5, 8))
case("cross_entropy", F.cross_entropy, input=3 * random(4, 7), target=torch.tensor([6, 0, 3, 3]))
case("prelu", F.prelu, input=2 * random(13), weight=torch.tensor([0.2]))
case("xielu", xielu, x=2 * random(13), alpha_positive=torch.tensor([0.3]), alpha_negative=torch.tensor([-0.4]))
for name, renames in {"linear": {"input": "x"}, "cross_entropy": {"input": "logits", "target": "targets"},
                      "prelu": {"input": "x", "weight": "slope"}}.items():
    for old, new in renames.items():
        for prefix in ("", "d"):
            if f"{name}.{prefix}{old}" in result:
                result[f"{name}.{prefix}{new}"] = result.pop(f"{name}.{prefix}{old}")

activations = {
    "identity": lambda x: x * 1, "relu": F.relu, "relu_squared": lambda x: F.relu(x) ** 2, "relu6": F.relu6,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.01), "elu": F.elu, "selu": F.selu, "celu": F.celu, "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x), "silu": F.silu,
    "mish": F.mish, "softplus": lambda x: torch.logaddexp(x, torch.zeros(())), "softsign": F.softsign, "sigmoid": torch.sigmoid,
    "log_sigmoid": F.logsigmoid, "tanh": torch.tanh, "hardtanh": F.hardtanh, "hard_sigmoid": F.hardsigmoid,
    "hard_swish": F.hardswish, "erf": torch.erf, "sine": torch.sin, "exp": torch.exp, "square": torch.square,
    "cube": lambda x: x ** 3, "tanhshrink": F.tanhshrink, "arctan": torch.atan,
    "squareplus": lambda x: (x + torch.sqrt(x * x + 4)) / 2}
grid = torch.cat([torch.linspace(-8, 8, 33) + 0.0625, torch.tensor([-30.0, -0.001, 0.001, 20.0])])
result["activation.x"] = grid
for name, function in activations.items():
    x = grid.clone().requires_grad_()
    y = function(x)
    y.sum().backward()
    result[f"activation.{name}.y"], result[f"activation.{name}.dy_dx"] = y, x.grad

optimizers = {
    "adamw": lambda p: torch.optim.AdamW([p], lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1),
    "sgd": lambda p: torch.optim.SGD([p], lr=0.1, momentum=0.9, weight_decay=0.05),
    "sgd_nesterov": lambda p: torch.optim.SGD([p], lr=0.1, momentum=0.9, weight_decay=0.05, nesterov=True)}
for name, make in optimizers.items():
    p, gradients, steps = random(2, 3).requires_grad_(), random(3, 2, 3), []
    result[f"{name}.p"] = p.detach().clone()
    optimizer = make(p)
    for g in gradients:
        p.grad = g.clone()
        optimizer.step()
        steps.append(p.detach().clone())
    result[f"{name}.g"], result[f"{name}.steps"] = gradients, torch.stack(steps)

write(pathlib.Path(__file__).with_suffix(".safetensors"), result)
print(f"{len(result)} tensors")
