//! What a FLUX transformer is run on, and the checks at its border.

use std::sync::Arc;

use burn::tensor::{DType, Tensor};

use crate::{
    ModelError,
    flux::{FluxConfig, config::NUM_AXES},
};

/// The inputs of one forward pass over a batch of images.
#[derive(Clone, Debug)]
pub struct FluxInputs {
    /// Image tokens `[batch, tokens, in_channels]`; with a control patch mounted, as many channels as it reads,
    /// the model's own first.
    pub hidden_states: Tensor<3>,
    /// The text encoder's sequence `[batch, text tokens, joint_attention_dim]`.
    pub encoder_hidden_states: Tensor<3>,
    /// The pooled text projection `[batch, pooled_projection_dim]`.
    pub pooled_projections: Tensor<2>,
    /// Time of each row, 0 (image) to 1 (noise); the model multiplies by 1000 itself.
    pub timestep: Vec<f32>,
    /// Guidance of each row, for models that embed it.
    pub guidance: Option<Vec<f32>>,
    /// Positions of the image tokens.
    pub img_ids: PositionIds,
    /// Positions of the text tokens.
    pub txt_ids: PositionIds,
}

/// Positions of tokens on the rotary axes (index, row, column). Clones share.
#[derive(Clone, Debug, PartialEq)]
pub struct PositionIds(Arc<[[f32; NUM_AXES]]>);

impl PositionIds {
    /// Positions from one triple a token.
    ///
    /// # Errors
    /// [`ModelError::InputValue`] when a coordinate is not finite.
    pub fn new(ids: Vec<[f32; NUM_AXES]>) -> Result<Self, ModelError> {
        all_finite("position ids", ids.as_flattened())?;
        Ok(Self(ids.into()))
    }

    /// Positions from a tensor `[tokens, 3]`.
    ///
    /// # Errors
    /// [`ModelError::InputShape`], [`ModelError::InputValue`] or [`ModelError::Readback`].
    pub fn from_tensor(ids: Tensor<2>) -> Result<Self, ModelError> {
        let shape = ids.dims();
        if shape[1] != NUM_AXES {
            return Err(ModelError::InputShape {
                input: "position ids",
                found: shape.to_vec(),
                expected: format!("[tokens, {NUM_AXES}]"),
            });
        }
        let values = ids
            .try_into_vec_as::<f32>()
            .map_err(|source| ModelError::Readback {
                what: "position ids",
                source,
            })?;
        let (triples, _) = values.as_chunks::<NUM_AXES>();
        Self::new(triples.to_vec())
    }

    /// The position 0 for every token, as text has.
    #[must_use]
    pub fn zeros(num_tokens: usize) -> Self {
        Self(vec![[0.0; NUM_AXES]; num_tokens].into())
    }

    /// Positions (0, row, column) of an image's tokens, row by row.
    ///
    /// # Errors
    /// [`ModelError::InputValue`] when the image has no tokens or more than 2²⁰.
    pub fn image(height_tokens: usize, width_tokens: usize) -> Result<Self, ModelError> {
        let count = height_tokens.checked_mul(width_tokens);
        if !count.is_some_and(|count| (1..=MAX_IMAGE_TOKENS).contains(&count)) {
            return Err(ModelError::InputValue {
                input: "image size",
                found: format!("{height_tokens} × {width_tokens} tokens"),
                expected: "1 to 1,048,576 tokens",
            });
        }
        let column = |row, column| [0.0, coordinate(row), coordinate(column)];
        let row = |row| (0..width_tokens).map(move |index| column(row, index));
        Ok(Self((0..height_tokens).flat_map(row).collect()))
    }

    /// Number of tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no tokens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The triples, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[[f32; NUM_AXES]] {
        &self.0
    }
}

impl FluxInputs {
    /// The inputs in f32 on one device, with every shape as the model needs it; it reads `in_channels` of the
    /// image tokens.
    pub(crate) fn checked(
        mut self,
        config: &FluxConfig,
        in_channels: usize,
    ) -> Result<Self, ModelError> {
        self.check_shapes(config, in_channels)?;
        self.check_rows()?;
        self.check_guidance(config)?;
        let device = self.hidden_states.device();
        self.hidden_states = self.hidden_states.cast(DType::F32);
        self.encoder_hidden_states = self
            .encoder_hidden_states
            .to_device(&device)
            .cast(DType::F32);
        self.pooled_projections = self.pooled_projections.to_device(&device).cast(DType::F32);
        Ok(self)
    }

    fn check_shapes(&self, config: &FluxConfig, in_channels: usize) -> Result<(), ModelError> {
        let image = self.hidden_states.dims();
        let text = self.encoder_hidden_states.dims();
        let ([batch, tokens, _], [_, text_tokens, _]) = (image, text);
        for (input, found) in [("hidden_states", image), ("encoder_hidden_states", text)] {
            if found.contains(&0) {
                return Err(wrong_shape(
                    input,
                    &found,
                    "at least one row and token".into(),
                ));
            }
        }
        let text_shape = [batch, text_tokens, config.joint_attention_dim];
        let pooled = self.pooled_projections.dims();
        expect("hidden_states", &image, &[batch, tokens, in_channels])?;
        expect("encoder_hidden_states", &text, &text_shape)?;
        expect(
            "pooled_projections",
            &pooled,
            &[batch, config.pooled_projection_dim],
        )?;
        expect(
            "img_ids",
            &[self.img_ids.len(), NUM_AXES],
            &[tokens, NUM_AXES],
        )?;
        expect(
            "txt_ids",
            &[self.txt_ids.len(), NUM_AXES],
            &[text_tokens, NUM_AXES],
        )
    }

    fn check_rows(&self) -> Result<(), ModelError> {
        let [batch, ..] = self.hidden_states.dims();
        expect("timestep", &[self.timestep.len()], &[batch])?;
        all_finite("timestep", &self.timestep)?;
        if let Some(guidance) = &self.guidance {
            expect("guidance", &[guidance.len()], &[batch])?;
            all_finite("guidance", guidance)?;
        }
        Ok(())
    }

    fn check_guidance(&self, config: &FluxConfig) -> Result<(), ModelError> {
        match (config.guidance_embeds, &self.guidance) {
            (true, None) => Err(ModelError::GuidanceMissing),
            (false, Some(_)) => Err(ModelError::GuidanceUnused),
            _ => Ok(()),
        }
    }
}

fn expect(input: &'static str, found: &[usize], expected: &[usize]) -> Result<(), ModelError> {
    if found == expected {
        return Ok(());
    }
    Err(wrong_shape(input, found, format!("{expected:?}")))
}

fn wrong_shape(input: &'static str, found: &[usize], expected: String) -> ModelError {
    ModelError::InputShape {
        input,
        found: found.to_vec(),
        expected,
    }
}

fn all_finite(input: &'static str, values: &[f32]) -> Result<(), ModelError> {
    match values.iter().find(|value| !value.is_finite()) {
        None => Ok(()),
        Some(value) => Err(ModelError::InputValue {
            input,
            found: value.to_string(),
            expected: "finite numbers",
        }),
    }
}

/// A row or column as a coordinate; exact, since there are fewer than 2²⁴.
#[expect(clippy::cast_precision_loss, reason = "indices stay below 2^24")]
fn coordinate(index: usize) -> f32 {
    index as f32
}

/// A cap against hostile sizes: an image of 16,384 × 16,384 pixels.
const MAX_IMAGE_TOKENS: usize = 1 << 20;
