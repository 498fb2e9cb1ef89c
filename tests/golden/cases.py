"""Cases: collects the golden cases of one family, runs them in float64 and lets autograd give every gradient.

What add() stores for a case NAME (variants.py describes the files):
    NAME.INPUT      each input, parameter and constant that was passed
    NAME.y          the output; outputs that nobody differentiates (running statistics) under their own names
    NAME.dy         the gradient that arrives, random; absent where y is a scalar: it is 1
    NAME.dINPUT     the gradient of each input and each parameter
Every case draws from its own seed, made of its name, so that a new case changes no other one."""
import zlib

import torch

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)

CHECK = False  # set by variants.py --check: difference quotients against autograd for every case


def seed(name):
    torch.manual_seed(zlib.crc32(name.encode()))


def text(value):
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return " ".join(text(each) for each in value)
    return str(value)


class Cases:

    def __init__(self, family, file):
        self.family, self.file = family, file
        self.tensors, self.entries = {}, []

    def add(self, name, spec, function, inputs, parameters=None, constants=None, position=None, live=None,
            convention="", **options):
        """function(**inputs, **parameters, **constants) gives y, or y and a dictionary of further outputs.  `live`
        (broadcast to y) is 0 where the arriving gradient has to be 0."""
        assert all(entry["name"] != name for entry in self.entries), name
        parameters, constants = parameters or {}, constants or {}
        leaves = {key: x.clone().requires_grad_() for key, x in {**inputs, **parameters}.items()}
        result = function(**leaves, **constants)
        y, more = result if isinstance(result, tuple) else (result, {})
        for key, x in {**leaves, **constants, "y": y, **more}.items():
            assert not x.is_floating_point() or torch.isfinite(x).all(), f"{name}.{key}"
            self.tensors[f"{name}.{key}"] = x.detach() if x.is_floating_point() else x.int()
        if y.requires_grad:
            dy = torch.randn(y.shape) if y.dim() else torch.ones(())
            if live is not None and y.dim():
                dy = dy * live
            y.backward(dy)
            if y.dim():
                self.tensors[f"{name}.dy"] = dy
            for key, x in leaves.items():
                assert x.grad is not None and torch.isfinite(x.grad).all() and x.grad.any(), f"{name}.d{key}"
                self.tensors[f"{name}.d{key}"] = x.grad
            if CHECK:
                self.check(name, function, leaves, constants, dy)
        entry = {"name": name, "family": self.family, "file": self.file, "spec": spec}
        if position:
            entry["position"] = position
        if convention:
            entry["convention"] = convention
        entry["options"] = options
        entry["tensors"] = {
            "inputs": list(inputs), "parameters": list(parameters), "constants": list(constants),
            "outputs": ["y", *more]
        }
        self.entries.append(entry)

    def check(self, name, function, leaves, constants, dy):
        keys = list(leaves)

        def loss(*values):
            result = function(**dict(zip(keys, values)), **constants)
            return ((result[0] if isinstance(result, tuple) else result) * dy).sum()

        values = tuple(x.detach().requires_grad_() for x in leaves.values())
        assert torch.autograd.gradcheck(loss, values, eps=1e-6, atol=1e-7, rtol=1e-6), name

    def metadata(self):
        """The index once more as flat text, for readers of safetensors that do not read JSON."""
        result = {}
        for entry in self.entries:
            lists = {key: value for key, value in entry["tensors"].items() if value}
            plain = {key: entry[key] for key in ("family", "spec", "position", "convention") if key in entry}
            for key, value in {**plain, **lists, **entry["options"]}.items():
                result[f"{entry['name']}.{key}"] = text(value)
        return result
