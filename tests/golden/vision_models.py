"""A vision transformer and a residual convolution net in PyTorch, float64, on a CPU: one step's numbers.

    python3 -m pip install torch==2.13.0 numpy
    python3 tests/golden/vision_models.py   # writes vision_models.safetensors beside this file

The transformer: images of 6 x 6 pixels and 3 channels, patches of 2 x 2, width 8, 2 heads, 2 blocks, 5 classes; pre-norm,
layer norm with epsilon 1e-6, biases everywhere, feed-forward 4 times as wide with the exact GELU, full softmax attention;
once with a class token (its place has a position too), once with the mean of all tokens behind the last norm.
The convolution net: He et al. 2016, section 4.2, with convolutions of 1 x 1 as shortcuts: 3 x 3 convolution, norm, relu; three stages of one block with 3, 6 and 12 channels, halved twice; y = relu(n(c(relu(n(c x)))) +
s x), s a convolution of 1 x 1 where the shape changes, of option_b with batch norm behind it; mean over the pixels; linear.  Images of 8 x 8, 2 channels, 4
classes; batch norm (momentum 0.1, epsilon 1e-5) or DyT.

The file, for each MODEL of vit.class_token, vit.mean, resnet.batch, resnet.dyt, resnet.option_b: MODEL.parameter.PATH and
MODEL.gradient.PATH, MODEL.pixels (B, H, W, C), MODEL.labels, MODEL.logits in training, MODEL.loss, and of batch norm
MODEL.evaluated: the logits after that one step's statistics.  Weights of patches and convolutions lie as (N, h, w, C).
"""
import pathlib

import torch
import torch.nn as nn
import torch.nn.functional as F

from golden import write

torch.manual_seed(3)
torch.set_default_dtype(torch.float64)
result = {}


def record(name, parameters, forward, pixels, classes, evaluate=None):
    for p in parameters.values():
        p.data = p.data + 0.2 * torch.randn(p.shape)
    labels = torch.arange(pixels.shape[0]) % classes
    logits = forward(pixels)
    loss = F.cross_entropy(logits, labels)
    loss.backward()
    last = lambda x: x.permute(0, 2, 3, 1) if x.dim() == 4 else x
    for path, p in parameters.items():
        result[f"{name}.parameter.{path}"], result[f"{name}.gradient.{path}"] = last(p.data), last(p.grad)
    result.update({f"{name}.pixels": last(pixels), f"{name}.labels": labels.int(), f"{name}.logits": logits,
                   f"{name}.loss": loss.reshape(1)})
    if evaluate:
        result[f"{name}.evaluated"] = evaluate(pixels)


def vit(class_token):
    C, H, P, N = 8, 2, 2, 9
    layers = {"patch_embedding": nn.Conv2d(3, C, P, P), "norm": nn.LayerNorm(C, 1e-6), "head": nn.Linear(C, 5)}
    for i in range(2):
        layers.update({f"blocks.{i}.attention_norm": nn.LayerNorm(C, 1e-6),
                       f"blocks.{i}.attention.query_key_value": nn.Linear(C, 3 * C),
                       f"blocks.{i}.attention.output": nn.Linear(C, C),
                       f"blocks.{i}.feed_forward_norm": nn.LayerNorm(C, 1e-6),
                       f"blocks.{i}.feed_forward.input": nn.Linear(C, 4 * C),
                       f"blocks.{i}.feed_forward.output": nn.Linear(4 * C, C)})
    tables = {"position_embedding.weight": nn.Parameter(torch.randn(N + class_token, C))}
    if class_token:
        tables["class_token"] = nn.Parameter(torch.randn(1, 1, C))

    def forward(pixels):
        B = pixels.shape[0]
        x = layers["patch_embedding"](pixels).flatten(2).transpose(1, 2)
        if class_token:
            x = torch.cat([tables["class_token"].expand(B, 1, C), x], 1)
        x = x + tables["position_embedding.weight"]
        for i in range(2):
            at = lambda part: layers[f"blocks.{i}.{part}"]
            q, k, v = (z.view(B, -1, H, C // H).transpose(1, 2)
                       for z in at("attention.query_key_value")(at("attention_norm")(x)).split(C, -1))
            read = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
            x = x + at("attention.output")(read)
            x = x + at("feed_forward.output")(F.gelu(at("feed_forward.input")(at("feed_forward_norm")(x))))
        x = layers["norm"](x)
        return layers["head"](x[:, 0] if class_token else x.mean(1))

    parameters = {f"{path}.{name}": p for path, layer in layers.items() for name, p in layer.named_parameters()}
    record("vit.class_token" if class_token else "vit.mean", {**parameters, **tables}, forward, torch.randn(3, 3, 6, 6), 5)


class Dyt(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor([0.5]))
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        return self.weight[:, None, None] * torch.tanh(self.alpha * x) + self.bias[:, None, None]


def resnet(name, norm, option_b=False):
    layers = {"first": nn.Conv2d(2, 3, 3, 1, 1, bias=False), "norm": norm(3), "head": nn.Linear(12, 4)}
    stages = ((3, 3, 1), (3, 6, 2), (6, 12, 2))
    for i, (inputs, outputs, stride) in enumerate(stages):
        layers.update({f"blocks.{i}.first": nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
                       f"blocks.{i}.first_norm": norm(outputs),
                       f"blocks.{i}.second": nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
                       f"blocks.{i}.second_norm": norm(outputs)})
        if stride > 1:
            layers[f"blocks.{i}.shortcut"] = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            if option_b:
                layers[f"blocks.{i}.shortcut_norm"] = norm(outputs)

    def forward(x):
        x = F.relu(layers["norm"](layers["first"](x)))
        for i in range(3):
            at = lambda part: layers[f"blocks.{i}.{part}"]
            y = at("second_norm")(at("second")(F.relu(at("first_norm")(at("first")(x)))))
            for part in ("shortcut", "shortcut_norm"):
                x = at(part)(x) if f"blocks.{i}.{part}" in layers else x
            x = F.relu(y + x)
        return layers["head"](x.mean((2, 3)))

    def evaluate(x):
        for layer in layers.values():
            layer.eval()
        return forward(x)

    parameters = {f"{path}.{part}": p for path, layer in layers.items() for part, p in layer.named_parameters()}
    record(f"resnet.{name}", parameters, forward, torch.randn(3, 2, 8, 8), 4, evaluate if norm is nn.BatchNorm2d else None)


vit(True)
vit(False)
resnet("batch", nn.BatchNorm2d)
resnet("dyt", Dyt)
resnet("option_b", nn.BatchNorm2d, option_b=True)
write(pathlib.Path(__file__).with_suffix(".safetensors"), result)
print({name: value.item() for name, value in result.items() if name.endswith(".loss")})
