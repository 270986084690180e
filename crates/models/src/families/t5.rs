//! T5 encoders. kohya calls FLUX.1's and SD 3's `lora_te3`, `OneTrainer` FLUX.1's `lora_te2`: the layers' names
//! tell it from a CLIP.

use super::{Alias, Family, Layers, Part};

pub(super) const FAMILY: Family = Family {
    name: "T5 encoder",
    architecture: "t5encoder",
    part: Part::TextEncoder,
    markers: &[&["encoder.block.0.layer.0.SelfAttention.q.weight"]],
    open_inputs: &[],
    aliases,
};

fn aliases(layers: &Layers) -> Vec<Alias> {
    let paths = layers.keys().filter(|path| is_own(path));
    paths
        .flat_map(|path| {
            ENCODERS
                .iter()
                .map(move |encoder| (format!("{encoder}.{path}"), path))
        })
        .filter_map(|(name, path)| Alias::whole(name, path, layers))
        .collect()
}

fn is_own(path: &str) -> bool {
    path.starts_with("encoder.") || path == "shared"
}

const ENCODERS: [&str; 7] = [
    "t5",
    "t5xxl",
    "lora_te2",
    "lora_te3",
    "text_encoder_2",
    "text_encoder_3",
    "text_encoders.t5xxl.transformer",
];
