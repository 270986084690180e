//! FLUX.2 in BFL and diffusers naming: one modulation for all blocks, and single blocks fused in both.

use super::{
    Alias, Family, Layers, Part, flux,
    rows::{Row, aliases_of},
};

pub(super) const FAMILY: Family = Family {
    name: "FLUX.2",
    architecture: "flux",
    part: Part::Denoiser,
    markers: &[
        &["double_stream_modulation_img.lin.weight"],
        &["double_stream_modulation_img.linear.weight"],
    ],
    open_inputs: flux::OPEN_INPUTS,
    aliases,
};

fn aliases(layers: &Layers) -> Vec<Alias> {
    let mut rows = flux::attention();
    rows.extend(flux::norms());
    rows.extend(flux::ends());
    rows.extend(NAMES.iter().map(|names| Row::same(names)));
    aliases_of(&rows, layers)
}

const NAMES: &[[&str; 2]] = &[
    [
        "double_stream_modulation_img.lin",
        "double_stream_modulation_img.linear",
    ],
    [
        "double_stream_modulation_txt.lin",
        "double_stream_modulation_txt.linear",
    ],
    [
        "single_stream_modulation.lin",
        "single_stream_modulation.linear",
    ],
    [
        "time_in.in_layer",
        "time_guidance_embed.timestep_embedder.linear_1",
    ],
    [
        "time_in.out_layer",
        "time_guidance_embed.timestep_embedder.linear_2",
    ],
    [
        "guidance_in.in_layer",
        "time_guidance_embed.guidance_embedder.linear_1",
    ],
    [
        "guidance_in.out_layer",
        "time_guidance_embed.guidance_embedder.linear_2",
    ],
    [
        "double_blocks.{}.img_mlp.0",
        "transformer_blocks.{}.ff.linear_in",
    ],
    [
        "double_blocks.{}.img_mlp.2",
        "transformer_blocks.{}.ff.linear_out",
    ],
    [
        "double_blocks.{}.txt_mlp.0",
        "transformer_blocks.{}.ff_context.linear_in",
    ],
    [
        "double_blocks.{}.txt_mlp.2",
        "transformer_blocks.{}.ff_context.linear_out",
    ],
    [
        "single_blocks.{}.linear1",
        "single_transformer_blocks.{}.attn.to_qkv_mlp_proj",
    ],
    [
        "single_blocks.{}.linear2",
        "single_transformer_blocks.{}.attn.to_out",
    ],
];
