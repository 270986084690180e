"""Cases of area `quant_bnb` that `gen_quant.py` does not draw: other block sizes, odd widths, 8-bit rows of odd width.

    python cases/make/quant_bnb_extra.py cases/quant_bnb

Needs torch, bitsandbytes and safetensors (see requirements-reference.txt). `out.dequant` is what bitsandbytes'
`dequantize_4bit` gives on a CPU; it is checked here against code times absmax of the flattened block, since its CPU
kernel takes a row's first absmax for all of a row that is shorter than a block. Where the two differ, the latter is
`out.dequant` and bitsandbytes' own is `other.dequant`.
"""
import json
import sys
from pathlib import Path

import bitsandbytes as bnb
import bitsandbytes.functional as BF
import torch
from safetensors.torch import save_file

SEED = 20
TOLERANCE = {"float32": ("f32", "1e-05", "1e-05"), "bfloat16": ("bf16", "0.03", "0.016")}
# [name, shape, block size, nested, dtype]
FOUR_BIT = [
    ("nf4", (24, 40), 32, False, torch.float32),
    ("nf4", (7, 33), 64, True, torch.float32),
    ("nf4", (9, 150), 256, False, torch.float32),
    ("fp4", (9, 150), 256, True, torch.float32),
    ("fp4", (40, 96), 1024, False, torch.bfloat16),
    ("nf4", (40, 96), 1024, True, torch.float32),
    ("nf4", (70, 128), 4096, True, torch.bfloat16),
    ("fp4", (70, 128), 4096, False, torch.float32),
    # More than 256 blocks, so that the absolute maxima are of several blocks themselves.
    ("nf4", (66, 300), 64, True, torch.bfloat16),
]


def normal(*shape, scale=1.0, dtype=torch.float32):
    return (torch.randn(*shape) * scale).to(dtype)


def flattened_dequant(packed, state):
    """code · absmax of the block, in f32, then rounded to the state's type."""
    absmax = state.absmax
    if state.nested:
        absmax = BF.dequantize_blockwise(state.absmax, state.state2) + state.offset
    packed = packed.reshape(-1)
    codes = torch.stack([packed >> 4, packed & 15], 1).reshape(-1)[: state.shape.numel()]
    blocks = torch.arange(codes.numel()) // state.blocksize
    return (state.code[codes.long()] * absmax[blocks]).reshape(state.shape).to(state.dtype)


def save(folder, case, tensors, **metadata):
    metadata = {"case": case, "area": "quant_bnb", "generator": "quant_bnb_extra.py", **metadata}
    metadata["peer"] = json.dumps({"bitsandbytes": bnb.__version__, "torch": torch.__version__.split("+")[0]})
    path = folder / f"{case}.safetensors"
    save_file({k: v.contiguous() for k, v in tensors.items()}, path, metadata=metadata)
    # safetensors writes metadata in any order: sorted, the same values are the same bytes.
    raw = path.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8:end])
    head = json.dumps({"__metadata__": dict(sorted(head.pop("__metadata__").items()))} | head, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(len(head).to_bytes(8, "little") + head + raw[end:])


def four_bit(folder, quant_type, shape, blocksize, nested, dtype):
    torch.manual_seed(SEED)
    w, x, b = normal(*shape, scale=0.2, dtype=dtype), normal(3, shape[1], dtype=dtype), normal(shape[0], dtype=dtype)
    packed, state = BF.quantize_4bit(w, blocksize=blocksize, compress_statistics=nested, quant_type=quant_type)
    peer, dequant = BF.dequantize_4bit(packed, state), flattened_dequant(packed, state)
    tensors = {"in.w": w, "in.x": x, "param.weight": packed, "param.bias": b, "out.dequant": dequant}
    tensors |= {f"param.weight.{key}": value for key, value in state.as_dict(packed=True).items()}
    if not torch.equal(peer, dequant):
        assert shape[1] < blocksize, "bitsandbytes differs where rows are no shorter than blocks"
        tensors["other.dequant"] = peer
    tensors["out.y_of_dequant"] = torch.nn.functional.linear(x, dequant, b)
    name, atol, rtol = TOLERANCE[str(dtype).removeprefix("torch.")]
    case = f"{quant_type}_{shape[0]}x{shape[1]}_bs{blocksize}_{'nested' if nested else 'plain'}_{name}"
    save(folder, case, tensors, dtype=name, atol=atol, rtol=rtol, shape=json.dumps(shape), quant_type=quant_type, blocksize=str(blocksize),
         nested=json.dumps(nested), expect="out.dequant,out.y_of_dequant", expect_exact="out.dequant",
         notes="out.dequant is code times absmax of the flattened block; other.dequant, where present, is the peer's")
    print(case, "other.dequant" in tensors)


def int8(folder, shape, threshold):
    torch.manual_seed(SEED)
    w, x, b = normal(*shape, scale=0.2), normal(4, shape[1]), normal(shape[0])
    w[1] = 0
    x[:, [2, 30]] *= 20
    x, b = x.half(), b.half()
    layer = bnb.nn.Linear8bitLt(shape[1], shape[0], bias=True, has_fp16_weights=False, threshold=threshold)
    q, scale, _ = BF.int8_vectorwise_quant(w.half())
    layer.weight = bnb.nn.Int8Params(q, requires_grad=False, has_fp16_weights=False, CB=q, SCB=scale)
    layer.bias = torch.nn.Parameter(b.clone(), requires_grad=False)
    layer = layer.eval()
    layer.state.CB, layer.state.SCB = q, scale
    state = {f"param.{key}": value for key, value in layer.state_dict().items()}
    dequant = BF.int8_vectorwise_dequant(q, scale)
    tensors = {"in.w": w, "in.x": x, **state, "out.dequant": dequant, "out.y": layer(x)}
    tensors["out.y_of_dequant"] = torch.nn.functional.linear(x.float(), dequant, b.float())
    case = f"int8_{shape[0]}x{shape[1]}_thr{threshold:g}_f16"
    save(folder, case, tensors, dtype="f16", atol="0.004", rtol="0.002", shape=json.dumps(shape), threshold=str(threshold), expect="out.dequant",
         notes="activations are quantized too (row-wise absmax int8), columns with |x|>=threshold run in 16 bit")


if __name__ == "__main__":
    out = Path(sys.argv[1])
    for arguments in FOUR_BIT:
        four_bit(out, *arguments)
    for threshold in (0.0, 6.0):
        int8(out, (7, 77), threshold)
