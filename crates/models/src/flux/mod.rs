//! The FLUX.1 transformer: a rectified-flow network of joint text-image blocks followed by single
//! blocks over both streams, as published by Black Forest Labs and as diffusers stores it.
//!
//! ```text
//! c   = MLP(sin(1000 t)) [+ MLP(sin(1000 g))] + MLP(pooled)          conditioning [b, inner]
//! img = W_img·x,  txt = W_txt·text                                   [b, tokens, inner]
//! double blocks: img, txt = attention over both, own weights each, modulated by c
//! single blocks: one stream [txt, img], attention and MLP in parallel, modulated by c
//! v   = W_out·(LN(img)·(1 + scale(c)) + shift(c))                    [b, tokens, out_channels]
//! ```

mod attention;
mod config;
mod double_block;
mod embedding;
mod gelu;
mod inference;
mod inputs;
mod layers;
mod loader;
mod map;
mod model;
mod modulation;
mod names;
mod naming;
mod observer;
mod projection;
mod rope;
mod single_block;
mod transformer;
mod unit_norm;

pub use config::{FluxConfig, FluxConfigFile};
pub use inputs::{FluxInputs, PositionIds};
pub use model::{FluxLoadOptions, FluxModel};
pub use names::name_table;
pub use naming::Naming;
pub use observer::{BlockKind, BlockOutput};
pub use transformer::FluxTransformer;
