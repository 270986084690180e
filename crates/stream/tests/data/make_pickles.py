"""Writes the PyTorch files of tests/it/pickle.rs, and beside each what torch itself holds to be in it.

python make_pickles.py            (made with torch 2.15 on a little-endian machine)

<name>: the file; <name>.json: {tensor: [safetensors type, shape, bytes in hex]} of what a loader must find.
"""

import json
from collections import Counter, OrderedDict
from pathlib import Path

import torch

FOLDER = Path(__file__).parent / "pickles"

TAGS = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.uint16: "U16",
    torch.bool: "BOOL",
    torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
}


def numbers(*shape, dtype=torch.float32):
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float32) * 0.5 - 1).reshape(shape).to(dtype)


def views():
    """Offsets, strides, shared storages, shapes without elements and without dimensions."""
    base = numbers(4, 6)
    cube = numbers(2, 3, 4, dtype=torch.bfloat16)
    return OrderedDict(
        base=base,
        tied=base,
        rows=base[1:3],
        columns=base[:, 1:5:2],
        transposed=base.t(),
        permuted=cube.permute(2, 0, 1),
        row_of_one=base[2:3],
        expanded=numbers(3)[:, None].expand(3, 2),
        scalar=torch.tensor(1.5),
        inner_scalar=base[3, 4],
        empty=torch.zeros(0, 7),
    )


def types(*dtypes):
    """A tensor of each type."""
    return OrderedDict((str(dtype), numbers(2, 3, dtype=dtype)) for dtype in dtypes)


def checkpoint():
    """What a trainer writes: the weights beside its own state."""
    layer = torch.nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.copy_(numbers(2, 3))
        layer.bias.copy_(numbers(2))
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return {
        "epoch": 3,
        "step": 2**40,
        "loss": 0.25,
        "done": True,
        "name": "größe",
        "device": torch.device("cpu"),
        "shape": torch.Size([2, 3]),
        "seen": {1, 2},
        "dtype": torch.float16,
        "layout": torch.strided,
        "milestones": Counter([3, 5]),
        "raw": b"bytes",
        "state_dict": layer.state_dict(),
        "optimizer_states": [optimizer.state_dict()],
    }


def nested():
    """Parts by name, one of them of parameters; an entry of a number as its key is no weight."""
    marked = torch.nn.Parameter(numbers(2, 2))
    marked.of_layer = "in"
    return {
        "unet": {"in.weight": torch.nn.Parameter(numbers(2, 2)), "in.marked": marked, "in.scale": 2.0},
        "vae": {"out": {"bias": numbers(3, dtype=torch.float16)}},
        "table": {0: numbers(2)},
        "version": None,
    }


def write(name, value, weights, **options):
    torch.save(value, FOLDER / name, **options)
    expected = {
        key: [TAGS[tensor.dtype], list(tensor.shape), raw(tensor)]
        for key, tensor in weights.items()
    }
    text = json.dumps(expected, indent=1)
    (FOLDER / f"{name}.json").write_text(text + "\n")


def raw(tensor):
    dense = tensor.detach().contiguous().reshape(-1)
    return bytes(dense.view(torch.uint8).tolist()).hex() if dense.numel() else ""


def main():
    FOLDER.mkdir(exist_ok=True)
    legacy = {"_use_new_zipfile_serialization": False}
    old = [dtype for dtype in TAGS if dtype != torch.uint16 and "float8" not in str(dtype)]
    write("views.pt", views(), views())
    write("views_legacy.pth", views(), views(), **legacy)
    write("types.pt", types(*TAGS), types(*TAGS))
    write("types_legacy.pth", types(*old), types(*old), **legacy)
    write("views_protocol4.bin", views(), views(), pickle_protocol=4)
    write("views_legacy_protocol4.bin", views(), views(), pickle_protocol=4, **legacy)
    weights = checkpoint()["state_dict"]
    write("checkpoint.ckpt", checkpoint(), weights)
    write("checkpoint_legacy.ckpt", checkpoint(), weights, **legacy)
    parts = nested()
    weights = {
        "unet.in.weight": parts["unet"]["in.weight"],
        "unet.in.marked": parts["unet"]["in.marked"],
        "vae.out.bias": parts["vae"]["out"]["bias"],
    }
    write("nested.pt", parts, weights)


if __name__ == "__main__":
    main()
