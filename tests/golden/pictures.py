"""Outputs and every gradient of convolutions, pools and patch embedding in PyTorch, float64, on a CPU.

    python3 -m pip install torch==2.13.0 numpy
    python3 tests/golden/pictures.py                # writes pictures.safetensors beside this file

The file: CASE.NAME for each input, CASE.y for the output, CASE.dy for the gradient that arrives and CASE.dNAME for the
gradient of each input; pictures are (B, H, W, C) and weights (N, h, w, C) there, permuted to PyTorch's order and back.
The cases, with x (2, 7, 6, 3) and weight (4, 3, 2, 3):
    convolution      stride (2, 1), padding (1, 2), dilation (1, 2)
    max_pool         window (3, 2), stride (2, 1), padding (1, 1)
    average_pool     the same; pixels beyond the picture do not count
    patches          x (2, 6, 4, 3): the convolution with stride (3, 2)
"""
import pathlib

import torch
import torch.nn.functional as F

from golden import write

torch.manual_seed(7)
torch.set_default_dtype(torch.float64)
result = {}


def planes(x):
    return x.permute(0, 3, 1, 2)


def case(name, function, **inputs):
    leaves = {key: x.clone().requires_grad_() for key, x in inputs.items()}
    y = function(*[planes(x) if x.dim() == 4 else x for x in leaves.values()]).permute(0, 2, 3, 1)
    dy = torch.randn(y.shape)
    y.backward(dy)
    result[f"{name}.y"], result[f"{name}.dy"] = y, dy
    for key, x in leaves.items():
        result[f"{name}.{key}"], result[f"{name}.d{key}"] = x, x.grad


random = torch.randn
case("convolution", lambda x, weight, bias: F.conv2d(x, weight, bias, stride=(2, 1), padding=(1, 2), dilation=(1, 2)),
     x=random(2, 7, 6, 3), weight=random(4, 3, 2, 3), bias=random(4))
case("max_pool", lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 1)), x=random(2, 7, 6, 3))
case("average_pool", lambda x: F.avg_pool2d(x, (3, 2), (2, 1), (1, 1), count_include_pad=False), x=random(2, 7, 6, 3))
case("patches", lambda x, weight, bias: F.conv2d(x, weight, bias, stride=(3, 2)),
     x=random(2, 6, 4, 3), weight=random(4, 3, 2, 3), bias=random(4))

write(pathlib.Path(__file__).with_suffix(".safetensors"), result)
print(f"{len(result)} tensors")
