#!/usr/bin/env python3
"""Mark, in every generated case, which outputs are ours: the metadata `expect` and `expect_merged`.

    expect.py DIR

The generator records everything the peers computed; this says what Overglaze must give. It covers the
areas of this folder (layers, patches with LoRA rows, quant_gguf, flux) and needs only the standard library.
Headers are written with sorted metadata, so that equal values give equal bytes.
"""
import json
import sys
from pathlib import Path


def expectations(area, names):
    """The metadata that says which of the tensors `names` are expected."""
    outputs = sorted(name for name in names if name.startswith("out."))
    if area == "patches":
        forward = "out.sidecar.y" if "out.sidecar.y" in outputs else "out.direct.y"
        merged = [name for name in outputs if name.startswith("out.direct.param.")]
        return {"expect": forward} | ({"expect_merged": ",".join(merged)} if merged else {})
    wanted = {
        "layers": lambda name: name == "out.y",
        "quant_gguf": lambda name: name == "out.f32",
        # `out.sample_…` are other peers and other dtypes, kept for comparison.
        "flux": lambda name: name == "out.sample" or name.startswith(("out.double_", "out.single_")),
    }[area]
    return {"expect": ",".join(filter(wanted, outputs))}


def mark(path):
    """Rewrites the header of the case at `path`; files without an area are data and stay as they are."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    if metadata.get("area") not in {"layers", "patches", "quant_gguf", "flux"}:
        return
    kept = {key: value for key, value in metadata.items() if not key.startswith("expect")}
    metadata = dict(sorted((kept | expectations(metadata["area"], header)).items()))
    text = json.dumps({"__metadata__": metadata} | header, separators=(",", ":"), ensure_ascii=False)
    encoded = text.encode()
    encoded += b" " * (-len(encoded) % 8)
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + raw[8 + length :])


if __name__ == "__main__":
    for case in sorted(Path(sys.argv[1]).rglob("*.safetensors")):
        mark(case)
