//! Qwen-Image: checkpoints and adapters use diffusers' names alone.

use super::{Alias, Family, Layers, Part};

pub(super) const FAMILY: Family = Family {
    name: "Qwen-Image",
    architecture: "qwen_image",
    part: Part::Denoiser,
    markers: &[&["transformer_blocks.0.img_mod.1.weight"]],
    open_inputs: &[],
    aliases,
};

fn aliases(_: &Layers) -> Vec<Alias> {
    Vec::new()
}
