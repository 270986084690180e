//! Language models that encode prompts (Qwen3 of Anima and Z-Image), in transformers' naming.
//!
//! kohya leaves the leading `model.` out.

use super::{Alias, Family, Layers, Part};

pub(super) const FAMILY: Family = Family {
    name: "language model",
    architecture: "llama",
    part: Part::TextEncoder,
    markers: &[&[
        "model.layers.0.self_attn.q_proj.weight",
        "model.embed_tokens.weight",
    ]],
    open_inputs: &[],
    aliases,
};

fn aliases(layers: &Layers) -> Vec<Alias> {
    let names = |path: &String| {
        let rest = path.strip_prefix("model.")?;
        let names = [
            format!("lora_te.{rest}"),
            format!("lora_te1.{rest}"),
            format!("text_encoder.{path}"),
            format!("text_encoders.qwen3_06b.transformer.{path}"),
            format!("text_encoders.qwen3_4b.transformer.{path}"),
        ];
        Some(names.map(|name| Alias::whole(name, path, layers)))
    };
    layers
        .keys()
        .filter_map(names)
        .flatten()
        .flatten()
        .collect()
}
