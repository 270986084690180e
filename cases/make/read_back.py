"""Files written by `overglaze quantize`, read by the peers' own packages, and quantization errors beside theirs.

python read_back.py OVERGLAZE FOLDER [--ggml LIBRARY] [--markdown FILE] [--sheet FILE.png]

`cargo xtask peers` makes the environment (requirements-peers.txt) and runs this. Every format that can be written is; the peer
decodes the file with its own code, and every value has to be the one that `overglaze dequantize` gives: gguf-py for GGML's
blocks, bitsandbytes for NF4, FP4 and int8, sdnq for its integers, PyTorch's cast for fp8. Then the peer packs the same normal
values, where its package can (of GGML's others the library itself, `libggml-base.so` of a build, with --ggml), and the relative
errors (root mean squares) stand side by side.
"""
import argparse
import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

os.environ["SDNQ_USE_TORCH_COMPILE"] = "0"

import bitsandbytes.functional as bnb
import gguf
import numpy
import torch
from PIL import Image
from safetensors.torch import load, save
from sdnq.quantizer import sdnq_quantize_layer_weight

WEIGHTS = {"blocks.0.fc.weight": (512, 3072), "blocks.1.fc.weight": (64, 96), "blocks.2.fc.weight": (6, 512)}


def overglaze(binary, *arguments):
    run = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"overglaze {' '.join(map(str, arguments))}: {run.stderr}")
    return run.stdout


def tensors(path):
    return load(Path(path).read_bytes())


def read_gguf(path):
    reader = gguf.GGUFReader(path)
    shapes = {}
    for name, field in reader.fields.items():
        if name.startswith("comfy.gguf.orig_shape."):
            shapes[name.removeprefix("comfy.gguf.orig_shape.")] = [int(field.parts[i][0]) for i in field.data]
    values = {}
    for tensor in reader.tensors:
        found = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        shape = shapes.get(tensor.name, [int(size) for size in reversed(tensor.shape)])
        values[tensor.name] = torch.from_numpy(found.reshape(shape))
    return values


def read_safetensors(path, encoding):
    stored, values = tensors(path), {}
    for name in WEIGHTS:
        module = name.removesuffix("weight")
        if encoding in ("nf4", "fp4"):
            state = {key.removeprefix(name + "."): value for key, value in stored.items() if key.startswith(name + ".")}
            values[name] = bnb.dequantize_4bit(stored[name], bnb.QuantState.from_dict(state, device="cpu"))
        elif encoding == "llm_int8":
            values[name] = bnb.int8_vectorwise_dequant(stored[name], stored[module + "SCB"])
        elif encoding == "fp8":
            values[name] = stored[name].float() * stored[module + "weight_scale"]
        else:
            # The tensors' shapes and the decoder are what sdnq makes of a weight of the same shape.
            decoder, own = sdnq_quantize_layer_weight(torch.randn(WEIGHTS[name]), layer_class_name="Linear",
                                                      weights_dtype=encoding.removeprefix("sdnq_"))
            parts = {key: stored[module + key] for key, value in own.items() if value is not None}
            for key, value in parts.items():
                assert (value.shape, value.dtype) == (own[key].shape, own[key].dtype), (encoding, name, key, value.shape)
            values[name] = decoder(**parts)
    return values


def packed_by_ggml(library, weight, kind):
    ggml = ctypes.CDLL(library)
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    rows, columns = weight.shape
    block_len, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    packed = numpy.zeros(weight.numel() // block_len * block_bytes, dtype=numpy.uint8)
    values = numpy.ascontiguousarray(weight.numpy())
    pointer = lambda array: ctypes.c_void_p(array.ctypes.data)
    size = ggml.ggml_quantize_chunk(int(kind), pointer(values), pointer(packed), ctypes.c_int64(0), ctypes.c_int64(rows),
                                    ctypes.c_int64(columns), None)
    assert size == packed.size, (kind, size)
    return packed.reshape(rows, -1)


def peers_own(encoding, weight, ggml):
    """What the peer makes of `weight`, decoded; nothing where its package cannot pack."""
    if encoding in ("nf4", "fp4"):
        packed, state = bnb.quantize_4bit(weight, quant_type=encoding, blocksize=64)
        return bnb.dequantize_4bit(packed, state)
    if encoding == "llm_int8":
        packed, scales, _ = bnb.int8_vectorwise_quant(weight.half())
        return bnb.int8_vectorwise_dequant(packed, scales)
    if encoding == "fp8":
        scale = weight.abs().max() / 448
        return (weight / scale).to(torch.float8_e4m3fn).float() * scale
    if encoding.startswith("sdnq_"):
        decoder, own = sdnq_quantize_layer_weight(weight.clone(), layer_class_name="Linear", weights_dtype=encoding.removeprefix("sdnq_"))
        return decoder(**{key: value for key, value in own.items() if value is not None})
    kind = gguf.GGMLQuantizationType[encoding.upper()]
    try:
        packed = packed_by_ggml(ggml, weight, kind) if ggml else gguf.quants.quantize(weight.numpy(), kind)
    except NotImplementedError:
        return None
    return torch.from_numpy(gguf.quants.dequantize(packed, kind))


def error(found, expected):
    return ((found.double() - expected.double()).pow(2).sum() / expected.double().pow(2).sum()).sqrt().item()


def percent(value):
    return "" if value is None else f"{100 * value:.4g} %"


def table(binary, folder, ggml):
    torch.manual_seed(0)
    source = {name: torch.randn(shape) for name, shape in WEIGHTS.items()}
    (folder / "normal.safetensors").write_bytes(save(source))
    largest = source["blocks.0.fc.weight"]
    registry = json.loads(overglaze(binary, "registry", "--json"))
    lines, differing = [], []
    for entry in registry["formats"]:
        for encoding in entry["written_as"]:
            is_gguf = entry["ggml_type"] is not None
            path = folder / f"{encoding}.{'gguf' if is_gguf else 'safetensors'}"
            plain = folder / "plain.safetensors"
            overglaze(binary, "quantize", folder / "normal.safetensors", "--format", encoding, "-o", path)
            overglaze(binary, "dequantize", path, "-o", plain)
            ours = tensors(plain)
            found = read_gguf(path) if is_gguf else read_safetensors(path, encoding)
            for name in WEIGHTS:
                if not torch.equal(found[name].float().reshape(ours[name].shape), ours[name]):
                    difference = (found[name].float() - ours[name]).abs().max().item()
                    differing.append(f"{encoding}: {name} differs by {difference}")
            peer = peers_own(encoding, largest, ggml)
            own = error(ours["blocks.0.fc.weight"], largest)
            theirs = None if peer is None else error(peer.float(), largest)
            bits = 8 * path.stat().st_size / sum(weight.numel() for weight in source.values())
            lines.append(f"| {encoding} | {bits:.2f} | {percent(own)} | {percent(theirs)} |")
    head = ["| written | bits a value, file | error | peer's own |", "|---|---|---|---|"]
    return "\n".join(head + lines) + "\n", differing


def sheet(binary, folder, path):
    """The demo's pictures from every format, one strip below the other."""
    strips = []
    for encoding in ("", "q8_0", "sdnq_int8", "fp8", "q6_k", "q5_k", "q4_k", "nf4", "sdnq_uint4", "q3_k", "q2_k"):
        # The strip's title is the name of the file.
        model = folder / f"{encoding.upper() or 'bf16'}.{'gguf' if encoding.startswith('q') else 'safetensors'}"
        if encoding:
            overglaze(binary, "quantize", "--format", encoding, "-o", model)
        overglaze(binary, "sample", *(["--model", model] if encoding else []), "-o", folder / "strip.png")
        strips.append(Image.open(folder / "strip.png").convert("L"))
    whole = Image.new("L", (max(strip.width for strip in strips), sum(strip.height for strip in strips)), 255)
    top = 0
    for strip in strips:
        whole.paste(strip, (0, top))
        top += strip.height
    whole.save(path, optimize=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("overglaze")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ggml")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--sheet", type=Path)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    text, differing = table(args.overglaze, args.folder, args.ggml)
    print(text)
    if args.markdown:
        args.markdown.write_text(text)
    if args.sheet:
        sheet(args.overglaze, args.folder, args.sheet)
    if differing:
        sys.exit("\n".join(differing))
    print("every value is the peers'")


if __name__ == "__main__":
    main()
