//! Which model a file holds.

use std::path::Path;

use overglaze_models::{
    FluxConfig, FluxConfigFile, ModelError, TensorShapes, config_beside, flux::Naming,
};
use overglaze_stream::WeightSource;
use serde::Serialize;

use crate::exit::sentence;

/// A model of a known family.
#[derive(Serialize)]
pub(super) struct Model {
    family: &'static str,
    naming: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<FluxConfig>,
    /// Why the geometry is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
}

impl Model {
    /// The model in `source`, with the given config.json or the one beside `path`.
    pub(super) fn of(
        path: &Path,
        config: Option<&FluxConfigFile>,
        source: &dyn WeightSource,
    ) -> Option<Self> {
        let tensors = TensorShapes::of(source);
        let (naming, prefix) = match Naming::detect(&tensors) {
            Ok(found) => found,
            Err(ModelError::NotFlux { .. }) => return None,
            Err(error) => return Some(Self::new("mixed", Err(sentence(&error)))),
        };
        let infer = |file: Option<FluxConfigFile>| {
            FluxConfig::infer(&tensors.below(prefix), naming, file.as_ref())
                .map_err(|error| sentence(&error))
        };
        let config = match config {
            Some(config) => Ok(Some(config.clone())),
            None => config_beside(path).map_err(|error| sentence(&error)),
        };
        Some(Self::new(naming.name(), config.and_then(infer)))
    }

    fn new(naming: &'static str, config: Result<FluxConfig, String>) -> Self {
        let (config, unknown) = match config {
            Ok(config) => (Some(config), None),
            Err(why) => (None, Some(why)),
        };
        Self {
            family: "FLUX.1 transformer",
            naming,
            config,
            unknown,
        }
    }

    pub(super) fn text(&self) -> String {
        let what = format!("  {}, {} naming", self.family, self.naming);
        match (&self.config, &self.unknown) {
            (Some(config), _) => format!(
                "{what}: {} double and {} single blocks, width {} ({} heads of {}), {} channels, {}",
                config.num_layers,
                config.num_single_layers,
                config.inner_dim(),
                config.num_attention_heads,
                config.attention_head_dim,
                config.in_channels,
                if config.guidance_embeds {
                    "with guidance embedding"
                } else {
                    "no guidance embedding"
                },
            ),
            (None, why) => format!("{what}: {}", why.as_deref().unwrap_or("geometry unknown")),
        }
    }
}
