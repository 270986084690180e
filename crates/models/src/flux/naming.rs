//! Which of the two namings a FLUX checkpoint uses, and below which prefix it lies.

use crate::{ModelError, checkpoint::TensorShapes};

/// The naming of a checkpoint's layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// `transformer_blocks.N.attn.to_q`: separate q, k and v.
    Diffusers,
    /// `double_blocks.N.img_attn.qkv`: q, k and v stacked in one layer.
    Bfl,
}

impl Naming {
    /// The naming in words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Diffusers => "diffusers",
            Self::Bfl => "BFL",
        }
    }

    /// The naming and the prefix of the FLUX transformer among these tensors.
    ///
    /// # Errors
    /// [`ModelError::NotFlux`] when there is none, [`ModelError::MixedNaming`] when both are there.
    pub fn detect(tensors: &TensorShapes) -> Result<(Self, &'static str), ModelError> {
        for prefix in PREFIXES {
            let found = |markers: &[&str]| {
                markers
                    .iter()
                    .all(|marker| tensors.contains(&format!("{prefix}{marker}")))
            };
            match (found(&DIFFUSERS_MARKERS), found(&BFL_MARKERS)) {
                (true, false) => return Ok((Self::Diffusers, prefix)),
                (false, true) => return Ok((Self::Bfl, prefix)),
                (true, true) => return Err(mixed(tensors, prefix)),
                (false, false) => {}
            }
        }
        Err(ModelError::NotFlux {
            file: tensors.file().to_owned(),
            expected: [DIFFUSERS_MARKERS[0], BFL_MARKERS[0]],
            num_tensors: tensors.len(),
            first: tensors.names().take(3).map(str::to_owned).collect(),
        })
    }
}

fn mixed(tensors: &TensorShapes, prefix: &str) -> ModelError {
    ModelError::MixedNaming {
        file: tensors.file().to_owned(),
        diffusers: format!("{prefix}{}", DIFFUSERS_MARKERS[0]),
        bfl: format!("{prefix}{}", BFL_MARKERS[0]),
    }
}

/// Where files put the transformer: alone, or inside a whole pipeline.
const PREFIXES: [&str; 2] = ["", "model.diffusion_model."];

/// Tensors that FLUX.1 has in diffusers naming and its relatives do not all have.
const DIFFUSERS_MARKERS: [&str; 3] = [
    "time_text_embed.text_embedder.linear_1.weight",
    "x_embedder.weight",
    "context_embedder.weight",
];

/// The same in BFL naming: Chroma and FLUX.2 have no `vector_in`.
const BFL_MARKERS: [&str; 3] = [
    "vector_in.in_layer.weight",
    "img_in.weight",
    "txt_in.weight",
];
