"""Golden softmax attention with a temperature of each head and a soft cap: s -> cap tanh(s / (t cap)).

Sources: soft cap 2408.00118; temperature 2501.03489.  No source has both; attentions.py states the order.
"""
import torch

from attentions import LENGTHS, attention, bound, softmax
from cases import Cases

cases = Cases("attention", "attention_soft_cap.safetensors")


def make():
    learned = dict(parameters={"temperature": torch.tensor([0.6, 1.0, 1.9])}, collection=cases, size=3,
                   convention="the temperature first: s -> cap tanh(s / (t cap))")
    attention("softmax_soft_cap_temperature", "softmax(soft_cap=2, temperature=learned)", bound(softmax, soft_cap=2),
              lengths=LENGTHS, causal=True, **learned)
    attention("softmax_soft_cap_temperature_fixed", "softmax(soft_cap=2, temperature=0.4)",
              lambda q, k, v, see: softmax(q, k, v, see, soft_cap=2, temperature=torch.full((3, ), 0.4)), Hk=3,
              lengths=LENGTHS, collection=cases, convention="the temperature first: s -> cap tanh(s / (t cap))")
    return cases
