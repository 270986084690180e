#!/usr/bin/env python3
"""Write the cases `sdnq_int`, `sdnq_uint`, `sdnq_float_*` and `sdnq_layers_*`, by sdnq's own code.

    sdnq_extra.py DIR

Each layer of the first is one type of at most 8 bits: every code, then codes and scales drawn from the case's name, in
rows of 20 values and groups of 10, so that rows begin inside of packs. PyTorch's NaN and infinities are left out, and its
types that have no signed zero or no mantissa. The layers of the last are shapes and settings that go together rarely;
`modules_quant_config` says which has which.
"""
import json
import os
import sys
import zlib
from pathlib import Path

os.environ["SDNQ_USE_TORCH_COMPILE"] = "0"
import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from sdnq.common import dtype_dict, sdnq_version  # noqa: E402
from sdnq.dequantizer import dequantize_weight  # noqa: E402
from sdnq.packed_float import float_bits_to_uint_dict  # noqa: E402
from sdnq.packed_int import packed_int_function_dict  # noqa: E402
from sdnq.quantizer import sdnq_quantize_layer_weight  # noqa: E402

D_OUTPUT, D_INPUT, GROUP = 16, 20, 10
AT_ONCE = 20
NOT_READ = {"float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"}
NATIVE_FLOATS = {"float8_e4m3fn": 0x7F, "float8_e5m2": 0x7C}


def sort_of(name):
    kind = dtype_dict[name]
    if not kind["is_integer"]:
        return "float"
    return "uint" if kind["is_unsigned"] else "int"


def packed(name, codes):
    """The stored tensor of codes of one byte each."""
    kind, bits = dtype_dict[name], dtype_dict[name]["num_bits"]
    if bits == 8:
        return codes.view(kind["storage_dtype"])
    pack = packed_int_function_dict[name if kind["is_integer"] else float_bits_to_uint_dict[bits]]["pack"]
    return pack(codes.to(torch.bool) if bits == 1 and kind["is_integer"] else codes)


def layer(name, generator):
    """Stored tensors of a layer of type `name`, and the weight sdnq makes of them."""
    bits, shape = dtype_dict[name]["num_bits"], torch.Size((D_OUTPUT, D_INPUT // GROUP, GROUP))
    codes = torch.randint(0, 1 << bits, shape, generator=generator, dtype=torch.uint8)
    codes.view(-1)[: 1 << bits] = torch.arange(1 << bits, dtype=torch.int32).to(torch.uint8)
    if name in NATIVE_FLOATS:
        codes[(codes & 0x7F) >= NATIVE_FLOATS[name]] = 0
    scales = torch.rand(*shape[:2], 1, generator=generator) * 0.1
    tensors = {"weight": packed(name, codes), "scale": scales}
    if dtype_dict[name]["is_unsigned"]:
        tensors["zero_point"] = torch.randn(*shape[:2], 1, generator=generator)
    value = dequantize_weight(name, **tensors, quantized_weight_shape=shape, result_shape=(D_OUTPUT, D_INPUT), dtype=torch.float32)
    return tensors, value


# Kind of layer, shape of its weight, settings.
LAYERS = {
    "conv2_groups": ("Conv2d", (12, 20, 3, 3), {"weights_dtype": "uint5", "group_size": 10}),
    "conv1_rows": ("Conv1d", (6, 8, 3), {"weights_dtype": "int3", "group_size": -1}),
    "conv1_groups": ("Conv1d", (6, 20, 4), {"weights_dtype": "uint4", "group_size": 10}),
    "conv3_rows": ("Conv3d", (4, 8, 2, 3, 2), {"weights_dtype": "uint4", "group_size": -1}),
    "conv_unpacked_groups": ("Conv2d", (4, 20, 3, 3), {"weights_dtype": "int8", "group_size": 5}),
    "rotated_by_32": ("Linear", (8, 96), {"weights_dtype": "uint4", "group_size": 32, "use_hadamard": True, "hadamard_group_size": 32}),
    "rotated_conv": ("Conv2d", (4, 24, 3, 3), {"weights_dtype": "uint4", "group_size": -1, "use_hadamard": True, "hadamard_group_size": 256}),
    "products": ("Linear", (48, 64), {"weights_dtype": "int8", "group_size": -1, "use_quantized_matmul": True, "use_svd": True, "svd_rank": 4}),
    "products_unsigned": ("Linear", (32, 48), {"weights_dtype": "uint8", "group_size": -1, "use_quantized_matmul": True}),
    "products_one_scale": ("Linear", (32, 48), {"weights_dtype": "int8", "group_size": -2, "use_quantized_matmul": True}),
    "products_square": ("Linear", (32, 32), {"weights_dtype": "uint4", "group_size": 16, "use_quantized_matmul": True, "use_svd": True, "svd_rank": 32}),
    "list_rows": ("Linear", (6, 40), {"weights_dtype": "uint3", "group_size": -1, "use_codebook": True}),
    "list_one": ("Linear", (6, 40), {"weights_dtype": "uint4", "group_size": -2, "use_codebook": True}),
    "list_conv_groups": ("Conv2d", (4, 32, 3, 3), {"weights_dtype": "uint2", "group_size": 8, "use_codebook": True}),
    "list_scales": ("Linear", (8, 64), {"weights_dtype": "uint4", "group_size": 8, "scale_dtype": "uint8", "use_codebook_scale": True}),
    "signed_scales": ("Linear", (8, 64), {"weights_dtype": "uint6", "group_size": 8, "scale_dtype": "int8"}),
    "one_scale": ("Linear", (8, 40), {"weights_dtype": "uint4", "group_size": -2}),
    "group_of_7": ("Linear", (8, 40), {"weights_dtype": "uint7", "group_size": 7}),
}


def quantized(kind, shape, settings, generator):
    """Stored tensors of a layer, and the weight sdnq makes of them."""
    torch.manual_seed(8)
    weight = torch.randn(*shape, generator=generator) * 0.1
    dequantizer, stored = sdnq_quantize_layer_weight(weight, layer_class_name=kind, **settings)
    value = dequantizer(**stored, skip_quantized_matmul=dequantizer.use_quantized_matmul, skip_compile=True)
    stored = {key: tensor for key, tensor in stored.items() if tensor is not None}
    return stored | {"bias": torch.zeros(shape[0])}, value


def part_of(name):
    """The case that a layer is in: files stay small."""
    return "conv" if LAYERS[name][0] != "Linear" else "products" if name.startswith("products") else "matrices"


def of_layers(tensors, layers):
    return {name: tensor for name, tensor in tensors.items() if any(layer in name.split(".") for layer in layers)}


def write(root, case, tensors, config, notes):
    config = {"quant_method": "sdnq", "weights_dtype": "int8"} | config
    metadata = {
        "area": "quant_sdnq", "case": case, "dtype": "f32", "atol": "1e-05", "rtol": "1e-05", "generator": "sdnq_extra.py",
        "peer": json.dumps({"sdnq": sdnq_version}), "quantization_config": json.dumps(config, sort_keys=True),
        "expect": ",".join(sorted(name for name in tensors if name.startswith("out."))), "notes": notes,
    }
    path = Path(root) / "quant_sdnq" / f"{case}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, path, metadata=metadata)
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    text = json.dumps({"__metadata__": dict(sorted(header.pop("__metadata__").items()))} | header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])


def main(root):
    names = [name for name, kind in dtype_dict.items() if kind["num_bits"] <= 8 and name not in NOT_READ]
    # Short names are the same types again.
    names = sorted({id(dtype_dict[name]): name for name in reversed(names)}.values())
    for sort in ("int", "uint", "float"):
        case = f"sdnq_{sort}"
        generator = torch.Generator().manual_seed(zlib.crc32(case.encode()))
        tensors, own = {}, [name for name in names if sort_of(name) == sort]
        for name in own:
            stored, value = layer(name, generator)
            tensors |= {f"param.{name}.{key}": tensor for key, tensor in stored.items()}
            tensors[f"out.dequant.{name}"] = value
        parts = {case: own} if len(own) <= AT_ONCE else {f"{case}_{at // AT_ONCE}": own[at : at + AT_ONCE] for at in range(0, len(own), AT_ONCE)}
        for part, own in parts.items():
            config = {"group_size": GROUP, "modules_dtype_dict": {name: [name] for name in own}}
            write(root, part, of_layers(tensors, own), config, "types of one sort")
    generator, tensors = torch.Generator().manual_seed(zlib.crc32(b"sdnq_layers")), {}
    for name, (kind, shape, settings) in LAYERS.items():
        stored, value = quantized(kind, shape, settings, generator)
        tensors |= {f"param.{name}.{key}": tensor for key, tensor in stored.items()}
        tensors[f"out.dequant.{name}"] = value
    for part in ("conv", "products", "matrices"):
        own = [name for name in LAYERS if part_of(name) == part]
        config = {"modules_quant_config": {name: LAYERS[name][2] for name in own}}
        write(root, f"sdnq_layers_{part}", of_layers(tensors, own), config, "settings that go together rarely")


if __name__ == "__main__":
    main(sys.argv[1])
