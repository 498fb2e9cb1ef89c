"""Golden linear attention (2006.16236) and gated attention unit (FLASH-quad, 2202.10447).

Linear: a_ij = <F(q_i D^-1/4), F(k_j D^-1/4)> over the visible keys (a masked pair is 0), y_i = sum_j a_ij v_j,
divided by sum_j a_ij if normalize=yes; no epsilon, so that F has to be positive there.  attention_rows.py has shapes
and masks.

GAU, a whole layer without its pre-norm and residual: x (B, T, C); U = silu(x Wu), V = silu(x Wv) of width E, Z =
silu(x Wz) of width S; q = Z query_gain + query_bias, k = Z key_gain + key_bias, rotated with position=rotary
(half-split, base 10000, after the affine maps); A = relu(q k^T / n + b)^2 on visible pairs, the mask after the
square; y = (U * (A V)) Wo.  Choices:
    matrices   output x input: gate (E, C), value (E, C), shared (S, C), output (C, E), applied as x matrix^T; no
               biases
    n          keys_visible (at least 1) or what `length` names, divides inside the square; no other scale
    b          bias (position=relative(S, bias)), one number per distance (1, S), added after the division by n, as
               in the equation (one port adds it before)
"""
import torch
import torch.nn.functional as F

import attention_rows as rows
from attentions import DOCUMENTS, LENGTHS, attention
from cases import Cases, seed
from positions import rotated

cases = Cases("attention", "attention_linear.safetensors")
FEATURES = {
    "relu": F.relu, "identity": lambda x: x, "exp": torch.exp, "softplus": rows.softplus, "sigmoid": torch.sigmoid,
    "elu": F.elu, "silu": F.silu, "square": torch.square
}


def linear(name, normalize=False):

    def run(q, k, v, see):
        factor = q.shape[-1] ** -0.25
        a = rows.scores(FEATURES[name](q * factor), FEATURES[name](k * factor), 1.0)
        a = torch.where(see.visible, a, torch.zeros(()))
        return rows.read(rows.divided(a) if normalize else a, v)

    return run


def unit(see, meaning="keys_visible", rotary=False):

    def run(x, gate, value, shared, query_gain, query_bias, key_gain, key_bias, output, bias=None, lengths=None,
            documents=None):
        u, v, z = F.silu(x @ gate.T), F.silu(x @ value.T), F.silu(x @ shared.T)
        q, k = z * query_gain + query_bias, z * key_gain + key_bias
        if rotary:
            q, k = rotated(q[:, :, None]).squeeze(2), rotated(k[:, :, None]).squeeze(2)
        s = torch.einsum("bts,bus->btu", q, k)[:, None] / rows.length(see, meaning)
        if bias is not None:
            s = s + bias[:, see.distance.clamp(min=0)]
        weights = torch.where(see.visible, F.relu(s) ** 2, torch.zeros(()))[:, 0]
        return (u * (weights @ v)) @ output.T

    return run


def gau(name, spec, T=8, causal=False, lengths=None, documents=None, position=None, convention="", **settings):
    seed(name)
    B, C, E, S = 2, 5, 9, 6
    see = rows.seen(B, T, T, causal, lengths, documents)
    parameters = {
        "gate": 0.6 * torch.randn(E, C), "value": 0.6 * torch.randn(E, C), "shared": 0.6 * torch.randn(S, C),
        "query_gain": torch.randn(S), "query_bias": torch.randn(S), "key_gain": torch.randn(S),
        "key_bias": torch.randn(S), "output": 0.5 * torch.randn(C, E)
    }
    if position and position.startswith("relative"):
        parameters["bias"] = 0.5 * torch.randn(1, 12)
    live = None if lengths is None else (torch.arange(T) < lengths[:, None]).double()[:, :, None]
    constants = {key: x for key, x in (("lengths", lengths), ("documents", documents)) if x is not None}
    cases.add(name, spec, unit(see, **settings), {"x": torch.randn(B, T, C)}, parameters, constants, position=position,
              live=live, convention=convention, batch=B, queries=T, width=C, expanded=E, shared=S, causal=causal)


def make():
    packed, padded = dict(causal=True, documents=DOCUMENTS), dict(lengths=LENGTHS)
    cross = dict(Tk=9, lengths=torch.tensor([6, 9]))
    for name in ("relu", "identity", "exp", "silu"):
        attention(f"linear_{name}_full", f"linear({name})", linear(name), Hk=3, collection=cases, **padded)
    for name in ("relu", "identity", "elu", "square"):
        attention(f"linear_{name}_causal", f"linear({name})", linear(name), collection=cases, **packed, **padded)
    for name in ("softplus", "exp", "sigmoid"):
        spec = f"linear({name}, normalize=yes)"
        attention(f"linear_{name}_normalized_full", spec, linear(name, True), collection=cases, **padded)
        attention(f"linear_{name}_normalized_causal", spec, linear(name, True), collection=cases, H=4, Hk=2, Dv=6,
                  **packed)
    attention("linear_relu_cross", "linear(relu)", linear("relu"), collection=cases, Dv=6, **cross)
    attention("linear_exp_normalized_cross", "linear(exp, normalize=yes)", linear("exp", True), collection=cases,
              **cross)
    attention("linear_silu_cache", "linear(silu)", linear("silu"), collection=cases, T=4, Tk=9, causal=True)
    documents = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 2, 2, 2]])
    gau("gau_full", "gau", lengths=torch.tensor([6, 8]))
    gau("gau_causal", "gau", causal=True)
    gau("gau_packed", "gau", causal=True, documents=documents)
    gau("gau_rotary", "gau", causal=True, rotary=True, position="rotary")
    gau("gau_rotary_full", "gau", rotary=True, position="rotary")
    gau("gau_bias", "gau", causal=True, position="relative(12, bias)")
    gau("gau_bias_full", "gau", position="relative(12, bias)", lengths=torch.tensor([6, 8]))
    gau("gau_padded_length", "gau(length=padded_length)", meaning="padded_length", lengths=torch.tensor([6, 8]))
    gau("gau_row_index", "gau(length=row_index)", meaning="row_index", causal=True, documents=documents)
    gau("gau_fixed", "gau(length=fixed(4))", meaning="fixed(4)", causal=True)
    return cases
