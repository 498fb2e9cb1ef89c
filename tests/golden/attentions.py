"""Golden attention operations: y = attention(q, k, v).  attention_rows.py states shapes and conventions.

Sources: softmax 1706.03762; soft cap 2408.00118; pointwise 2309.08586; ReLUFormer 2302.06461; sparsemax 1602.02068;
entmax 1905.05702; ReLA 2104.07012 and its released code; qk norm 2302.05442.  Choices where they leave a choice
open:
    temperature   one t per head, s -> s / t, after the scale
    soft_cap      s -> cap tanh(s / cap), after the scale and the temperature, so that it bounds what exp sees
    gelu          x Phi(x), with erf
    length        attention_rows.length; alpha, fixed or learned, is one number (1) for all heads
    gate=F        y = o * F(x W_g), gate (H Dv, C) applied as x gate^T, x the query side; y is before the output
                  projection
    qk_norm       over the head's last axis, one weight of length D shared by all heads, no bias, epsilon 1e-5 (flax
                  has 1e-6); the scale 1 / sqrt(D) stays
    rela          RMS normalization of the read o = relu(s) v, epsilon 1e-5; `axis=head`: over Dv of each head, gain
                  (Dv) shared by the heads: a head's size cannot depend on its neighbours, and heads stay separable;
                  `axis=all_heads`: over the H Dv numbers of the joined heads, gain (H, Dv), as the authors' code has
                  it (bzhangGo/zero, modules/rela.py).  The gate, as theirs: y = sigmoid(gate * o) * normalized, o the
                  read before normalization
"""
import math

import torch
import torch.nn.functional as F

import attention_rows as rows
from cases import Cases, seed
from positions import rotated

cases = Cases("attention", "attentions.safetensors")
LENGTHS = torch.tensor([5, 7])
DOCUMENTS = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 2, 2]])

FUNCTIONS = {
    "relu": F.relu, "relu_squared": lambda s: F.relu(s) ** 2, "gelu": F.gelu, "softplus": rows.softplus,
    "identity": lambda s: s, "relu6": lambda s: torch.clamp(s, 0, 6), "sigmoid": torch.sigmoid, "elu": F.elu,
    "silu": F.silu, "square": torch.square
}


def attention(name, spec, function, T=7, Tk=None, H=3, Hk=1, D=5, Dv=None, causal=False, lengths=None, documents=None,
              own=True, size=1.4, shift=0.0, inputs=None, parameters=None, collection=None, live=None, values=True,
              **more):
    """function(q, k, v, see, **inputs, **parameters) gives y; the sizes make the random q, k, v.  Inputs are functions
    of the sizes; parameters are tensors or a function that draws them.  values=False: weights alone, without v."""
    B, Tk, Dv = 2, Tk or T, Dv or D
    seed(name)
    drawn = {
        "q": shift + size * torch.randn(B, T, H, D), "k": shift + torch.randn(B, Tk, Hk, D),
        "v": torch.randn(B, Tk, Hk, Dv)
    }
    if not values:
        del drawn["v"]
    see = rows.seen(B, T, Tk, causal, lengths, documents, own)
    parameters = parameters() if callable(parameters) else parameters
    constants = {key: x for key, x in (("lengths", lengths), ("documents", documents)) if x is not None}
    if lengths is not None and Tk == T and live is None:
        live = (torch.arange(T) < lengths[:, None]).double()[:, :, None, None]

    def run(q, k, v=None, lengths=None, documents=None, **others):
        return function(q, k, v, see, **others)

    for key, draw in (inputs or {}).items():
        drawn[key] = draw(B, T, H, D)
    (collection or cases).add(name, spec, run, drawn, parameters, constants, live=live, batch=B, queries=T, keys=Tk,
                              heads=H, key_heads=Hk, head_size=D, value_size=Dv, causal=causal, own=own, **more)


def softmax(q, k, v, see, scale=None, soft_cap=None, temperature=None):
    s = rows.scores(q, k, scale)
    if temperature is not None:
        s = s / temperature[None, :, None, None]
    if soft_cap:
        s = soft_cap * torch.tanh(s / soft_cap)
    return rows.read(rows.softmax(s, see.visible), v)


def pointwise(name, **fixed):

    def run(q, k, v, see, alpha=None):
        w = rows.pointwise(FUNCTIONS[name], rows.scores(q, k), see,
                           **{**fixed, **({} if alpha is None else {"alpha": alpha})})
        return rows.read(w, v)

    return run


def naive(q, k, v, see):
    return rows.read(torch.where(see.visible, F.relu(rows.scores(q, k)), torch.zeros(())), v)


def relu_former(q, k, v, see, rho):
    return rows.read(rows.relu_former(rows.scores(q, k), see, rho), v)


def threshold(rule):
    return lambda q, k, v, see: rows.read(rule(rows.scores(q, k), see.visible), v)


def rela(axes):

    def run(q, k, v, see, weight, gate=None):
        o = naive(q, k, v, see)
        y = o * torch.rsqrt((o * o).mean(axes, keepdim=True) + 1e-5) * weight
        return y if gate is None else torch.sigmoid(gate * o) * y

    return run


def gated(inner, gate_function):

    def run(q, k, v, see, x, gate):
        o = inner(q, k, v, see)
        return o * gate_function(x @ gate.T).reshape(o.shape)

    return run


def qk_norm(inner, norm):

    def run(q, k, v, see, query_weight, key_weight):
        return inner(norm(q, query_weight), norm(k, key_weight), v, see)

    return run


def layer_norm(x, weight):
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt((centred * centred).mean(-1, keepdim=True) + 1e-5) * weight


def rms_norm(x, weight):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight


def norms():
    return {"query_weight": 1 + 0.5 * torch.randn(5), "key_weight": 1 + 0.5 * torch.randn(5)}


def rotary(q, k, v, see):
    """The queries are the last T positions of the keys."""
    return softmax(rotated(q, offset=k.shape[1] - q.shape[1]), rotated(k), v, see)


def bound(function, **settings):
    return lambda *tensors, **parameters: function(*tensors, **settings, **parameters)


def make():
    packed = dict(causal=True, documents=DOCUMENTS)
    padded = dict(lengths=LENGTHS)
    cross = dict(Tk=9, lengths=torch.tensor([6, 9]))
    # softmax
    attention("softmax_full", "softmax", softmax, Hk=3, Dv=6)
    attention("softmax_causal", "softmax", softmax, Hk=3, causal=True)
    attention("softmax_packed_padded", "softmax", softmax, **packed, **padded)
    attention("softmax_documents_full", "softmax", softmax, documents=DOCUMENTS)
    attention("softmax_cross_grouped", "softmax", softmax, H=4, Hk=2, **cross)
    attention("softmax_cache", "softmax", softmax, T=4, Tk=9, causal=True, H=6, Hk=3)
    attention("softmax_scale", "softmax(scale=0.25)", bound(softmax, scale=0.25), causal=True)
    attention("softmax_soft_cap_30", "softmax(soft_cap=30)", bound(softmax, soft_cap=30), causal=True, size=8)
    attention("softmax_soft_cap_2", "softmax(soft_cap=2)", bound(softmax, soft_cap=2), **padded)
    attention("softmax_temperature", "softmax(temperature=learned)", softmax, causal=True, lengths=LENGTHS,
              parameters={"temperature": torch.tensor([0.6, 1.0, 1.9])},
              convention="one t per head stored as it is; scores are divided by it, after the scale")
    attention("softmax_own_excluded", "softmax(own=no)", softmax, causal=True, own=False,
              convention="row 0 sees nothing and reads 0")
    attention("softmax_rotary", "softmax", rotary, D=6, causal=True, lengths=LENGTHS, position="rotary")
    attention("softmax_rotary_cache", "softmax", rotary, D=6, T=4, Tk=9, causal=True, position="rotary")
    attention("softmax_gate", "softmax(gate=silu)", gated(softmax, F.silu), causal=True, Dv=6,
              inputs={"x": lambda B, T, H, D: torch.randn(B, T, 8)}, parameters=lambda: {"gate": torch.randn(18, 8)})
    attention("softmax_qk_layer", "softmax(qk_norm=layer)", qk_norm(softmax, layer_norm), causal=True, parameters=norms,
              epsilon=1e-5)
    attention("softmax_qk_layer_padded", "softmax(qk_norm=layer)", qk_norm(softmax, layer_norm), **padded,
              parameters=norms, epsilon=1e-5)
    attention("softmax_qk_rms", "softmax(qk_norm=rms)", qk_norm(softmax, rms_norm), Hk=3, **padded, parameters=norms,
              epsilon=1e-5)
    # pointwise: every function, every exponent, every meaning of the length
    for name in FUNCTIONS:
        size = 6 if name == "relu6" else 1.4
        attention(f"pointwise_{name}_causal", f"pointwise({name})", pointwise(name), size=size, **packed, **padded)
    for name in ("relu", "softplus", "sigmoid"):
        attention(f"pointwise_{name}_full", f"pointwise({name})", pointwise(name), Hk=3, **padded)
    for alpha, word in ((0, "zero"), (0.5, "half"), (2, "two")):
        attention(f"pointwise_relu_alpha_{word}", f"pointwise(relu, alpha={alpha})", pointwise("relu", alpha=alpha),
                  causal=True, lengths=LENGTHS)
    attention("pointwise_issue_example", "pointwise(relu_squared, alpha=0.5, length=keys_visible)",
              pointwise("relu_squared", alpha=0.5), H=4, Hk=2, **packed, **padded)
    attention("pointwise_row_index", "pointwise(relu, alpha=0.5, length=row_index)",
              pointwise("relu", alpha=0.5, meaning="row_index"), **packed)
    attention("pointwise_row_index_own_excluded", "pointwise(gelu, length=row_index, own=no)",
              pointwise("gelu", meaning="row_index"), own=False, **packed,
              convention="L is still i + 1 within the document: it does not count who is seen")
    attention("pointwise_padded_length", "pointwise(gelu, length=padded_length)",
              pointwise("gelu", meaning="padded_length"), **cross)
    attention("pointwise_padded_length_causal", "pointwise(sigmoid, alpha=0.5, length=padded_length)",
              pointwise("sigmoid", alpha=0.5, meaning="padded_length"), causal=True, **padded)
    attention("pointwise_fixed", "pointwise(softplus, length=fixed(16))", pointwise("softplus", meaning="fixed(16)"),
              **packed)
    attention("pointwise_cross", "pointwise(silu)", pointwise("silu"), Dv=6, H=4, Hk=2, **cross)
    attention("pointwise_cache", "pointwise(relu)", pointwise("relu"), T=4, Tk=9, causal=True)
    for meaning, seeing in (("keys_visible", {**packed, **padded}), ("row_index", packed), ("padded_length", cross),
                            ("fixed(20)", dict(causal=True))):
        attention(f"pointwise_learned_{meaning.split('(')[0]}",
                  f"pointwise(relu, alpha=learned(0.7), length={meaning})", pointwise("relu", meaning=meaning),
                  parameters={"alpha": torch.tensor([0.7])}, **seeing)
    attention("pointwise_gate", "pointwise(relu, gate=silu)", gated(pointwise("relu"), F.silu), Hk=3, **padded,
              inputs={"x": lambda B, T, H, D: torch.randn(B, T, 8)}, parameters=lambda: {"gate": torch.randn(15, 8)})
    gate_sigmoid = gated(pointwise("relu"), torch.sigmoid)
    attention("pointwise_gate_sigmoid", "pointwise(relu, gate=sigmoid)", gate_sigmoid, causal=True,
              inputs={"x": lambda B, T, H, D: torch.randn(B, T, 8)}, parameters=lambda: {"gate": torch.randn(15, 8)})
    attention("pointwise_gate_sigmoid_padded", "pointwise(relu, gate=sigmoid)", gate_sigmoid, **packed, **padded,
              inputs={"x": lambda B, T, H, D: torch.randn(B, T, 8)}, parameters=lambda: {"gate": torch.randn(15, 8)})
    attention("pointwise_qk_layer_padded", "pointwise(relu_squared, qk_norm=layer)",
              qk_norm(pointwise("relu_squared"), layer_norm), **padded, parameters=norms, epsilon=1e-5)
    attention("pointwise_qk_layer", "pointwise(relu_squared, qk_norm=layer)",
              qk_norm(pointwise("relu_squared"), layer_norm), **packed, parameters=norms, epsilon=1e-5)
    attention("naive_relu", "naive(relu)", naive, Hk=3, causal=True, lengths=LENGTHS)
    attention("naive_relu_cross", "naive(relu)", naive, Dv=6, **cross)
    # variance-reduced relu: the parameter is rho = ln gamma, one per head
    rho = {"rho": torch.tensor([math.log(1.7), -0.4, 0.2])}
    note = "rho = ln gamma, one per head; the spec's gamma is the initial value of all of them"
    attention("relu_former_full", "relu_former(gamma=1.7)", relu_former, Hk=3, parameters=rho, convention=note,
              **padded)
    attention("relu_former_causal", "relu_former(gamma=1.7)", relu_former, parameters=rho, convention=note, **packed)
    attention("relu_former_cross", "relu_former(gamma=1.7)", relu_former, parameters=rho, convention=note, **cross)
    attention("relu_former_cache", "relu_former(gamma=1.7)", relu_former, T=4, Tk=9, causal=True, parameters=rho,
              convention=note)
    # row thresholds and ReLA
    for name, rule in (("sparsemax", rows.sparsemax), ("entmax15", rows.entmax15)):
        attention(f"{name}_causal", name, threshold(rule), H=4, Hk=2, **packed, **padded)
        attention(f"{name}_cross", name, threshold(rule), Dv=6, size=3, **cross)
    for axis, axes, shape in (("head", (-1, ), (5, )), ("all_heads", (-2, -1), (3, 5))):
        for gate in (False, True):
            seed(f"{axis}{gate}")
            parameters = {"weight": 1 + 0.5 * torch.randn(shape)}
            if gate:
                parameters["gate"] = torch.randn(shape)
            attention(f"rela_{axis}{'_gate' if gate else ''}", "rela(gated=yes)" if gate else "rela",
                      rela(axes), Hk=1 if gate else 3, parameters=parameters, axis=axis, epsilon=1e-5,
                      **(packed if gate else {}), **padded,
                      convention="axis=head is the project's choice, axis=all_heads the released code's")
    # PyTorch's own attention says the same, and the thresholds are distributions.
    q, k, v = (cases.tensors[f"softmax_causal.{key}"].transpose(1, 2) for key in "qkv")
    own = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
    assert torch.allclose(own, cases.tensors["softmax_causal.y"], atol=1e-12)
    for rule in (rows.sparsemax, rows.entmax15):
        p = rule(3 * torch.randn(4, 9), torch.ones(4, 9, dtype=torch.bool))
        assert torch.allclose(p.sum(-1), torch.ones(4), atol=1e-12) and (p >= 0).all() and (p == 0).any()
    return cases
