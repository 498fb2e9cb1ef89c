"""Golden positions: sinusoidal (1706.03762), rotary (2104.09864, in both layouts), learned.  alibi and relative stand
in attention_spans.py, since they act on scores.

    sinusoidal     table (T, C): row p has sin(p / 10000^(2 i / C)) in column 2 i and the cosine in column 2 i + 1
    rotary         x (B, T, H, D), angle p 10000^(-2 i / D), i < D/2; a pair (a, b) becomes (a cos - b sin, a sin + b
                   cos); the pair i is (x[i], x[i + D/2]) with layout=half_split, (x[2 i], x[2 i + 1]) with
                   layout=interleaved; p counts from `offset`
    learned        y = x + table[p], table (S, C)
"""
import torch

from cases import Cases, seed

cases = Cases("position", "positions.safetensors")


def angles(positions, size, base=10000.0):
    return positions[:, None] * base ** (-torch.arange(0, size, 2).double() / size)


def sinusoidal(T, C, offset=0):
    angle = angles(torch.arange(T).double() + offset, C)
    return torch.stack([torch.sin(angle), torch.cos(angle)], -1).reshape(T, C)


def rotated(x, interleaved=False, offset=0, base=10000.0):
    D = x.shape[-1]
    angle = angles(torch.arange(x.shape[1]).double() + offset, D, base)[None, :, None, :]
    first, second = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :D // 2], x[..., D // 2:])
    # The pair as one complex number, times e^(i angle).
    turned = torch.complex(first, second) * torch.polar(torch.ones_like(angle), angle)
    pair = torch.stack([turned.real, turned.imag], -1 if interleaved else -2)
    return pair.reshape(x.shape)


def make():
    for T, C in ((7, 6), (5, 16)):
        seed(f"sinusoidal {T}")
        cases.add(f"sinusoidal_{T}_{C}", "sinusoidal", lambda x: x + sinusoidal(x.shape[1], x.shape[2]),
                  {"x": torch.randn(2, T, C)}, convention="y = x + table")
    seed("sinusoidal_offset")
    cases.add("sinusoidal_offset", "sinusoidal", lambda x: x + sinusoidal(3, 6, 11), {"x": torch.randn(2, 3, 6)},
              offset=11)
    for layout in ("half_split", "interleaved"):
        for offset in (0, 9):
            name = f"rotary_{layout}" + (f"_offset_{offset}" if offset else "")
            seed(name)
            cases.add(name, "rotary" if layout == "half_split" else "rotary(interleaved)",
                      lambda x: rotated(x, layout == "interleaved", offset), {"x": torch.randn(2, 7, 3, 6)},
                      layout=layout, offset=offset, base=10000)
    seed("learned")
    cases.add("learned", "learned", lambda x, table: x + table[:x.shape[1]], {"x": torch.randn(2, 7, 6)},
              {"table": torch.randn(9, 6)})
    return cases
