"""Golden attentions with positions in the scores, spans and persistent slots (1905.07799, 1907.01470, 2108.12409).

Choices where the papers leave a choice open (attention_rows.py has the others):
    ramp          m = clip((R + z - (x - 1)) / R, 0, 1) with z = z' S, S the limit: the form of the released code, in
                  which R tokens are seen at z' = 0.  The paper's formula has x for x - 1 (RAMP_START = 0)
    S             a key beyond distance S is invisible, even on the ramp
    own           no unless the case says so, so that x runs from 1; a row that sees nothing reads 0
    softmax       w = m e^s / sum m e^s, no 1e-8
    pointwise     w = m L^-alpha F(s) and relu_former m relu(s) / (gamma sqrt(n / 2)): multiplied only.  Visible keys
                  are counted without looking at m: every key the masks and S let through counts
    fixed(S)      x from 1 to S with own=no; x from 0 to S - 1 with own=yes: S keys either way; m = 1, the others
                  invisible
    dynamic       z = S sigmoid(span_weight x_t + span_bias), weight (H, C), bias (H)
    relative      keys: s = scale q.(k + p[x]), p (S, D), row x for distance x (row 0 is the own position), shared by
                  all heads; bias: s = scale q.k + bias[h, x], bias (H, S), after the scale
    alibi         s = scale q.k - slope_h x, slope 2^(-8 h / H), h = 1..H; H no power of two: the slopes of the power
                  of two P below, then the odd ones (h = 1, 3, ...) of 2 P; learned=yes: factor_h slope_h x
    slots         kappa (Hk, N, D) and nu (Hk, N, Dv), row by row; scaled=yes uses sqrt(D) kappa and sqrt(N) nu, so
                  that a slot's score is q.kappa at the default scale.  Slots have no position, m = 1 and count as
                  visible keys.  split=yes: the sum of a softmax over the context and a softmax over the slots
"""
import math

import torch

import attention_rows as rows
from attentions import DOCUMENTS, FUNCTIONS, LENGTHS, attention
from cases import Cases, seed

cases = Cases("attention", "attention_spans.safetensors")
RAMP_START = 1


def ramp(z, see, R, start):
    return torch.clamp((R + z - (see.distance - start)) / R, 0, 1)


def limited(see, S, own):
    return rows.Seen(see.visible & (see.distance <= (S - 1 if own else S)), see.distance, see.row_index, see.keys)


def slopes(H):
    power = 2 ** math.floor(math.log2(H))
    steps = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    return torch.tensor(steps + [2 ** (-8 * h / (2 * power)) for h in range(1, 2 * power, 2)][:H - power])


def mixed(weighting, S=None, R=None, span=None, own=False, alibi=False, scaled=True, scale=None, split=False,
          start=None, alpha=1.0, meaning="keys_visible"):
    """One function for every combination: span (`adaptive`, `dynamic`, `fixed`), position, slots."""

    def run(q, k, v, see, z=None, x=None, span_weight=None, span_bias=None, relative=None, bias=None, rho=None,
            kappa=None, nu=None, factor=None):
        s = rows.scores(q, k, scale)
        table = see.distance.clamp(min=0)
        if relative is not None:
            s = s + torch.einsum("bthd,tsd->bhts", q, relative[table]) * (scale or 1 / math.sqrt(q.shape[-1]))
        if bias is not None:
            s = s + bias[:, table]
        if alibi:
            steepness = slopes(q.shape[2]) if factor is None else slopes(q.shape[2]) * factor
            s = s - steepness[:, None, None] * see.distance
        mask = None
        if span:
            see = limited(see, S, own)
        if span == "adaptive":
            mask = ramp((z * S)[:, None, None], see, R, RAMP_START if start is None else start)
        if span == "dynamic":
            reach = S * torch.sigmoid(x @ span_weight.T + span_bias)
            mask = ramp(reach.permute(0, 2, 1)[..., None], see, R, RAMP_START if start is None else start)
        Tk = k.shape[1]
        if kappa is not None:
            keys, values = rows.slot_keys(kappa, scaled), rows.slot_values(nu, scaled)
            slot_scores = rows.scores(q, rows.joined(k[:, :0], keys), scale)
            if split:
                always = torch.ones_like(slot_scores, dtype=torch.bool)
                return (rows.read(rows.softmax(s, see.visible, mask), v)
                        + rows.read(rows.softmax(slot_scores, always), rows.joined(v[:, :0], values)))
            s, v = torch.cat([s, slot_scores], -1), rows.joined(v, values)
            see = rows.with_slots(see, kappa.shape[1])
            if mask is not None:
                mask = torch.cat([mask.expand(*s.shape[:3], Tk), torch.ones_like(slot_scores)], -1)
        if weighting == "softmax":
            return rows.read(rows.softmax(s, see.visible, mask), v)
        if weighting == "relu_former":
            w = rows.relu_former(s, see, rho)
        else:
            w = rows.pointwise(FUNCTIONS[weighting], s, see, alpha, meaning)
        return rows.read(w if mask is None else w * mask, v)

    return run


def case(name, spec, function, **settings):
    attention(name, spec, function, collection=cases, **settings)


def spans():
    long_documents = torch.tensor([[0, 0, 0, 0, 0, 0, 1], [0, 1, 1, 1, 1, 1, 1]])
    packed, padded = dict(causal=True, documents=long_documents), dict(lengths=torch.tensor([6, 7]))
    z = {"z": torch.tensor([0.02, 0.15, 0.08])}  # z' per head: the ramps of S 16, R 4 end at 4.3, 6.4 and 5.3
    wide = dict(S=16, R=4)
    note = dict(parameters=z, own=False)
    spec = "span=adaptive_span(16, R=4)"
    adaptive = dict(span="adaptive", **wide)
    case("adaptive_span", f"softmax({spec})", mixed("softmax", **adaptive), T=9, Hk=3, causal=True, **note)
    case("adaptive_span_packed_padded", f"softmax({spec})", mixed("softmax", **adaptive), **packed, **padded, **note)
    case("adaptive_span_full", f"softmax({spec})", mixed("softmax", **adaptive), **padded, **note)
    case("adaptive_span_own", "softmax(span=adaptive_span(16, R=4), own=yes)", mixed("softmax", own=True, **adaptive),
         causal=True, parameters=z, convention="the own position is distance 0")
    short = mixed("softmax", span="adaptive", S=5, R=4)
    case("adaptive_span_at_limit", "softmax(span=adaptive_span(5, R=4))", short, T=11, causal=True, own=False,
         parameters={"z": torch.tensor([0.25, 0.9, 0.5])}, convention="keys beyond distance S = 5 are invisible")
    case("adaptive_span_cache", f"softmax({spec})", mixed("softmax", **adaptive), T=4, Tk=10, causal=True, **note)
    case("adaptive_span_relative", f"softmax({spec})", mixed("softmax", **adaptive), causal=True, own=False,
         position="relative(16, keys)", parameters=lambda: {**z, "relative": torch.randn(16, 5)})
    # pointwise and relu_former: multiplied only
    weightings = {"relu": ("alpha=0", dict(alpha=0)),
                  "sigmoid": ("length=fixed(8)", dict(meaning="fixed(8)")),
                  "gelu": ("alpha=0.5, length=row_index", dict(alpha=0.5, meaning="row_index")),
                  "softplus": ("length=keys_visible", {})}
    for name, (items, settings) in weightings.items():
        counted = {} if settings else {"convention": "n counts the visible keys without looking at the span's mask"}
        case(f"adaptive_span_{name}", f"pointwise({name}, {items}, {spec})", mixed(name, **settings, **adaptive),
             **packed, **note, **counted)
    case("adaptive_span_relu_former", f"relu_former({spec})", mixed("relu_former", **adaptive), T=9, causal=True,
         own=False, parameters={**z, "rho": torch.tensor([0.3, -0.4, 0.1])},
         convention="n counts the visible keys without looking at the span's mask")
    dynamic = dict(span="dynamic", **wide)
    x = {"x": lambda B, T, H, D: torch.randn(B, T, 6)}
    seed("dynamic span")
    reach = {"span_weight": 0.4 * torch.randn(3, 6), "span_bias": torch.tensor([-2.2, -1.4, -0.9])}
    spec = "span=dynamic_span(16, R=4)"
    case("dynamic_span", f"softmax({spec})", mixed("softmax", **dynamic), T=9, Hk=3, causal=True, own=False, inputs=x,
         parameters=reach)
    case("dynamic_span_packed", f"softmax({spec})", mixed("softmax", **dynamic), own=False, inputs=x, parameters=reach,
         **packed, **padded)
    case("dynamic_span_pointwise", f"pointwise(relu, alpha=0, {spec})", mixed("relu", alpha=0, **dynamic), causal=True,
         own=False, inputs=x, parameters=reach)
    case("dynamic_span_pointwise_padded", f"pointwise(relu, alpha=0, {spec})", mixed("relu", alpha=0, **dynamic),
         own=False, inputs=x, parameters=reach, **padded)
    case("adaptive_span_relu_former_padded", "relu_former(span=adaptive_span(16, R=4))",
         mixed("relu_former", **adaptive), own=False, parameters={**z, "rho": torch.tensor([0.3, -0.4, 0.1])},
         convention="n counts the visible keys without looking at the span's mask", **packed, **padded)
    for name, opening in (("softmax", "softmax("), ("relu", "pointwise(relu, ")):
        for own in (True, False):
            case(f"fixed_span_{name}_own_{'yes' if own else 'no'}",
                 f"{opening}span=fixed(3), own={'yes' if own else 'no'})", mixed(name, span="fixed", S=3, own=own),
                 causal=True, own=own, lengths=LENGTHS,
                 convention="3 keys: distances 0 to 2 with own=yes, 1 to 3 with own=no; n counts the keys inside")


def positions():
    packed, padded = dict(causal=True, documents=DOCUMENTS), dict(lengths=LENGTHS)
    seed("tables")
    keys, bias = {"relative": torch.randn(12, 5)}, {"bias": torch.randn(3, 12)}
    note = "the table's row is the distance x; row 0 is the own position"
    for name, weighting, masks in (("softmax", "softmax", ["causal", "full"]), ("relu", "pointwise(relu)", ["causal"])):
        for mask in masks:
            seeing = packed if mask == "causal" else padded
            case(f"relative_keys_{name}_{mask}", weighting, mixed(name), position="relative(12, keys)",
                 Hk=3 if mask == "full" else 1, parameters=keys, convention=note, **seeing)
            case(f"relative_bias_{name}_{mask}", weighting, mixed(name), position="relative(12, bias)", parameters=bias,
                 convention=note, **seeing)
            case(f"alibi_{name}_{mask}", weighting, mixed(name, alibi=True), position="alibi",
                 slopes=slopes(3).tolist(), **seeing)
    case("relative_keys_cache", "softmax", mixed("softmax"), T=4, Tk=9, causal=True, position="relative(12, keys)",
         parameters=keys, convention=note)
    for mask, seeing in (("causal", packed), ("full", padded)):
        case(f"alibi_learned_{mask}", "softmax", mixed("softmax", alibi=True), position="alibi(learned=yes)",
             parameters={"factor": torch.tensor([1.3, 0.4, 2.1])}, slopes=slopes(3).tolist(),
             convention="factor: one number per head that multiplies its slope", **seeing)
    case("alibi_learned_relu", "pointwise(relu)", mixed("relu", alibi=True), causal=True,
         position="alibi(learned=yes)", parameters={"factor": torch.tensor([0.7, 1.9, 0.2])},
         slopes=slopes(3).tolist())
    case("alibi_four_heads", "softmax", mixed("softmax", alibi=True), H=4, Hk=2, causal=True, position="alibi",
         slopes=slopes(4).tolist())
    case("alibi_six_heads", "softmax", mixed("softmax", alibi=True), T=5, H=6, causal=True, position="alibi",
         slopes=slopes(6).tolist())


def persistent():
    packed, padded = dict(causal=True, documents=DOCUMENTS), dict(lengths=LENGTHS)

    def slots(N=5, Hk=1, D=5, Dv=5):
        return {"kappa": torch.randn(Hk, N, D) / 2, "nu": torch.randn(Hk, N, Dv) / 2}

    case("persistent", "softmax(persistent=5)", mixed("softmax"), Hk=3, parameters=lambda: slots(Hk=3), **packed)
    case("persistent_full", "softmax(persistent=5)", mixed("softmax"), Dv=6, parameters=lambda: slots(Dv=6), **padded)
    case("persistent_grouped", "softmax(persistent=5)", mixed("softmax"), H=4, Hk=2, parameters=lambda: slots(Hk=2),
         causal=True, convention="slots belong to key heads: kappa (Hk, N, D)")
    case("persistent_unscaled", "softmax(persistent=slots(5, scaled=no))", mixed("softmax", scaled=False), causal=True,
         parameters=lambda: slots())
    case("persistent_scale", "softmax(scale=0.3, persistent=5)", mixed("softmax", scale=0.3), causal=True,
         parameters=lambda: slots(),
         convention="a slot's score is scale q.(sqrt(D) kappa): another scale holds for the slots too")
    case("persistent_split", "softmax(persistent=slots(5, split=yes))", mixed("softmax", split=True),
         parameters=lambda: slots(), **packed)
    case("persistent_split_padded", "softmax(persistent=slots(5, split=yes))", mixed("softmax", split=True), Hk=3,
         parameters=lambda: slots(Hk=3), **padded)
    cross = dict(Tk=9, lengths=torch.tensor([6, 9]))
    rho = {"rho": torch.tensor([0.3, -0.4, 0.1])}
    case("persistent_cross", "softmax(persistent=5)", mixed("softmax"), parameters=lambda: slots(), **cross)
    case("persistent_cross_split", "softmax(persistent=slots(5, split=yes))", mixed("softmax", split=True), Hk=3,
         parameters=lambda: slots(Hk=3), **cross)
    case("persistent_cross_pointwise", "pointwise(gelu, persistent=5)", mixed("gelu"), parameters=lambda: slots(),
         convention="n counts the slots", **cross)
    case("persistent_cross_relu_former", "relu_former(persistent=5)", mixed("relu_former"),
         parameters=lambda: {**rho, **slots()}, convention="n counts the slots", **cross)
    case("persistent_own_excluded", "softmax(persistent=5, own=no)", mixed("softmax"), causal=True, own=False,
         parameters=lambda: slots(), convention="row 0 sees the slots alone")
    z = {"z": torch.tensor([0.04, 0.21, 0.11])}
    adaptive = dict(span="adaptive", S=16, R=4)
    case("persistent_span", "softmax(span=adaptive_span(16, R=4), persistent=5)", mixed("softmax", **adaptive),
         causal=True, own=False, parameters=lambda: {**z, **slots()})
    case("persistent_span_full", "softmax(span=adaptive_span(16, R=4), persistent=slots(5, scaled=no))",
         mixed("softmax", scaled=False, **adaptive), own=False, parameters=lambda: {**z, **slots()}, **padded)
    case("persistent_relative", "softmax(persistent=5)", mixed("softmax"), causal=True, position="relative(12, keys)",
         parameters=lambda: {"relative": torch.randn(12, 5), **slots()}, convention="slots have no position")
    case("persistent_pointwise", "pointwise(relu, persistent=5)", mixed("relu"), Hk=3, parameters=lambda: slots(Hk=3),
         **packed, **padded, convention="n counts the slots")
    case("persistent_pointwise_sigmoid", "pointwise(sigmoid, length=fixed(9), persistent=5)",
         mixed("sigmoid", meaning="fixed(9)"), parameters=lambda: slots(), **padded, convention="fixed(9) stays 9")
    case("persistent_pointwise_span",
         "pointwise(gelu, alpha=0, span=adaptive_span(16, R=4), persistent=slots(5, scaled=no))",
         mixed("gelu", alpha=0, scaled=False, **adaptive), causal=True, own=False, parameters=lambda: {**z, **slots()})
    case("persistent_relu_former", "relu_former(persistent=5)", mixed("relu_former"), Hk=3,
         parameters=lambda: {**rho, **slots(Hk=3)}, **packed, convention="n counts the slots")
    case("persistent_relu_former_unscaled", "relu_former(gamma=1, persistent=slots(5, scaled=no))",
         mixed("relu_former", scaled=False), parameters=lambda: {**rho, **slots()}, **padded,
         convention="n counts the slots")


def make():
    spans()
    positions()
    persistent()
    return cases
