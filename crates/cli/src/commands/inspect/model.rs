//! Which model a file holds.

use std::path::Path;

use overglaze_models::{FluxConfig, ModelError, TensorShapes, config_beside, flux::Naming};
use overglaze_stream::WeightSource;
use serde::Serialize;

use crate::{CliError, exit::sentence};

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
    /// The model in `source`, with the config.json beside `path`.
    pub(super) fn of(path: &Path, source: &dyn WeightSource) -> Result<Option<Self>, CliError> {
        let tensors = TensorShapes::of(source);
        let (naming, prefix) = match Naming::detect(&tensors) {
            Err(ModelError::NotFlux { .. }) => return Ok(None),
            found => found?,
        };
        let file = config_beside(path)?;
        let (config, unknown) =
            match FluxConfig::infer(&tensors.below(prefix), naming, file.as_ref()) {
                Ok(config) => (Some(config), None),
                Err(error) => (None, Some(sentence(&error))),
            };
        Ok(Some(Self {
            family: "FLUX.1 transformer",
            naming: naming.name(),
            config,
            unknown,
        }))
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
