"""Cases of weight formats that no peer's Python decodes, or that come with no golden file: plain numbers, Q8_1, Q8_K, 8-bit floats.

python quant_extra.py CASES_FOLDER     (Python alone)

The expected values follow the formats' definitions in f64, rounded once to f32: ggml-common.h for Q8_1 and Q8_K, the OCP 8-bit
floating point specification for E4M3 and E5M2. The random numbers are Python's, of a fixed seed.
"""
import json
import random
import struct
import sys
from pathlib import Path

TYPES = {"F32": 4, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1}


def write(path, area, tensors, **meta):
    """tensors: name -> (type, shape, bytes)"""
    header, data = {"__metadata__": {"area": area, "case": path.stem, "dtype": "f32", "atol": "0.0", "rtol": "0.0",
                                     "generator": "quant_extra.py", "peer": "{}", **meta}}, b""
    for name, (kind, shape, raw) in sorted(tensors.items(), key=lambda item: -TYPES[item[1][0]]):
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, sort_keys=True).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def f32(values):
    return struct.pack(f"<{len(values)}f", *values)


def minifloat(byte, exponent_bits, mantissa_bits, bias):
    exponent, mantissa = byte >> mantissa_bits & (1 << exponent_bits) - 1, byte & (1 << mantissa_bits) - 1
    if exponent == 0:
        value = 2.0 ** (1 - bias) * mantissa / 2**mantissa_bits
    else:
        value = 2.0 ** (exponent - bias) * (1 + mantissa / 2**mantissa_bits)
    return -value if byte >> 7 else value


E4M3 = [b for b in range(256) if b & 0x7F != 0x7F]
E5M2 = [b for b in range(256) if b & 0x7F < 0x7C]


def blocks(folder, area, kind, raw, shape, values):
    tensors = {"param.raw": ("U8", [len(raw)], raw), "out.f32": ("F32", shape, f32(values))}
    write(folder / f"{kind}.safetensors", area, tensors, qtype=kind, shape=json.dumps(shape), expect="out.f32")


def main(root):
    rng = random.Random(1)
    gguf, fp8, bnb = root / "quant_gguf", root / "quant_fp8", root / "quant_bnb"
    doubles = [rng.gauss(0, 1) for _ in range(33)] + [2.0**-140, 1.0 + 2.0**-30, -(2.0**100)]
    blocks(gguf, "quant_gguf", "F64", struct.pack("<36d", *doubles), [3, 12], doubles)
    for kind, letter, bits in (("I8", "b", 8), ("I16", "h", 16), ("I32", "i", 32), ("I64", "q", 64)):
        numbers = [rng.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1)) for _ in range(33)] + [0, 1, -1]
        blocks(gguf, "quant_gguf", kind, struct.pack(f"<36{letter}", *numbers), [3, 12], [float(n) for n in numbers])
    raw, values = b"", []
    for _ in range(6):
        d = struct.unpack("<e", struct.pack("<e", rng.gauss(0, 0.02)))[0]
        q = [rng.randrange(-128, 128) for _ in range(32)]
        raw += struct.pack("<ee32b", d, max(-6e4, min(6e4, d * sum(q))), *q)
        values += [d * n for n in q]
    blocks(gguf, "quant_gguf", "Q8_1", raw, [3, 64], values)
    raw, values = b"", []
    for _ in range(6):
        d = struct.unpack("<f", struct.pack("<f", rng.gauss(0, 0.02)))[0]
        q = [rng.randrange(-128, 128) for _ in range(256)]
        raw += struct.pack("<f256b16h", d, *q, *(sum(q[16 * i:16 * i + 16]) for i in range(16)))
        values += [d * n for n in q]
    blocks(gguf, "quant_gguf", "Q8_K", raw, [3, 512], values)
    for kind, patterns, form in (("F8_E4M3", E4M3, (4, 3, 7)), ("F8_E5M2", E5M2, (5, 2, 15))):
        codes = patterns[: len(patterns) // 4 * 4]
        blocks(fp8, "quant_fp8", kind, bytes(codes), [4, len(codes) // 4], [minifloat(b, *form) for b in codes])
        for name, count in (("tensor", 1), ("rows", 4)):
            codes = [rng.choice(patterns) for _ in range(48)]
            scales = [struct.unpack("<f", f32([rng.uniform(0.001, 0.1)]))[0] for _ in range(count)]
            expected = [minifloat(b, *form) * scales[i // 12 % count] for i, b in enumerate(codes)]
            shape = [] if count == 1 else [count, 1]
            key = "param.scale_weight" if count == 1 else "param.weight_scale"
            write(fp8 / f"scaled_bytes_{kind}_{name}.safetensors", "quant_fp8",
                  {"param.weight": (kind, [4, 12], bytes(codes)), key: ("F32", shape, f32(scales)),
                   "out.dequant": ("F32", [4, 12], f32(expected))}, expect="out.dequant")
    codes = [rng.randrange(-127, 128) for _ in range(7 * 33)]
    scales = [struct.unpack("<f", f32([rng.uniform(0.1, 2)]))[0] for _ in range(7)]
    expected = [c * scales[i // 33] / 127 for i, c in enumerate(codes)]
    write(bnb / "llm_int8_7x33.safetensors", "quant_bnb",
          {"param.weight": ("I8", [7, 33], struct.pack("<231b", *codes)), "param.SCB": ("F32", [7], f32(scales)),
           "out.dequant": ("F32", [7, 33], f32(expected))}, expect="out.dequant", rtol="3e-07")


main(Path(sys.argv[1]))
