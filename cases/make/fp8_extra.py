#!/usr/bin/env python3
"""Write the cases of scaled bytes: `scaled_f8_e4m3`, `scaled_f8_e5m2`, `scaled_int8`.

    fp8_extra.py DIR

The weights were made by no library: bytes are every pattern but NaN and infinity, in another order on each row, and what
they stand for follows from the formula of the type, in numpy's f64 and rounded to f32 once. Names and shapes of scales are
those of ComfyUI's files: `old.*` has one scale under its older name, `new.*` one under its newer and says what it is, and
`rows.*` has one a row.
"""
import json
import struct
import sys
from pathlib import Path

import numpy as np

FLOATS = {"F8_E4M3": (4, 3, 7, 0x7F, "float8_e4m3fn"), "F8_E5M2": (5, 2, 15, 0x7C, "float8_e5m2")}


def value_of(pattern, exponent_bits, mantissa_bits, bias):
    sign = -1.0 if pattern & 0x80 else 1.0
    exponent = pattern >> mantissa_bits & ((1 << exponent_bits) - 1)
    mantissa = (pattern & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    return sign * 2.0 ** (exponent - bias) * (1.0 + mantissa) if exponent else sign * 2.0 ** (1 - bias) * mantissa


def numbers_of(tag):
    """What each of the 256 bytes stands for, and which bytes are finite numbers."""
    if tag == "I8":
        return np.arange(256, dtype=np.uint8).view(np.int8).astype(np.float64), list(range(256))
    *form, first_special, _ = FLOATS[tag]
    return np.array([value_of(byte, *form) for byte in range(256)]), [byte for byte in range(256) if byte & 0x7F < first_special]


def save(path, tensors, metadata):
    header, data = {"__metadata__": dict(sorted(metadata.items()))}, b""
    for name, (tag, array) in sorted(tensors.items(), key=lambda item: (-item[1][1].itemsize, item[0])):
        raw = array.tobytes()
        header[name] = {"dtype": tag, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main(root):
    folder = Path(root) / "quant_fp8"
    folder.mkdir(parents=True, exist_ok=True)
    for tag, case in (("F8_E4M3", "f8_e4m3"), ("F8_E5M2", "f8_e5m2"), ("I8", "int8")):
        random = np.random.default_rng(8)
        numbers, finite = numbers_of(tag)
        # Rows of odd length that hold every byte.
        rows = np.array([random.permutation(finite + finite[:1]) for _ in range(5)]).astype(np.uint8)[:, : len(finite) // 2 * 2 + 1]
        base = {"area": "quant_fp8", "dtype": "f32", "generator": "fp8_extra.py", "peer": "{}"}
        tensors, scale = {}, np.float32(0.0123)
        row_scales = (random.random(5) * 0.1).astype(np.float32)
        described = np.frombuffer(json.dumps({"format": FLOATS[tag][4] if tag != "I8" else "int8_tensorwise"}).encode(), np.uint8)
        for layer, name, scales in (("old", "scale_weight", np.array([scale])), ("new", "weight_scale", np.array(scale)), ("rows", "weight_scale", row_scales[:, None])):
            tensors[f"param.{layer}.weight"], tensors[f"param.{layer}.{name}"] = (tag, rows), ("F32", scales)
            tensors[f"out.dequant.{layer}"] = ("F32", (numbers[rows] * scales.astype(np.float64)).astype(np.float32))
        tensors["param.new.comfy_quant"] = ("U8", described)
        tensors["param.new.input_scale"] = ("F32", np.array(np.float32(0.5)))
        tensors["param.old.scale_input"] = ("F32", np.array([np.float32(0.5)]))
        expect = ",".join(sorted(name for name in tensors if name.startswith("out.")))
        save(folder / f"scaled_{case}.safetensors", tensors,
             base | {"case": f"scaled_{case}", "atol": "0.0", "rtol": "0.0", "expect": expect, "expect_exact": expect})


if __name__ == "__main__":
    main(sys.argv[1])
