"""The parts that every attention case is put together from: who sees whom, scores, weights, what is read.

Shapes: q (B, T, H, D), k (B, Tk, Hk, D), v (B, Tk, Hk, Dv) give y (B, T, H, Dv); scores and weights are (B, H, T, Tk
+ N) with N persistent slots behind the context.  Conventions, the same for every case:
    heads      query head h reads key head h // (H / Hk)
    lengths    key j is visible if j < lengths[b]; in self-attention the arriving gradient dy is 0 in the rows t >=
               lengths[b], whose y is what the formula gives and means nothing
    documents  key j is visible to row i if their document ids are equal
    causal     j <= i + (Tk - T): the queries are the last T positions of the keys (a cache where Tk > T)
    own=no     the own position is invisible (j < i + Tk - T; in full self-attention j != i)
    distance   x = i + (Tk - T) - j under a causal mask, |i - j| in full self-attention
    n          the visible keys of a row, slots included, at least 1
    masks      a weight that is masked is 0 whatever the function; a row that sees nothing reads 0
    scale      1 / sqrt(D) unless the case names another
"""
import math
from dataclasses import dataclass

import torch


@dataclass
class Seen:
    visible: torch.Tensor  # (B, 1, T, Tk) or with slots (B, 1, T, Tk + N), yes or no
    distance: torch.Tensor  # (T, Tk)
    row_index: torch.Tensor  # (B, 1, T, 1): i + 1 within its document
    keys: int  # Tk, padding included

    def count(self):
        return self.visible.sum(-1, keepdim=True).clamp(min=1).double()


def softplus(x):
    """ln(1 + e^x); PyTorch's own gives x above 20."""
    return torch.logaddexp(x, torch.zeros(()))


def seen(B, T, Tk, causal=False, lengths=None, documents=None, own=True):
    i, j = torch.arange(T)[:, None] + (Tk - T), torch.arange(Tk)[None, :]
    visible = torch.ones(B, 1, T, Tk, dtype=torch.bool)
    same = visible.clone()
    if not causal:
        i = torch.arange(T)[:, None]
    if causal:
        visible = visible & (j <= i)
    if not own:
        visible = visible & (j != i)
    if lengths is not None:
        visible = visible & (j < lengths[:, None, None, None])
    if documents is not None:
        same = (documents[:, :, None] == documents[:, None, :])[:, None]
        visible = visible & same
    row_index = (same & (j <= i)).sum(-1, keepdim=True).double()
    return Seen(visible, i - j if causal else (i - j).abs(), row_index, Tk)


def shared(x, heads):
    """Key or value heads, each repeated for the query heads that read it."""
    return x.repeat_interleave(heads // x.shape[2], dim=2)


def scores(q, k, scale=None):
    return torch.einsum("bthd,bshd->bhts", q, shared(k, q.shape[2])) * (scale or 1 / math.sqrt(q.shape[-1]))


def read(w, v):
    return torch.einsum("bhts,bshd->bthd", w, shared(v, w.shape[1]))


def exponentials(s, visible):
    """e^(s - max) where visible, else 0; a row's factor e^-max cancels in every quotient."""
    top = s.detach().masked_fill(~visible, -math.inf).amax(-1, keepdim=True)
    top = torch.where(torch.isfinite(top), top, torch.zeros(()))
    return torch.where(visible, torch.exp(torch.where(visible, s - top, torch.zeros(()))), torch.zeros(()))


def divided(w):
    total = w.sum(-1, keepdim=True)
    return w / torch.where(total > 0, total, torch.ones(()))


def softmax(s, visible, mask=None):
    """w = m e^s / sum m e^s over the visible keys (5a; m = 1 without a span)."""
    e = exponentials(s, visible if mask is None else visible & (mask.detach() > 0))
    return divided(e if mask is None else e * mask)


def length(see, meaning):
    if meaning == "keys_visible":
        return see.count()
    if meaning == "row_index":
        return see.row_index
    if meaning == "padded_length":
        return torch.tensor(float(see.keys))
    return torch.tensor(float(meaning.removeprefix("fixed(").removesuffix(")")))


def pointwise(F, s, see, alpha=1.0, meaning="keys_visible"):
    """w = L^-alpha F(s), masked afterwards (2.1)."""
    return torch.where(see.visible, F(s) * length(see, meaning) ** (-alpha), torch.zeros(()))


def relu_former(s, see, rho):
    """w = relu(s) / (gamma sqrt(n / 2)), gamma = e^rho per head, a division (1.1)."""
    gamma = torch.exp(rho)[None, :, None, None]
    return torch.where(see.visible, torch.relu(s) / (gamma * torch.sqrt(see.count() / 2)), torch.zeros(()))


def threshold(s, visible, power):
    """The tau of sum max(s - tau, 0)^power = 1 by bisection, only to tell who is above it."""
    with torch.no_grad():
        top = s.masked_fill(~visible, -math.inf).amax(-1, keepdim=True)
        top = torch.where(torch.isfinite(top), top, torch.zeros(()))
        low, high = top - 1, top
        for _ in range(60):
            middle = (low + high) / 2
            over = (torch.where(visible, (s - middle).clamp(min=0), 0.0) ** power).sum(-1, keepdim=True) > 1
            low, high = torch.where(over, middle, low), torch.where(over, high, middle)
        return visible & (s > (low + high) / 2)


def sparsemax(s, visible):
    """p = max(s - tau, 0), sum p = 1: on the support A, tau = (sum_A s - 1) / |A|."""
    support = threshold(s, visible, 1)
    n = support.sum(-1, keepdim=True).clamp(min=1)
    tau = (torch.where(support, s, 0.0).sum(-1, keepdim=True) - 1) / n
    return torch.where(support, s - tau, torch.zeros(()))


def entmax15(s, visible):
    """p = max(s/2 - tau, 0)^2, sum p = 1: on the support A with x = s/2, |A| tau^2 - 2 tau sum x + sum x^2 = 1."""
    x = s / 2
    support = threshold(x, visible, 2)
    n = support.sum(-1, keepdim=True).clamp(min=1)
    inside = torch.where(support, x, torch.zeros(()))
    first, second = inside.sum(-1, keepdim=True), (inside * inside).sum(-1, keepdim=True)
    tau = (first - torch.sqrt(first * first - n * (second - 1))) / n
    return torch.where(support, (x - tau) ** 2, torch.zeros(()))


# Slots (5b): stored kappa (Hk, N, D) and nu (Hk, N, Dv), used as sqrt(D) kappa and sqrt(N) nu, or as they are.
def slot_keys(kappa, scaled):
    return kappa * math.sqrt(kappa.shape[-1]) if scaled else kappa


def slot_values(nu, scaled):
    return nu * math.sqrt(nu.shape[1]) if scaled else nu


def joined(x, slots):
    """Context rows (B, Tk, Hk, D) with the slots (Hk, N, D) behind them."""
    return torch.cat([x, slots.transpose(0, 1)[None].expand(x.shape[0], -1, -1, -1)], 1)


def with_slots(see, count):
    """The same rows, to which `count` slots are visible as well."""
    always = torch.ones(*see.visible.shape[:-1], count, dtype=torch.bool)
    return Seen(torch.cat([see.visible, always], -1), see.distance, see.row_index, see.keys)


def entropy(w):
    """Row entropy of max(w, 0) / sum, nats, 0 ln 0 = 0 (section 0); 0 for a row without a positive weight."""
    p = divided(torch.clamp(w, min=0))
    return -torch.where(p > 0, p * torch.log(torch.where(p > 0, p, torch.ones(()))), torch.zeros(())).sum(-1)
