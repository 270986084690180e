//! The geometry of a FLUX transformer, as diffusers' `config.json` writes it.
//!
//! [`FluxConfigFile`] is the document, where every field may be absent; [`FluxConfig`] is what a
//! model is built from: every field known, checked against each other.

use serde::{Deserialize, Serialize};

use crate::ModelError;

/// diffusers' `config.json` of a FLUX transformer; absent fields are taken from the tensors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FluxConfigFile {
    /// Name of the network; only `FluxTransformer2DModel` is one of ours.
    #[serde(rename = "_class_name", skip_serializing_if = "Option::is_none")]
    pub class_name: Option<String>,
    /// Edge of the patches that the transformer itself cuts; only 1 exists.
    pub patch_size: Option<usize>,
    /// Channels of an input token.
    pub in_channels: Option<usize>,
    /// Channels of an output token.
    pub out_channels: Option<usize>,
    /// Number of double blocks.
    pub num_layers: Option<usize>,
    /// Number of single blocks.
    pub num_single_layers: Option<usize>,
    /// Width of one attention head.
    pub attention_head_dim: Option<usize>,
    /// Number of attention heads.
    pub num_attention_heads: Option<usize>,
    /// Width of the text encoder's sequence.
    pub joint_attention_dim: Option<usize>,
    /// Width of the pooled text projection.
    pub pooled_projection_dim: Option<usize>,
    /// Whether guidance is embedded.
    pub guidance_embeds: Option<bool>,
    /// Widths of the rotary axes.
    pub axes_dims_rope: Option<Vec<usize>>,
}

impl FluxConfigFile {
    /// Reads the document.
    ///
    /// # Errors
    /// [`ModelError::Json`] when it is not JSON of this form, [`ModelError::NotThisNetwork`] or
    /// [`ModelError::InvalidConfig`] when it is of another network.
    pub fn from_json(json: &[u8]) -> Result<Self, ModelError> {
        let file: Self = serde_json::from_slice(json).map_err(|source| ModelError::Json {
            document: "the model's config.json".to_owned(),
            source,
        })?;
        file.check_network()?;
        Ok(file)
    }

    /// Refuses the documents of other networks.
    pub(crate) fn check_network(&self) -> Result<(), ModelError> {
        if let Some(name) = self.class_name.as_ref().filter(|name| *name != CLASS_NAME) {
            return Err(ModelError::NotThisNetwork {
                found: name.clone(),
                expected: CLASS_NAME,
            });
        }
        if let Some(size) = self.patch_size.filter(|size| *size != 1) {
            return Err(invalid("patch_size", &size, "1"));
        }
        Ok(())
    }
}

/// The geometry of a FLUX transformer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FluxConfig {
    /// Channels of an input token.
    pub in_channels: usize,
    /// Channels of an output token.
    pub out_channels: usize,
    /// Number of double blocks.
    pub num_layers: usize,
    /// Number of single blocks.
    pub num_single_layers: usize,
    /// Width of one attention head.
    pub attention_head_dim: usize,
    /// Number of attention heads.
    pub num_attention_heads: usize,
    /// Width of the text encoder's sequence.
    pub joint_attention_dim: usize,
    /// Width of the pooled text projection.
    pub pooled_projection_dim: usize,
    /// Whether guidance is embedded.
    pub guidance_embeds: bool,
    /// Widths of the rotary axes; their sum is the head's width.
    pub axes_dims_rope: Vec<usize>,
}

impl FluxConfig {
    /// Width of the residual stream: heads × head width.
    #[must_use]
    pub fn inner_dim(&self) -> usize {
        self.num_attention_heads
            .saturating_mul(self.attention_head_dim)
    }

    /// Width inside the feed-forward parts.
    #[must_use]
    pub fn mlp_dim(&self) -> usize {
        self.inner_dim().saturating_mul(MLP_RATIO)
    }

    /// Checks what must hold whatever the tensors are.
    ///
    /// # Errors
    /// [`ModelError::InvalidConfig`] naming the field, its value and what it must be.
    pub fn check(&self) -> Result<(), ModelError> {
        self.check_sizes()?;
        self.check_depth()?;
        self.check_rotary_axes()
    }

    fn check_sizes(&self) -> Result<(), ModelError> {
        let sizes = [
            ("in_channels", self.in_channels),
            ("out_channels", self.out_channels),
            ("attention_head_dim", self.attention_head_dim),
            ("num_attention_heads", self.num_attention_heads),
            ("joint_attention_dim", self.joint_attention_dim),
            ("pooled_projection_dim", self.pooled_projection_dim),
        ];
        match sizes
            .into_iter()
            .find(|(_, size)| !(1..=MAX_WIDTH).contains(size))
        {
            Some((field, size)) => Err(invalid(field, &size, format!("1 to {MAX_WIDTH}"))),
            None if self.inner_dim() > MAX_WIDTH => Err(invalid(
                "num_attention_heads",
                &self.num_attention_heads,
                format!("at most {MAX_WIDTH} / {}", self.attention_head_dim),
            )),
            None => Ok(()),
        }
    }

    fn check_depth(&self) -> Result<(), ModelError> {
        let depths = [
            ("num_layers", self.num_layers),
            ("num_single_layers", self.num_single_layers),
        ];
        match depths.into_iter().find(|(_, depth)| *depth > MAX_BLOCKS) {
            Some((field, depth)) => Err(invalid(field, &depth, format!("at most {MAX_BLOCKS}"))),
            None if self.num_layers == 0 && self.num_single_layers == 0 => Err(invalid(
                "num_layers",
                &0,
                "at least one double or single block",
            )),
            None => Ok(()),
        }
    }

    fn check_rotary_axes(&self) -> Result<(), ModelError> {
        let axes = &self.axes_dims_rope;
        let found = format!("{axes:?}");
        if axes.len() != NUM_AXES {
            return Err(invalid(
                "axes_dims_rope",
                &found,
                format!("{NUM_AXES} axes"),
            ));
        }
        if axes.iter().any(|width| *width == 0 || width % 2 == 1) {
            return Err(invalid("axes_dims_rope", &found, "even widths above 0"));
        }
        let sum = axes
            .iter()
            .try_fold(0usize, |sum, width| sum.checked_add(*width));
        if sum != Some(self.attention_head_dim) {
            let expected = format!("a sum of attention_head_dim = {}", self.attention_head_dim);
            return Err(invalid("axes_dims_rope", &found, expected));
        }
        Ok(())
    }
}

impl From<FluxConfig> for FluxConfigFile {
    fn from(config: FluxConfig) -> Self {
        Self {
            class_name: Some(CLASS_NAME.to_owned()),
            patch_size: Some(1),
            in_channels: Some(config.in_channels),
            out_channels: Some(config.out_channels),
            num_layers: Some(config.num_layers),
            num_single_layers: Some(config.num_single_layers),
            attention_head_dim: Some(config.attention_head_dim),
            num_attention_heads: Some(config.num_attention_heads),
            joint_attention_dim: Some(config.joint_attention_dim),
            pooled_projection_dim: Some(config.pooled_projection_dim),
            guidance_embeds: Some(config.guidance_embeds),
            axes_dims_rope: Some(config.axes_dims_rope),
        }
    }
}

fn invalid(field: &'static str, found: &dyn ToString, expected: impl Into<String>) -> ModelError {
    ModelError::InvalidConfig {
        field,
        found: found.to_string(),
        expected: expected.into(),
    }
}

/// The feed-forward parts are four times as wide as the stream; diffusers fixes it.
const MLP_RATIO: usize = 4;

/// Rotary axes of a position: index, row, column.
pub(crate) const NUM_AXES: usize = 3;

/// A cap against hostile documents; FLUX.1 has 12,288 at most.
const MAX_WIDTH: usize = 1 << 20;

/// A cap against hostile documents; FLUX.1 has 19 and 38.
const MAX_BLOCKS: usize = 4096;

const CLASS_NAME: &str = "FluxTransformer2DModel";
