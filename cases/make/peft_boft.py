#!/usr/bin/env python3
"""Write the cases of PEFT's butterfly factors: `peft_boft` (linear layers) and `peft_boft_conv`.

    peft_boft.py DIR

PEFT's forward pass of more than one factor needs a CUDA kernel, so these two cases were not run: they follow
`tuners/boft/layer.py` of PEFT 0.14.0 step by step, with its permutation matrices, in Python's own f64. Only the
standard library is needed.
"""
import json
import random
import struct
import sys
from array import array
from pathlib import Path


def zeros(rows, columns):
    return [[0.0] * columns for _ in range(rows)]


def product(a, b):
    columns = list(zip(*b))
    return [[sum(x * y for x, y in zip(row, column)) for column in columns] for row in a]


def transposed(a):
    return [list(row) for row in zip(*a)]


def inverse(a):
    """By Gauss and Jordan, with pivots."""
    size = len(a)
    rows = [list(row) + [float(i == j) for j in range(size)] for i, row in enumerate(a)]
    for i in range(size):
        pivot = max(range(i, size), key=lambda row: abs(rows[row][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for j in range(size):
            if j != i:
                rows[j] = [x - rows[j][i] * y for x, y in zip(rows[j], rows[i])]
    return [row[size:] for row in rows]


def permutation(side, num_blocks, size, factor, num_factors):
    """Row i of the permutation matrix has its 1 in column `permutation[i]`."""
    if num_factors == 1:
        return list(range(side))
    group, run = side // (num_blocks >> factor), size // 2
    runs = list(range(group // run))
    order = [run * at + offset for at in runs[0::2] + runs[1::2] for offset in range(run)]
    return [start + place for start in range(0, side, group) for place in order]


def rotation(blocks, shape):
    """`M_m ... M_1`, where `M_i = P_i R_i P_i^T`."""
    num_factors, num_blocks, size, _ = shape
    side = num_blocks * size
    whole = [[float(i == j) for j in range(side)] for i in range(side)]
    for factor in range(num_factors):
        diagonal = zeros(side, side)
        for block in range(num_blocks):
            first = (factor * num_blocks + block) * size * size
            b = [blocks[first + row * size :][:size] for row in range(size)]
            q = [[(b[i][j] - b[j][i]) / 2 for j in range(size)] for i in range(size)]
            minus = [[float(i == j) - q[i][j] for j in range(size)] for i in range(size)]
            plus = [[float(i == j) + q[i][j] for j in range(size)] for i in range(size)]
            start = block * size
            for i, row in enumerate(product(minus, inverse(plus))):
                diagonal[start + i][start : start + size] = row
        order = permutation(side, num_blocks, size, factor, num_factors)
        whole = product([[diagonal[i][j] for j in order] for i in order], whole)
    return whole


def permutations(shape):
    num_factors, num_blocks, size, _ = shape
    side = num_blocks * size
    values = []
    for factor in range(num_factors):
        for column in permutation(side, num_blocks, size, factor, num_factors):
            values += [float(place == column) for place in range(side)]
    return values


class Case:
    """Tensors of f32, drawn from the case's name."""

    def __init__(self, name):
        self.random = random.Random(name)
        self.tensors = {}

    def draw(self, name, shape, mean=0.0, spread=1.0):
        count = 1
        for size in shape:
            count *= size
        values = array("f", (self.random.gauss(mean, spread) for _ in range(count)))
        return self.put(name, shape, values)

    def put(self, name, shape, values):
        self.tensors[name] = (list(shape), array("f", values))
        return list(self.tensors[name][1])

    def write(self, path, metadata):
        header, body = {"__metadata__": metadata}, b""
        for name, (shape, values) in sorted(self.tensors.items()):
            data = values.tobytes()
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
            body += data
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def metadata(name, layers, targets):
    config = {
        "peft_type": "BOFT",
        "boft_block_size": 6,
        "boft_block_num": 0,
        "boft_n_butterfly_factor": 2,
        "bias": "none",
        "target_modules": targets,
        "modules_to_save": None,
    }
    return {
        "area": "adapters",
        "case": name,
        "dtype": "f32",
        "atol": "2e-5",
        "rtol": "2e-5",
        "expect": "out.strength_1.y",
        "module": json.dumps({"kind": "sequence", "layers": layers}),
        "adapter_config": json.dumps(config),
        "notes": "not run: the steps of PEFT 0.14.0 in f64, by cases/make/peft_boft.py",
        "peer": json.dumps({}),
    }


def rows_of(values, columns):
    return [values[start : start + columns] for start in range(0, len(values), columns)]


def linear():
    case = Case("peft_boft")
    hidden = rows_of(case.draw("in.x", [5, 36]), 36)
    layers = []
    for path, shape, blocks in [("fc1", [24, 36], [2, 6, 6, 6]), ("fc2", [24, 24], [3, 12, 2, 2])]:
        weight = rows_of(case.draw(f"param.{path}.weight", shape, spread=0.2), shape[1])
        bias = case.draw(f"param.{path}.bias", shape[:1], spread=0.2)
        key = f"adapter.base_model.model.{path}"
        turn = rotation(case.draw(f"{key}.boft_R", blocks, spread=0.3), blocks)
        scale = case.draw(f"{key}.boft_s", [shape[0], 1], mean=1.0, spread=0.1)
        case.put(f"{key}.boft_P", [blocks[0], shape[1], shape[1]], permutations(blocks))
        rotated = transposed(product(turn, transposed(weight)))
        changed = [[factor * value for value in row] for factor, row in zip(scale, rotated)]
        hidden = [[sum(x * w for x, w in zip(row, out)) + b for out, b in zip(changed, bias)] for row in hidden]
        layers.append({"path": path, "kind": "linear", "in_features": shape[1], "out_features": shape[0]})
    case.put("out.strength_1.y", [5, 24], [value for row in hidden for value in row])
    return case, metadata("peft_boft", layers, ["fc1", "fc2"])


def conv():
    case = Case("peft_boft_conv")
    side, d_input, d_output, taps = 5, 4, 6, 9
    image = case.draw("in.x", [1, d_input, side, side])
    weight = case.draw("param.conv.weight", [d_output, d_input, 3, 3], spread=0.2)
    bias = case.draw("param.conv.bias", [d_output], spread=0.2)
    blocks = [2, 6, 6, 6]
    key = "adapter.base_model.model.conv"
    turn = rotation(case.draw(f"{key}.boft_R", blocks, spread=0.3), blocks)
    scale = case.draw(f"{key}.boft_s", [1, d_output], mean=1.0, spread=0.1)
    # PEFT views the weight's memory as [fan_in, d_output]; it does not transpose.
    rotated = product(turn, rows_of(weight, d_output))
    changed = [factor * value for row in rotated for factor, value in zip(scale, row)]
    output = []
    for out in range(d_output):
        for y in range(side):
            for x in range(side):
                total = bias[out]
                for channel in range(d_input):
                    for tap in range(taps):
                        row, column = y + tap // 3 - 1, x + tap % 3 - 1
                        if 0 <= row < side and 0 <= column < side:
                            pixel = image[(channel * side + row) * side + column]
                            total += pixel * changed[(out * d_input + channel) * taps + tap]
                output.append(total)
    case.put("out.strength_1.y", [1, d_output, side, side], output)
    layer = {"path": "conv", "kind": "conv2d", "padding": [1, 1], "kernel_size": [3, 3]}
    return case, metadata("peft_boft_conv", [layer], ["conv"])


if __name__ == "__main__":
    for made, described in (linear(), conv()):
        made.write(Path(sys.argv[1]) / f"{described['case']}.safetensors", described)
