"""Golden losses and row statistics.  Choices:
    cross_entropy            mean over the rows that are not ignored, nats; with smoothing e the target is (1 - e)
                             one-hot + e / K; an ignored row has target -1
    sigmoid_cross_entropy    the sum over classes of softplus(l) - t l, the mean over rows; targets (rows, K), also
                             between 0 and 1
    span_penalty             lambda S times the mean over heads of z', summed over layers; z (layers, H)
    row statistics           (B, T, H): of the weights w as they multiply the values (length factor and gamma
                             included): row_sum; row_entropy, of p = max(w, 0) / sum, 0 for a row without a positive
                             weight; zero_share, the exact zeros among the visible keys; maximum over the visible
                             keys.  A row that sees nothing has 0 for all
    normalization_loss       mean of |ln S| over live rows (t < lengths[b] and S > 0), S = row sum of relu_former,
                             all heads
    entropy_margin_loss      mean of max(H(s / S) - 0.7 ln n, 0) over the rows t < lengths[b], S > 0 or not (such a
                             row gives 0); n as in relu_former.  Where every row is alive the two means are over the
                             same rows
    entropy_regularizer      papers' algorithm: E = mean over batch and rows of the row entropy, one per head; E_max
                             = ln T, under a causal mask ln(T!) / T, which is the most causal rows can have; the mean
                             over heads of (E - theta E_max)^2 where |E - theta E_max| > m E_max, else 0, times
                             lambda; theta and temperature t (s / t) per head
    gradient of dead rows    a row with S = 0 passes nothing back
"""
import math

import torch
import torch.nn.functional as F

import attention_rows as rows
from attentions import DOCUMENTS, FUNCTIONS, LENGTHS, attention
from cases import Cases, seed

cases = Cases("loss", "losses.safetensors")


def relu_sums(q, k, see, rho, kappa=None):
    s = rows.scores(q, k)
    if kappa is not None:
        s = torch.cat([s, rows.scores(q, rows.joined(k[:, :0], rows.slot_keys(kappa, True)))], -1)
        see = rows.with_slots(see, kappa.shape[1])
    return rows.relu_former(s, see, rho), see


def normalization_rows(w):
    total = w.sum(-1)
    return torch.where(total > 0, torch.log(torch.where(total > 0, total, torch.ones(()))).abs(), torch.zeros(()))


def margin_rows(w, see):
    return torch.clamp(rows.entropy(w) - 0.7 * torch.log(see.count()).squeeze(-1), min=0)


def of_rows(which, mean, real=None):
    """The loss per row, or its mean over the rows that count; `real` is 1 where t < lengths[b]."""

    def run(q, k, v, see, rho, kappa=None):
        w, see = relu_sums(q, k, see, rho, kappa)
        each = normalization_rows(w) if which == "normalization" else margin_rows(w, see)
        if not mean:
            return each.permute(0, 2, 1)
        counts = torch.ones_like(each) if real is None else real[:, None, :].expand_as(each)
        if which == "normalization":
            counts = counts * (w.sum(-1) > 0)
        return (each * counts).sum() / counts.sum()

    return run


def statistics(weigh):

    def run(q, k, v, see, rho=None):
        w = weigh(rows.scores(q, k), see, rho)
        seen = see.visible.expand_as(w)
        n = seen.sum(-1)
        top = w.masked_fill(~seen, -math.inf).amax(-1)
        more = {
            "row_sum": w.sum(-1), "zero_share": ((w == 0) & seen).sum(-1) / n.clamp(min=1),
            "maximum": torch.where(n > 0, top, torch.zeros(()))
        }
        return rows.entropy(w).permute(0, 2, 1), {key: x.detach().permute(0, 2, 1) for key, x in more.items()}

    return run


def row_sum(weigh):
    return lambda q, k, v, see, rho=None: weigh(rows.scores(q, k), see, rho).sum(-1).permute(0, 2, 1)


def row_case(name, spec, function, **settings):
    """A case without values: y is per row or a scalar."""
    if "lengths" in settings:
        settings["live"] = (torch.arange(7) < settings["lengths"][:, None]).double()[:, :, None]
    attention(name, spec, function, collection=cases, values=False, **settings)


def regularizer(lam, margin, largest):

    def run(q, k, v, see, theta, temperature):
        w = rows.softmax(rows.scores(q, k) / temperature[None, :, None, None], see.visible)
        return penalty(lam, margin, largest)(rows.entropy(w).mean((0, 2)), theta)

    return run


def penalty(lam, margin, largest):

    def run(entropies, theta):
        distance = entropies - theta * largest
        return lam * torch.where(distance.abs() > margin * largest, distance ** 2, torch.zeros(())).mean()

    return run


def relu_former_losses():
    rho, four = {"rho": torch.tensor([0.3, -0.4, 0.1])}, {"rho": torch.tensor([0.3, -0.4, 0.1, 0.0])}
    packed, padded = dict(causal=True, documents=DOCUMENTS), dict(lengths=LENGTHS)
    real = (torch.arange(7) < LENGTHS[:, None]).double()
    for which in ("normalization", "entropy_margin"):
        key = which.split("_")[0]
        shift = 0.0 if key == "normalization" else 0.7  # many positive scores: high entropies
        formula = "|ln S|" if key == "normalization" else "max(H(s / S) - 0.7 ln n, 0)"
        note = f"per row, (B, T, H): {formula}; 0 and no gradient in a row with S = 0"
        row_case(f"{which}_rows_full", "relu_former", of_rows(key, False), Hk=3, shift=shift, parameters=rho,
                 convention=note, loss=which, **padded)
        row_case(f"{which}_rows_causal", "relu_former", of_rows(key, False), shift=shift, parameters=rho,
                 convention=note, loss=which, **packed)
        row_case(f"{which}_loss", "relu_former", of_rows(key, True), Tk=9, size=1.1, shift=shift, parameters=rho,
                 loss=f"{which}_loss", convention="every row is alive: the mean is over all B T H of them")
        row_case(f"{which}_loss_grouped", "relu_former", of_rows(key, True), Tk=9, H=4, Hk=2, shift=shift,
                 loss=f"{which}_loss", parameters=four, convention="every row is alive")
        row_case(f"{which}_loss_slots", "relu_former(persistent=6)", of_rows(key, True), causal=True, shift=shift,
                 loss=f"{which}_loss", parameters=lambda: {**rho, "kappa": opposite()},
                 convention="S, H and n count the slots; every row is alive")
        mean = "t < lengths[b] with S > 0" if key == "normalization" else "t < lengths[b], dead rows included as 0"
        row_case(f"{which}_loss_dead_rows", "relu_former", of_rows(key, True, real), causal=True, parameters=rho,
                 loss=f"{which}_loss", convention=f"the mean is over {mean}", **padded)
        for name in (f"{which}_loss", f"{which}_loss_grouped", f"{which}_loss_slots"):
            alive(name)


def opposite():
    """Slots that leave no row dead: every query has a positive product with one of each pair."""
    half = torch.randn(1, 3, 5)
    return torch.cat([half, -half], 1)


def alive(name):
    """Asserts what the conventions of the mean cases say."""
    q, k, rho = (cases.tensors[f"{name}.{key}"] for key in ("q", "k", "rho"))
    see = rows.seen(2, q.shape[1], k.shape[1], causal=q.shape[1] == k.shape[1])
    w, _ = relu_sums(q, k, see, rho, cases.tensors.get(f"{name}.kappa"))
    assert (w.sum(-1) > 0).all(), name


def row_statistics():
    packed, padded = dict(causal=True, documents=DOCUMENTS), dict(lengths=LENGTHS)
    weighing = {
        "softmax": ("softmax", lambda s, see, rho: rows.softmax(s, see.visible)),
        "relu": ("pointwise(relu)", lambda s, see, rho: rows.pointwise(FUNCTIONS["relu"], s, see)),
        "identity": ("pointwise(identity)", lambda s, see, rho: rows.pointwise(FUNCTIONS["identity"], s, see)),
        "gelu": ("pointwise(gelu, alpha=0.5)", lambda s, see, rho: rows.pointwise(FUNCTIONS["gelu"], s, see, 0.5)),
        "relu_former": ("relu_former", rows.relu_former)
    }
    for name, (spec, weigh) in weighing.items():
        for mask, seeing in (("full", padded), ("causal", packed)):
            parameters = {"rho": torch.tensor([0.3, -0.4, 0.1])} if name == "relu_former" else None
            if name != "relu_former":
                row_case(f"row_entropy_{name}_{mask}", spec, statistics(weigh), statistic="entropy", **seeing)
            if name != "softmax":
                row_case(f"row_sum_{name}_{mask}", spec, row_sum(weigh), statistic="sum", parameters=parameters,
                         **seeing)


def classification():
    targets = torch.tensor([6, 0, -1, 3, 3, -1])
    for smoothing in (0.0, 0.1):
        seed(f"cross_entropy {smoothing}")
        name, spec = ("smoothed", "cross_entropy(smoothing=0.1)") if smoothing else ("ignored", "cross_entropy")
        cases.add(f"cross_entropy_{name}", spec,
                  lambda logits, targets: F.cross_entropy(logits, targets, ignore_index=-1, label_smoothing=smoothing),
                  {"logits": 3 * torch.randn(6, 7)}, constants={"targets": targets}, smoothing=smoothing, ignored=-1)
    for name, targets in (("labels", torch.eye(7)[[6, 0, 3, 3, 1]]),
                          ("mixed", torch.rand(5, 7, generator=torch.Generator().manual_seed(5)))):
        seed(f"sigmoid_cross_entropy {name}")
        cases.add(f"sigmoid_cross_entropy_{name}", "sigmoid_cross_entropy",
                  lambda logits, targets: (rows.softplus(logits) - targets * logits).sum(-1).mean(),
                  {"logits": 4 * torch.randn(5, 7)}, constants={"targets": targets},
                  convention="targets (rows, classes); `labels` is the one-hot form of 6 0 3 3 1")


def make():
    classification()
    seed("span_penalty")
    cases.add("span_penalty", "span_penalty", lambda z: (0.01 * 16 * z.mean(-1)).sum(), {}, {"z": torch.rand(2, 3)},
              S=16, coefficient=0.01)
    relu_former_losses()
    row_statistics()
    parameters = {"theta": torch.tensor([0.3, 0.62, 0.95]), "temperature": torch.tensor([0.7, 1.3, 1.0])}
    uniform = sum(math.log(i) for i in range(1, 8)) / 7  # the mean row entropy of uniform causal weights, T = 7
    for mask, seeing, largest, ceiling in (("full", {}, math.log(7), "ln T = ln 7"),
                                           ("causal", dict(causal=True), uniform, "ln(T!) / T = ln(7!) / 7")):
        row_case(f"entropy_regularizer_{mask}", "entropy_regularizer", regularizer(0.05, 0.15, largest),
                 parameters=parameters, coefficient=0.05, margin=0.15, largest=largest,
                 convention=f"entropies of softmax(s / t); E_max = {ceiling}", **seeing)
    seed("entropy_penalty")
    theta = {"theta": torch.tensor([[0.3, 0.6, 0.9], [0.9, 0.5, 0.1]])}
    cases.add("entropy_penalty", "entropy_regularizer", penalty(0.05, 0.2, math.log(7)),
              {"entropies": 1.8 * torch.rand(2, 3)}, theta, coefficient=0.05, margin=0.2, largest=math.log(7),
              convention="from entropies (layers, H): the mean over layers and heads")
    return cases
