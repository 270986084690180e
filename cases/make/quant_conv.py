#!/usr/bin/env python3
"""Write the cases of convolutions over packed weights: `quant_conv/`.

    quant_conv.py DIR

Needs numpy, torch, gguf, bitsandbytes and sdnq (requirements-peers.txt). Weights are packed by the peers' packages, Q4_K and
bytes with scales by hand. Here they are decoded in f64 and must agree with what the peer decodes; outputs follow the sum that
defines a convolution, position by position in f64, and must agree with torch's convolution in f64. `out.y` is the layer alone,
`out.y_lora` the layer with the LoRA `patch.0`, whose `down` has the kernel's shape. Blocks of GGML lie in a GGUF file, one a
type, under the name of the geometry: those whose kernel is no whole number of blocks wide as ComfyUI-GGUF's converter writes
them, flattened, with the kernel's shape in `comfy.gguf.orig_shape`.
"""
import itertools
import json
import os
import sys
import zlib
from importlib.metadata import version
from pathlib import Path

os.environ["SDNQ_USE_TORCH_COMPILE"] = "0"
import bitsandbytes.functional as BF  # noqa: E402
import gguf  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from fp8_extra import numbers_of, save  # noqa: E402
from sdnq.packed_int import packed_int_function_dict  # noqa: E402
from sdnq.quantizer import sdnq_quantize_layer_weight  # noqa: E402

RANK, ALPHA, STRENGTH = 2, 3.0, 0.7
# channels in and out, groups, kernel, stride, padding, dilation, extent of the input
GEOMETRIES = {
    "conv1d_padded": (16, 8, 1, (4,), (1,), (2,), (1,), (7,)),
    "conv1d_grouped_dilated": (32, 8, 2, (4,), (1,), (3,), (2,), (9,)),
    "conv1d_depthwise_strided": (32, 64, 32, (4,), (2,), (1,), (1,), (9,)),
    "conv2d_strided": (32, 8, 1, (3, 3), (2, 2), (1, 1), (1, 1), (6, 5)),
    "conv2d_grouped_dilated": (32, 16, 4, (3, 2), (1, 2), (2, 1), (2, 3), (5, 6)),
    "conv2d_depthwise": (32, 32, 32, (3, 3), (1, 1), (1, 1), (1, 1), (4, 5)),
    "conv2d_depthwise_dilated": (16, 16, 16, (4, 4), (1, 1), (3, 3), (2, 2), (5, 4)),
    "conv3d_grouped": (8, 8, 2, (2, 2, 2), (1, 1, 1), (0, 1, 1), (1, 1, 1), (3, 3, 4)),
    "conv3d_dilated_strided": (16, 8, 1, (2, 3, 3), (1, 1, 2), (1, 1, 1), (1, 2, 1), (2, 4, 3)),
    "conv3d_depthwise": (32, 32, 32, (2, 2, 2), (1, 2, 1), (1, 0, 1), (1, 1, 2), (2, 3, 2)),
}


def convolution(x, weight, bias, groups, stride, padding, dilation):
    """y[n, o, p] = bias[o] + sum over the group's channels c and kernel places k of weight[o, c, k] x[n, c, p stride + k dilation]."""
    x = np.pad(x, [(0, 0), (0, 0), *((width, width) for width in padding)])
    kernel = weight.shape[2:]
    extent = [(size - d * (k - 1) - 1) // s + 1 for size, d, k, s in zip(x.shape[2:], dilation, kernel, stride)]
    d_output, d_group = weight.shape[0] // groups, weight.shape[1]
    y = np.zeros((x.shape[0], weight.shape[0], *extent)) + bias.reshape(1, -1, *[1] * len(kernel))
    for output, place, offset in itertools.product(range(weight.shape[0]), np.ndindex(*extent), np.ndindex(*kernel)):
        at = tuple(p * s + k * d for p, s, k, d in zip(place, stride, offset, dilation))
        first = output // d_output * d_group
        y[(slice(None), output, *place)] += x[(slice(None), slice(first, first + d_group), *at)] @ weight[(output, slice(None), *offset)]
    return y


def torch_convolution(x, weight, bias, groups, stride, padding, dilation):
    function = [torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d][len(stride) - 1]
    x, weight, bias = map(torch.from_numpy, (x, weight, bias))
    return function(x, weight, bias, stride, padding, dilation, groups).numpy()


def agreed(geometry, x, weight, bias):
    _, _, groups, _, *rest, _ = geometry
    ours, theirs = (f(x, weight, bias, groups, *rest) for f in (convolution, torch_convolution))
    assert ours.shape == theirs.shape and np.abs(ours - theirs).max() < 1e-12 and np.abs(ours).max() > 0.1
    # Rounded to f32, no row of the output may be nothing but zeros.
    assert (np.abs(ours.astype(np.float32)).reshape(*ours.shape[:2], -1).max(-1) > 0).all()
    return ours


def halves(raw, start):
    return raw[:, start : start + 2].copy().view(np.float16).astype(np.float64)


def q8_0(raw):
    return halves(raw, 0) * raw[:, 2:].view(np.int8)


def q4_0(raw):
    return halves(raw, 0) * (np.concatenate([raw[:, 2:] & 15, raw[:, 2:] >> 4], 1).astype(np.float64) - 8)


def q4_k(raw):
    s, codes = raw[:, 4:16], raw[:, 16:].reshape(-1, 4, 32)
    low, high = s[:, :8] & 63, s[:, 8:12]
    scale = np.concatenate([low[:, :4], high & 15 | s[:, :4] >> 6 << 4], 1).astype(np.float64)
    least = np.concatenate([low[:, 4:], high >> 4 | s[:, 4:8] >> 6 << 4], 1).astype(np.float64)
    codes = np.stack([codes & 15, codes >> 4], 2).reshape(-1, 8, 32)
    return (halves(raw, 0) * scale)[..., None] * codes - (halves(raw, 2) * least)[..., None]


def of_ggml(kind, decode):
    """Blocks, and what they stand for."""
    kind = gguf.GGMLQuantizationType[kind]
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]

    def packed(weight, random):
        num_blocks = weight.size // block
        if kind == gguf.GGMLQuantizationType.Q4_K:
            # gguf packs none: any bytes are a block, with scales that make weights of a usual size.
            raw = random.integers(0, 256, (num_blocks, block_bytes), np.uint8)
            raw[:, :4] = (random.random((num_blocks, 2)) * 2e-4 + 2e-4).astype(np.float16).view(np.uint8)
        else:
            raw = gguf.quants.quantize(weight.reshape(num_blocks, block), kind)
        values = decode(raw).reshape(weight.shape)
        peer = gguf.quants.dequantize(raw, kind).reshape(weight.shape)
        assert np.abs(values - peer).max() < 1e-6 * np.abs(values).max()
        return raw, values

    return packed


def nf4(weight, _):
    packed, state = BF.quantize_4bit(torch.from_numpy(weight), blocksize=64, quant_type="nf4")
    codes = packed.numpy().reshape(-1)
    codes = np.stack([codes >> 4, codes & 15], 1).reshape(-1)
    table, absmax = (tensor.numpy().astype(np.float64) for tensor in (state.code, state.absmax))
    values = (table[codes] * absmax.repeat(64)[: codes.size]).reshape(weight.shape)
    # bitsandbytes' CPU kernel decodes matrices.
    assert np.array_equal(values.astype(np.float32), BF.dequantize_4bit(packed, state).numpy().reshape(weight.shape))
    tensors = {"weight": ("U8", packed.numpy())}
    for key, value in state.as_dict(packed=True).items():
        tensors[f"weight.{key}"] = ("U8" if value.dtype == torch.uint8 else "F32", value.numpy())
    return tensors, values


def scaled(tag, largest, by_row):
    """Eight bits and a scale, of the tensor or of each row, as ComfyUI's files have them."""

    def packed(weight, _):
        numbers, usable = numbers_of(tag)
        rows = weight.reshape(weight.shape[0], -1).astype(np.float64)
        scale = (np.abs(rows).max(1, keepdims=True) if by_row else np.abs(rows).max()) / largest
        scale = np.asarray(scale, np.float32)
        usable = np.array(usable)
        nearest = np.abs((rows / scale.astype(np.float64))[..., None] - numbers[usable]).argmin(-1)
        codes = usable[nearest].astype(np.uint8).reshape(weight.shape)
        values = (numbers[codes].reshape(rows.shape) * scale.astype(np.float64)).reshape(weight.shape)
        peer = torch.from_numpy(codes).view(torch.int8 if tag == "I8" else torch.float8_e4m3fn).double().numpy()
        assert np.array_equal(values, (peer.reshape(rows.shape) * scale.astype(np.float64)).reshape(weight.shape))
        return {"weight": (tag, codes), "weight_scale": ("F32", scale)}, values

    return packed


def sdnq(weight, _):
    """Four bits in groups of 4 channels, whole rows where a group has fewer."""
    group = 4 if weight.shape[1] > 4 else -1
    kind = f"Conv{weight.ndim - 2}d"
    decoder, stored = sdnq_quantize_layer_weight(torch.from_numpy(weight.copy()), layer_class_name=kind, weights_dtype="uint4", group_size=group)
    peer = decoder(**stored, skip_compile=True).double().numpy()
    stored = {key: tensor for key, tensor in stored.items() if tensor is not None}
    shape = torch.Size((*weight.shape[:1], weight.shape[1] // 4, 4, *weight.shape[2:]) if group > 0 else weight.shape)
    codes = packed_int_function_dict["uint4"]["unpack"](stored["weight"], shape)
    values = (codes.double() * stored["scale"].double() + stored["zero_point"].double()).reshape(weight.shape).numpy()
    assert np.abs(values - peer).max() < 1e-6 * np.abs(values).max()
    config = {"quant_method": "sdnq", "weights_dtype": "uint4", "group_size": group}
    tags = {torch.uint8: "U8", torch.float32: "F32"}
    return {key: (tags[tensor.dtype], tensor.contiguous().numpy()) for key, tensor in stored.items()}, values, config


GGML = {"q8_0": of_ggml("Q8_0", q8_0), "q4_0": of_ggml("Q4_0", q4_0), "q4_k": of_ggml("Q4_K", q4_k)}
OTHERS = {"nf4": nf4, "int8_rows": scaled("I8", 127, True), "fp8_scaled": scaled("F8_E4M3", 448, False), "sdnq_uint4": sdnq}
PEERS = {"gguf": GGML, "bitsandbytes": {"nf4"}, "sdnq": {"sdnq_uint4"}, "torch": {*GGML, *OTHERS}}
# Decoded there with one rounding, as here.
EXACT = {"q8_0", "q4_0", "nf4", "int8_rows", "fp8_scaled"}


def case(folder, form, name, add_to_gguf):
    geometry = GEOMETRIES[name]
    d_input, d_output, groups, kernel, stride, padding, dilation, extent = geometry
    random = np.random.default_rng(zlib.crc32(f"{form}_{name}".encode()))
    draw = lambda *shape, scale=1.0: (random.standard_normal(shape) * scale).astype(np.float32)  # noqa: E731
    weight = draw(d_output, d_input // groups, *kernel, scale=0.2)
    x, bias = draw(2 if len(kernel) < 3 else 1, d_input, *extent), draw(d_output)
    up, down = draw(d_output, RANK, *[1] * len(kernel)), draw(RANK, d_input // groups, *kernel, scale=0.2)
    metadata = {}
    if form in GGML:
        raw, values = GGML[form](weight, random)
        add_to_gguf(name, raw, weight.shape, bias)
        tensors, metadata["file"] = {}, f"{form}.gguf"
    else:
        stored, values, *config = OTHERS[form](weight, random)
        tensors = {f"param.{key}": tensor for key, tensor in stored.items()}
        if config:
            metadata["quantization_config"] = json.dumps(config[0], sort_keys=True)
    wide = [array.astype(np.float64) for array in (x, bias, up.reshape(d_output, RANK), down.reshape(RANK, -1))]
    delta = float(np.float32(STRENGTH)) * ALPHA / RANK * (wide[2] @ wide[3]).reshape(weight.shape)
    outputs = {"out.dequant": values, "out.y": agreed(geometry, wide[0], values, wide[1]),
               "out.y_lora": agreed(geometry, wide[0], values + delta, wide[1])}
    tensors |= {"in.x": ("F32", x), "param.bias": ("F32", bias), "patch.0.alpha": ("F32", np.array(ALPHA, np.float32)),
                "patch.0.lora_up.weight": ("F32", up), "patch.0.lora_down.weight": ("F32", down)}
    tensors |= {key: ("F32", value.astype(np.float32)) for key, value in outputs.items()}
    module = {"kind": name.split("_")[0], "in_channels": d_input, "out_channels": d_output, "groups": groups, "kernel_size": kernel,
              "stride": stride, "padding": padding, "dilation": dilation}
    peer = {package: version(package).split("+")[0] for package, forms in PEERS.items() if form in forms}
    metadata |= {"area": "quant_conv", "case": f"{form}_{name}", "dtype": "f32", "generator": "quant_conv.py", "layer": name,
                 "module": json.dumps(module), "patches": json.dumps([{"kind": "lora", "weight": STRENGTH}]), "peer": json.dumps(peer),
                 # Sums of at most 288 products in f32, in any order.
                 "atol": "2e-05", "rtol": "1e-05", "expect": ",".join(outputs)}
    if form in EXACT:
        metadata["expect_exact"] = "out.dequant"
    save(folder / f"{form}_{name}.safetensors", tensors, metadata)


def main(root):
    folder = Path(root) / "quant_conv"
    folder.mkdir(parents=True, exist_ok=True)
    for form in GGML:
        kind = gguf.GGMLQuantizationType[form.upper()]
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        writer = gguf.GGUFWriter(folder / f"{form}.gguf", "sd1")

        def add_to_gguf(name, raw, shape, bias):
            fan_in = int(np.prod(shape[1:]))
            # Q8_0 as converters write it that flatten the kernel only; the others as ComfyUI-GGUF's does.
            if form == "q8_0" and fan_in % block == 0:
                raw = raw.reshape(shape[0], fan_in // block * block_bytes)
            else:
                blocks = 256 // block if raw.shape[0] * block % 256 == 0 else 1
                raw = raw.reshape(-1, blocks * block_bytes)
                writer.add_array(f"comfy.gguf.orig_shape.{name}.weight", list(map(int, shape)))
            writer.add_tensor(f"{name}.weight", raw, raw_dtype=kind)
            writer.add_tensor(f"{name}.bias", bias)

        for name, (d_input, d_output, groups, kernel, *_) in GEOMETRIES.items():
            if d_output * d_input // groups * int(np.prod(kernel)) % block == 0:
                case(folder, form, name, add_to_gguf)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    for form in OTHERS:
        for name in GEOMETRIES:
            case(folder, form, name, None)


if __name__ == "__main__":
    main(sys.argv[1])
