"""Lists of layers for the sets whose model has none of its own size: in each model's own names, as small as the
sets' authors made their tests. Run from the repository's root; writes cases/keys/models/*.json."""

import json


def save(name, layers):
    tensors = {f"{path}.weight": shape for path, shape in layers.items()}
    with open(f"cases/keys/models/{name}.json", "w") as file:
        file.write(json.dumps(tensors, separators=(",", ":")) + "\n")


def attention(layers, path, names, shape):
    for name in names:
        layers[f"{path}.{name}"] = shape


def flux_like(width, mlp_in, mlp_out, linear1, blocks):
    layers = {"img_in": [width, width], "txt_in": [width, width], "final_layer.linear": [width, width]}
    for block in range(blocks):
        for stream in ("img", "txt"):
            path = f"double_blocks.{block}.{stream}"
            layers[f"{path}_attn.qkv"] = [3 * width, width]
            layers[f"{path}_attn.proj"] = [width, width]
            layers[f"{path}_mlp.0"] = [mlp_in, width]
            layers[f"{path}_mlp.2"] = [width, mlp_out]
        layers[f"single_blocks.{block}.linear1"] = [linear1, width]
        layers[f"single_blocks.{block}.linear2"] = [width, width + mlp_out]
    return layers


def flux2():
    layers = flux_like(128, 512, 256, 896, 2)
    layers["final_layer.adaLN_modulation.1"] = [256, 128]
    for path in ("time_in", "guidance_in"):
        attention(layers, path, ["in_layer", "out_layer"], [128, 128])
    for stream in ("img", "txt"):
        layers[f"double_stream_modulation_{stream}.lin"] = [768, 128]
    layers["single_stream_modulation.lin"] = [384, 128]
    return layers


def chroma():
    layers = flux_like(96, 384, 384, 672, 2)
    layers["distilled_guidance_layer.in_proj"] = [96, 96]
    for block in range(2):
        attention(layers, f"distilled_guidance_layer.layers.{block}", ["in_layer", "out_layer"], [96, 96])
    return layers


def z_image():
    layers = {"cap_embedder.1": [96, 96]}
    for path in ("layers.0", "layers.1", "noise_refiner.0", "context_refiner.0"):
        layers[f"{path}.attention.qkv"] = [288, 96]
        layers[f"{path}.attention.out"] = [96, 96]
        layers[f"{path}.adaLN_modulation.0"] = [384, 96]
    return layers


def ernie():
    layers = {}
    for block in range(2):
        path = f"layers.{block}"
        attention(layers, f"{path}.self_attention", ["to_q", "to_k", "to_v", "to_out.0"], [96, 96])
        attention(layers, f"{path}.mlp", ["gate_proj", "up_proj"], [256, 96])
        layers[f"{path}.mlp.linear_fc2"] = [96, 256]
    return layers


def anima(width, mlp, context, adapter, modulation):
    """Anima with its language model beside it."""
    layers = {
        "net.x_embedder.proj.1": [width, width],
        "net.final_layer.linear": [width, width],
        "net.llm_adapter.in_proj": [adapter, adapter],
        "net.llm_adapter.out_proj": [adapter, adapter],
    }
    for block in range(2):
        path = f"net.blocks.{block}"
        attention(layers, f"{path}.self_attn", ["q_proj", "k_proj", "v_proj", "output_proj"], [width, width])
        attention(layers, f"{path}.cross_attn", ["q_proj", "output_proj"], [width, width])
        attention(layers, f"{path}.cross_attn", ["k_proj", "v_proj"], [width, context])
        layers[f"{path}.mlp.layer1"] = [mlp, width]
        layers[f"{path}.mlp.layer2"] = [width, mlp]
        for part in ("self_attn", "cross_attn", "mlp"):
            layers[f"{path}.adaln_modulation_{part}.1"] = modulation
        path = f"net.llm_adapter.blocks.{block}"
        attention(layers, f"{path}.self_attn", ["q_proj", "k_proj", "v_proj", "o_proj"], [adapter, adapter])
        layers[f"{path}.mlp.0"] = [4 * adapter, adapter]
        layers[f"{path}.mlp.2"] = [adapter, 4 * adapter]
        path = f"text_encoders.qwen3_06b.transformer.model.layers.{block}"
        attention(layers, f"{path}.self_attn", ["q_proj", "k_proj", "v_proj", "o_proj"], [64, 64])
        attention(layers, f"{path}.mlp", ["gate_proj", "up_proj"], [128, 64])
    layers["text_encoders.qwen3_06b.transformer.model.embed_tokens"] = [256, 64]
    return layers


def krea2():
    """With two layers of a test's own naming, `text_fusion.0`, that no checkpoint has."""
    layers = {"txtfusion.projector": [1, 12]}
    for path in ("blocks.0", "txtfusion.layerwise_blocks.0", "txtfusion.refiner_blocks.0"):
        attention(layers, f"{path}.attn", ["wq", "wk", "wv", "wo", "gate"], [4, 4])
        attention(layers, f"{path}.mlp", ["gate", "up", "down"], [4, 4])
    attention(layers, "text_fusion.0.attn", ["to_q", "to_k"], [4, 4])
    return layers


def qwen_image():
    layers = {}
    for block in range(2):
        path = f"transformer_blocks.{block}"
        names = ["to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"]
        attention(layers, f"{path}.attn", names, [3072, 3072])
        for stream in ("img", "txt"):
            layers[f"{path}.{stream}_mod.1"] = [18432, 3072]
            layers[f"{path}.{stream}_mlp.net.0.proj"] = [12288, 3072]
            layers[f"{path}.{stream}_mlp.net.2"] = [3072, 12288]
    return layers


for name, layers in {
    "flux2_small": flux2(),
    "chroma_small": chroma(),
    "z_image_small": z_image(),
    "ernie_small": ernie(),
    "anima_small": anima(96, 256, 48, 64, [96, 96]),
    "anima_modular_small": anima(32, 64, 16, 16, [4, 32]),
    "krea2_small": krea2(),
    "qwen_image": qwen_image(),
}.items():
    save(name, layers)
