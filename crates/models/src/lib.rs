//! Networks built from patchable layers: the FLUX.1 transformer, its conditioning and its sampler.
//!
//! [`FluxModel::load`] reads a checkpoint in diffusers or BFL naming from any weight source;
//! [`sample`] walks its velocity field along [`Sigmas`] from noise to an image's tokens.

mod beside;
mod checkpoint;
mod conditioning;
mod dense;
mod error;
pub mod families;
pub mod flux;
mod nearest;
pub mod pixels;
mod rounding;
mod sampler;
mod schedule;
mod scheduler_config;
mod word_embedding;

pub use beside::{config_beside, scheduler_beside};
pub use checkpoint::TensorShapes;
pub use conditioning::Conditioning;
pub use dense::read_floats;
pub use error::ModelError;
pub use flux::{FluxConfig, FluxConfigFile, FluxInputs, FluxModel, FluxTransformer, PositionIds};
pub use nearest::{did_you_mean, nearest};
pub use rounding::rounded;
pub use sampler::{SampleOptions, sample};
pub use schedule::{Shift, Sigmas};
pub use scheduler_config::SchedulerConfig;
pub use word_embedding::WordEmbedding;
