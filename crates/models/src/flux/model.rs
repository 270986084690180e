//! A FLUX transformer with the weights it runs on, loaded from a source.

use std::sync::Arc;

use burn::tensor::Device;
use overglaze_core::{BaseWeights, LoaderConfig};
use overglaze_stream::WeightSource;

use crate::{
    ModelError,
    checkpoint::{Prefixed, TensorShapes},
    flux::{
        FluxConfig, FluxConfigFile, FluxTransformer, Naming, loader::FluxLoader, map::FluxMap,
        names::table,
    },
};

/// How a model is loaded.
#[derive(Clone, Debug)]
pub struct FluxLoadOptions {
    /// The model's `config.json`; without it the geometry is inferred from the tensors.
    pub config: Option<FluxConfigFile>,
    /// Where the layers run and how many bytes their weights may take there.
    pub loader: LoaderConfig,
}

impl FluxLoadOptions {
    /// Everything in place on `device`, geometry from the tensors.
    #[must_use]
    pub fn resident(device: Device) -> Self {
        Self {
            config: None,
            loader: LoaderConfig::resident(device),
        }
    }
}

/// A FLUX transformer and its weights.
#[derive(Clone, Debug)]
pub struct FluxModel {
    /// The network; patches are mounted on it.
    pub transformer: FluxTransformer,
    /// Where its weights come from, how they are streamed and what was moved.
    pub base: BaseWeights,
}

impl FluxModel {
    /// Loads the FLUX.1 transformer in `source`, in diffusers or BFL naming, alone or inside a
    /// pipeline's checkpoint.
    ///
    /// # Errors
    /// [`ModelError::NotFlux`] or [`ModelError::MixedNaming`] when the tensors are not those of one;
    /// the errors of [`FluxConfig::infer`]; [`ModelError::TensorShape`], [`ModelError::Layer`] when
    /// a layer cannot be built.
    pub fn load(
        source: Arc<dyn WeightSource>,
        options: FluxLoadOptions,
    ) -> Result<Self, ModelError> {
        let tensors = TensorShapes::of(source.as_ref());
        let (naming, prefix) = Naming::detect(&tensors)?;
        let tensors = tensors.below(prefix);
        let config = FluxConfig::infer(&tensors, naming, options.config.as_ref())?;
        let map = FluxMap::new(&config);
        let names = table(&map, naming)?;
        let source = Prefixed::below(source, prefix);
        let mut loader = FluxLoader::new(
            source,
            options.loader,
            tensors,
            (naming, config.inner_dim()),
        );
        let parts = loader.parts(&map)?;
        let base = loader.finish()?;
        Ok(Self {
            transformer: FluxTransformer::new(config, names, parts),
            base,
        })
    }
}
