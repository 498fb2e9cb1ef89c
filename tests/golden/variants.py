"""The independent witness: every variant of attention, feed-forward, residual block, normalization, position, loss,
optimizer and vision layer, written from the papers' equations in PyTorch, float64, on one thread of a CPU; autograd
gives every gradient.

    python3 -m pip install torch==2.13.0 numpy
    python3 tests/golden/variants.py            # writes variants.json and the safetensors files that it names
    python3 tests/golden/variants.py --check    # the same, and each gradient against difference quotients

Each family's file states its conventions at its head: attentions.py, attention_spans.py, attention_linear.py,
attention_soft_cap.py (with attention_rows.py), feed_forwards.py, blocks.py, normalizations.py, positions.py, losses.py,
optimizers.py, vision.py.

variants.json: {"torch": version, "cases": [case, ...]}, a case being
    name         unique in the whole index, small letters, digits and _
    family       attention, feed_forward, block, normalization, position, loss, optimizer or vision
    file         the safetensors file in this folder with its tensors
    spec         the text that names the variant
    position     the text of the position setting; absent if none
    convention   what this case had to choose, a sentence; absent if the family's file says it all
    options      sizes, masks and constants that the spec does not hold
    tensors      {"inputs", "parameters", "constants", "outputs"}: lists of names; NAME.x is tensor x of the case
                 NAME.  Inputs and parameters have gradients NAME.dx; constants have none; y is the output that dy
                 arrived at, further outputs have no gradient.  NAME.dy is absent where y is a scalar (it is 1).  All
                 are F64, but I32 lengths, documents and targets
Each safetensors file repeats its part of the index in its metadata, as flat text: NAME.family, NAME.spec,
NAME.position, NAME.convention, NAME.inputs, NAME.parameters, NAME.constants, NAME.outputs, NAME.OPTION; lists are
separated by spaces, truth is yes or no, what is empty is absent."""
import json
import pathlib
import sys

import torch

import cases

cases.CHECK = "--check" in sys.argv

import attention_linear
import attention_soft_cap
import attention_spans
import attentions
import blocks
import feed_forwards
import losses
import normalizations
import optimizers
import positions
import vision
from golden import write

FAMILIES = (attentions, attention_spans, attention_linear, attention_soft_cap, feed_forwards, blocks, normalizations,
            positions, losses, optimizers, vision)


def main():
    folder = pathlib.Path(__file__).parent
    entries = []
    for family in FAMILIES:
        collected = family.make()
        write(folder / collected.file, collected.tensors, collected.metadata())
        entries += collected.entries
        print(f"{collected.file}: {len(collected.entries)} cases, {len(collected.tensors)} tensors", flush=True)
    names = [entry["name"] for entry in entries]
    doubles = {name for name in names if names.count(name) > 1}
    assert not doubles, doubles
    index = ",\n".join(json.dumps(entry) for entry in entries)
    (folder / "variants.json").write_text(f'{{"torch": "{torch.__version__}", "cases": [\n{index}\n]}}\n')
    print(f"variants.json: {len(entries)} cases")


main()
