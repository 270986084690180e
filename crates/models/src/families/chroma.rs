//! Chroma: FLUX.1 whose modulation comes from one approximator, in its own and diffusers naming.

use super::{
    Alias, Family, Layers, Part, flux,
    rows::{Row, aliases_of},
};

pub(super) const FAMILY: Family = Family {
    name: "Chroma",
    architecture: "flux",
    part: Part::Denoiser,
    markers: &[&["distilled_guidance_layer.in_proj.weight"]],
    open_inputs: flux::OPEN_INPUTS,
    aliases,
};

fn aliases(layers: &Layers) -> Vec<Alias> {
    let mut rows = flux::unmodulated();
    rows.extend([
        Row::same(&["img_in", "x_embedder"]),
        Row::same(&["txt_in", "context_embedder"]),
        Row::same(&["final_layer.linear", "proj_out"]),
        Row::same(&[
            "distilled_guidance_layer.layers.{}.in_layer",
            "distilled_guidance_layer.layers.{}.linear_1",
        ]),
        Row::same(&[
            "distilled_guidance_layer.layers.{}.out_layer",
            "distilled_guidance_layer.layers.{}.linear_2",
        ]),
    ]);
    aliases_of(&rows, layers)
}
