"""Golden feed-forwards.  x (B, T, C) gives y (B, T, C); memories (2302.06461, 2012.14913), gates (2002.05202),
persistent slots without a context (1907.01470).  Choices:
    matrices      output x input, applied as x matrix^T: input and gate (M, C), output (C, M); memories store rows:
                  keys (M, C), values (M, C)
    biases        only in the cases whose names say so: b1 (M) before the function, b2 (C) at the end
    gated(F)      y = (F(x gate^T) * (x input^T)) output^T
    memory        y = F(x keys^T + b1) values + b2; memory(softmax): softmax over the slots, no biases, no scale
                  unless named
    norm=layer    layer normalization of the sublayer's output, biased variance, epsilon 1e-5, weight and bias (C)
    persistent    x is split into heads as it stands (head h has the columns h C/H to (h + 1) C/H), without
                  projections; kappa (H, N, C/H), nu (H, N, C/H), one softmax per head, heads joined again; used as
                  sqrt(C/H) kappa and sqrt(N) nu unless scaled=no, scores scaled by 1 / sqrt(C/H); projections=yes:
                  x query^T before the slots, y output^T behind them
"""
import torch
import torch.nn.functional as F

from cases import Cases, seed

cases = Cases("feed_forward", "feed_forwards.safetensors")
FUNCTIONS = {
    "relu": F.relu, "gelu": F.gelu, "silu": F.silu, "relu_squared": lambda x: F.relu(x) ** 2,
    "softmax": lambda x: torch.exp(x) / torch.exp(x).sum(-1, keepdim=True)
}
B, T, C, M = 2, 7, 6, 11


def case(name, spec, function, shapes, convention="", **options):
    seed(name)
    parameters = {key: (1 if key == "weight" else 0) + 0.7 * torch.randn(shape) for key, shape in shapes.items()}
    cases.add(f"feed_forward_{name}", spec, function, {"x": torch.randn(B, T, C)}, parameters, convention=convention,
              batch=B, rows=T, width=C, **options)


def dense(function):
    return lambda x, input, output, b1=0, b2=0: FUNCTIONS[function](x @ input.T + b1) @ output.T + b2


def gated(function):
    return lambda x, gate, input, output: (FUNCTIONS[function](x @ gate.T) * (x @ input.T)) @ output.T


def memory(function, scale=1.0):

    def run(x, keys, values, b1=0, b2=0, weight=None, bias=None):
        y = FUNCTIONS[function](scale * (x @ keys.T) + b1) @ values + b2
        if weight is None:
            return y
        centred = y - y.mean(-1, keepdim=True)
        return weight * centred / torch.sqrt((centred ** 2).mean(-1, keepdim=True) + 1e-5) + bias

    return run


def persistent(heads, scaled=True):

    def run(x, kappa, nu):
        size, slots = x.shape[-1] // heads, nu.shape[1]
        q = x.reshape(*x.shape[:-1], heads, size)
        keys, values = (size ** 0.5 * kappa, slots ** 0.5 * nu) if scaled else (kappa, nu)
        weights = FUNCTIONS["softmax"](torch.einsum("bthd,hnd->bthn", q, keys) / size ** 0.5)
        return torch.einsum("bthn,hnd->bthd", weights, values).reshape(x.shape)

    return run


def projected(heads):
    inner = persistent(heads)
    return lambda x, query, output, kappa, nu, query_bias=0, b2=0: inner(x @ query.T + query_bias, kappa,
                                                                         nu) @ output.T + b2


def make():
    matrices = {"input": (M, C), "output": (C, M)}
    biases = {"b1": (M, ), "b2": (C, )}
    for function in ("relu", "gelu", "relu_squared"):
        case(f"dense_{function}", f"dense({function})", dense(function), matrices, inner=M)
        case(f"dense_{function}_bias", f"dense({function})", dense(function), {**matrices, **biases}, inner=M,
             bias=True)
    for function in ("silu", "gelu"):
        case(f"gated_{function}", f"gated({function})", gated(function), {"gate": (M, C), **matrices}, inner=M)
    memories = {"keys": (M, C), "values": (M, C)}
    norm = {"weight": (C, ), "bias": (C, )}
    case("memory_relu", f"memory(relu, slots={M})", memory("relu"), memories)
    case("memory_relu_bias", f"memory(relu, slots={M})", memory("relu"), {**memories, **biases}, bias=True)
    case("memory_relu_layer", f"memory(relu, slots={M}, norm=layer)", memory("relu"), {**memories, **norm},
         epsilon=1e-5)
    case("memory_gelu", f"memory(gelu, slots={M})", memory("gelu"), memories)
    case("memory_softmax", f"memory(softmax, slots={M})", memory("softmax"), memories)
    case("memory_softmax_scale", f"memory(softmax, slots={M}, scale=0.4)", memory("softmax", 0.4), memories)
    case("memory_softmax_layer", f"memory(softmax, slots={M}, norm=layer)", memory("softmax"), {**memories, **norm},
         epsilon=1e-5)
    for heads in (1, 3):
        slots = {"kappa": (heads, 5, C // heads), "nu": (heads, 5, C // heads)}
        case(f"persistent_{heads}", f"persistent(slots=5, heads={heads})", persistent(heads), slots, heads=heads)
    case("persistent_unscaled", "persistent(slots=5, heads=3, scaled=no)", persistent(3, False), slots, heads=3)
    slots = {"kappa": (3, 5, 2), "nu": (3, 5, 2)}
    square = {"query": (C, C), "output": (C, C)}
    offsets = {"query_bias": (C, ), "b2": (C, )}
    case("persistent_projections", "persistent(slots=5, heads=3, projections=yes)", projected(3), {**square, **slots},
         heads=3)
    case("persistent_projections_bias", "persistent(slots=5, heads=3, projections=yes)", projected(3),
         {**square, **offsets, **slots}, heads=3, bias=True)
    return cases
