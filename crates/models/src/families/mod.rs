//! The families of models whose layers have several names, and the layers of any checkpoint by all of them.
//!
//! A family knows the tensors that only its checkpoints have ([`Family::markers`]) and the other names of its
//! layers ([`Family::aliases`]): a pure function of names and shapes. Adding one is a file and its line in
//! [`FAMILIES`]. [`LayerCatalog`] looks for the families in a checkpoint, below whatever prefix they lie.

mod anima;
mod catalog;
mod chroma;
mod clip;
mod flux;
mod flux2;
mod hunyuan_video;
mod krea2;
mod language_model;
mod ltx_video;
mod open_clip;
mod operators;
mod pattern;
mod qwen_image;
mod rows;
mod sd3;
mod t5;
mod unet;
mod wan;
mod z_image;

use std::collections::BTreeMap;

use overglaze_core::Piece;
use overglaze_patches::LayerShape;

pub use catalog::{CatalogLayer, LayerCatalog};
pub(crate) use flux::trainer_aliases;

/// A kind of network and the names of its layers.
#[derive(Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// What GGUF files call it under `general.architecture`; for image models the words of ComfyUI-GGUF.
    pub architecture: &'static str,
    /// What part of a pipeline it is.
    pub part: Part,
    /// Tensors that tell it: one of the lists is wholly there, below one prefix.
    pub markers: &'static [&'static [&'static str]],
    /// The layers whose input comes from the model's caller, so that it may be widened.
    pub open_inputs: &'static [&'static str],
    /// Other names of the layers. Names and layers are below the prefix.
    pub aliases: fn(&Layers) -> Vec<Alias>,
}

/// The part of a pipeline that a network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It predicts noise or velocity; adapters name its layers without a prefix.
    Denoiser,
    /// It encodes prompts; adapters name its layers behind the encoder's name.
    TextEncoder,
}

/// The layers of one network: shape by path.
pub type Layers = BTreeMap<String, LayerShape>;

/// Another name for rows of one or several layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The name.
    pub name: String,
    /// The rows it stands for.
    pub pieces: Vec<Piece>,
}

impl Alias {
    /// Another name for the whole `layer`, when it is one of `layers`.
    #[must_use]
    pub fn whole(name: String, layer: &str, layers: &Layers) -> Option<Self> {
        let rows = layers.get(layer)?.d_output();
        let piece = Piece {
            layer: layer.into(),
            layer_rows: 0..rows,
            target_rows: 0..rows,
        };
        Some(Self {
            name,
            pieces: vec![piece],
        })
    }
}

/// Every family; of a prefix the first that fits counts.
pub const FAMILIES: &[&Family] = &[
    &flux::FAMILY,
    &chroma::FAMILY,
    &flux2::FAMILY,
    &unet::FAMILY,
    &sd3::FAMILY,
    &z_image::FAMILY,
    &qwen_image::FAMILY,
    &wan::FAMILY,
    &krea2::FAMILY,
    &anima::FAMILY,
    &hunyuan_video::FAMILY,
    &ltx_video::FAMILY,
    &clip::FAMILY,
    &open_clip::FAMILY,
    &t5::FAMILY,
    &language_model::FAMILY,
];
