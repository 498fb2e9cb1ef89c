"""Golden normalizations.  layer (1607.06450), rms (1910.07467), batch (1502.03167), group (1803.08494), dyt
(2503.10622), derf (2512.10938), dynamic(F).  Choices:
    epsilon    1e-5, inside the root, biased variance
    axis       the channel is the last axis of x (B, T, C), and axis 1 of images x (B, C, height, width)
    batch      statistics over every axis but the channel's; in training running = 0.9 running + 0.1 batch, the
               running variance from the unbiased variance; evaluation uses the running ones.  running_mean_after and
               running_variance_after are the running ones after the step
    group      rows (B, T, C): over the channels of a group at each position by itself; images: over the channels of
               a group and every pixel
    lengths    rows t >= lengths[b] are padding: they count in no statistic, and y is 0 there
    over       group(G, over=sequence): the statistics of rows go over all (real) positions of a sequence as well
    dyt        y = weight tanh(alpha x) + bias; derf y = weight erf(alpha x + shift) + bias; dynamic(F) y = weight
               F(alpha x) + bias; alpha and shift (1)
"""
import torch
import torch.nn.functional as F

from cases import Cases, seed

cases = Cases("normalization", "normalizations.safetensors")
SIZES = {"rows": (2, 7, 6), "image": (2, 6, 3, 4)}
FUNCTIONS = {
    "hardtanh": lambda x: torch.clamp(x, -1, 1), "sigmoid": torch.sigmoid, "identity": lambda x: x, "erf": torch.erf,
    "tanh": torch.tanh, "softsign": lambda x: x / (1 + x.abs())
}


def case(name, spec, function, kind="rows", alpha=None, shift=None, affine=("weight", "bias"), constants=None,
         **options):
    seed(name)
    parameters = {key: (1 if key == "weight" else 0) + 0.5 * torch.randn(6) for key in affine}
    for key, value in (("alpha", alpha), ("shift", shift)):
        if value is not None:
            parameters[key] = torch.tensor([value])
    x = 0.4 + 1.5 * torch.randn(SIZES[kind])
    cases.add(name, spec, function, {"x": x}, parameters, constants() if constants else None, kind=kind, **options)


def standard(x, axes):
    centred = x - x.mean(axes, keepdim=True)
    return centred / torch.sqrt((centred * centred).mean(axes, keepdim=True) + 1e-5)


def channels(x, values):
    return values if x.dim() == 3 else values[:, None, None]


def layer(x, weight, bias=0):
    return standard(x, -1) * weight + bias


def rms(x, weight):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight


def batch(train):

    def run(x, weight, bias, running_mean, running_variance):
        axes = (0, 1) if x.dim() == 3 else (0, 2, 3)
        if not train:
            normal = (x - channels(x, running_mean)) / torch.sqrt(channels(x, running_variance) + 1e-5)
            return normal * channels(x, weight) + channels(x, bias)
        y = standard(x, axes) * channels(x, weight) + channels(x, bias)
        still = x.detach()
        return y, {
            "running_mean_after": 0.9 * running_mean + 0.1 * still.mean(axes),
            "running_variance_after": 0.9 * running_variance + 0.1 * still.var(axes, unbiased=True)
        }

    return run


def group(groups):

    def run(x, weight, bias):
        if x.dim() == 3:
            return standard(x.reshape(*x.shape[:2], groups, -1), -1).reshape(x.shape) * weight + bias
        normal = standard(x.reshape(x.shape[0], groups, -1, *x.shape[2:]), (2, 3, 4)).reshape(x.shape)
        return normal * weight[:, None, None] + bias[:, None, None]

    return run


def real_rows(x, lengths):
    return (torch.arange(x.shape[1]) < lengths[:, None])[..., None]


def padded_batch(train):

    def run(x, weight, bias, running_mean, running_variance, lengths):
        real = real_rows(x, lengths)
        tokens = torch.cat([x[b, :n] for b, n in enumerate(lengths)])[None]
        result = batch(train)(tokens, weight, bias, running_mean, running_variance)
        y, more = result if train else (result, {})
        filled = torch.zeros(x.shape).masked_scatter(real.expand(x.shape), y)
        return (filled, more) if train else filled

    return run


def padded_group(groups):

    def run(x, weight, bias, lengths):
        each = []
        for b, n in enumerate(lengths):
            parts = x[b, :n].reshape(n, groups, -1)
            y = standard(parts, (0, 2)).reshape(n, -1) * weight + bias
            each.append(torch.cat([y, torch.zeros(x.shape[1] - n, x.shape[2])]))
        return torch.stack(each)

    return run


def dynamic(function, fixed=None):

    def run(x, weight=1, bias=0, alpha=None, shift=0):
        return weight * FUNCTIONS[function]((fixed if alpha is None else alpha) * x + shift) + bias

    return run


def make():
    running = lambda: {"running_mean": torch.randn(6), "running_variance": 0.5 + torch.rand(6)}
    case("layer", "layer", layer, epsilon=1e-5)
    case("layer_without_bias", "layer", layer, affine=("weight", ), bias=False, epsilon=1e-5)
    case("rms", "rms", rms, affine=("weight", ), epsilon=1e-5)
    for kind in SIZES:
        case(f"batch_train_{kind}", "batch", batch(True), kind, constants=running, mode="train", momentum=0.1,
             epsilon=1e-5)
        case(f"batch_evaluation_{kind}", "batch", batch(False), kind, constants=running, mode="evaluation",
             epsilon=1e-5)
        for groups in (2, 3):
            case(f"group_{groups}_{kind}", f"group({groups})", group(groups), kind, groups=groups, epsilon=1e-5)
    lengths = lambda: {"lengths": torch.tensor([4, 7])}
    case("batch_train_padded", "batch", padded_batch(True), constants=lambda: {**running(), **lengths()}, mode="train",
         momentum=0.1, epsilon=1e-5)
    case("batch_evaluation_padded", "batch", padded_batch(False), constants=lambda: {**running(), **lengths()},
         mode="evaluation", epsilon=1e-5)
    for groups in (2, 3):
        case(f"group_{groups}_padded", f"group({groups}, over=sequence)", padded_group(groups), constants=lengths,
             groups=groups, epsilon=1e-5)
    case("dyt", "dyt(0.5)", dynamic("tanh"), alpha=0.5)
    case("dyt_without_bias", "dyt(0.8)", dynamic("tanh"), alpha=0.8, affine=("weight", ), bias=False)
    case("derf", "derf(0.5)", dynamic("erf"), alpha=0.5, shift=0.0)
    case("derf_shift", "derf(0.7, 0.2)", dynamic("erf"), alpha=0.7, shift=0.2)
    for function in ("hardtanh", "sigmoid", "identity", "erf", "softsign"):
        case(f"dynamic_{function}", f"dynamic({function}, 0.6)", dynamic(function), alpha=0.6)
    case("dynamic_fixed_alpha", "dynamic(tanh, 1, learn_alpha=no)", dynamic("tanh", 1.0))
    case("dynamic_without_affine", "dynamic(hardtanh, 0.6, affine=no)", dynamic("hardtanh"), alpha=0.6, affine=())
    # PyTorch's own modules say the same.
    x = torch.randn(SIZES["image"])
    assert torch.allclose(group(3)(x, torch.ones(6), torch.zeros(6)), F.group_norm(x, 3), atol=1e-12)
    own = torch.nn.BatchNorm2d(6)
    y, after = batch(True)(x, torch.ones(6), torch.zeros(6), torch.zeros(6), torch.ones(6))
    assert torch.allclose(own(x), y, atol=1e-12)
    assert torch.allclose(own.running_var, after["running_variance_after"], atol=1e-12)
    return cases
