"""write(path, tensors, metadata): a safetensors file without the package of that name.  Eight bytes of header length, a
JSON header with type, shape and place of each tensor, then the numbers, little-endian and row by row."""
import json
import struct

import torch

TYPES = {torch.float64: "F64", torch.float32: "F32", torch.int32: "I32"}


def write(path, tensors, metadata=None):
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, tensor in sorted(tensors.items()):
        numbers = tensor.detach().contiguous().numpy().tobytes()
        header[name] = {"dtype": TYPES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(numbers)]}
        data += numbers
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
