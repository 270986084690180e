//! What the text encoders say of a batch of prompts.

use std::ops::Range;

use burn::tensor::{DType, Device, Tensor, TensorData};
use overglaze_stream::WeightSource;

use crate::{ModelError, dense::read_floats};

/// The encoders' output for a batch of prompts, one row a prompt.
#[derive(Clone, Debug)]
pub struct Conditioning {
    encoder_hidden_states: Tensor<3>,
    pooled_projections: Tensor<2>,
    guidance: Option<Vec<f32>>,
}

impl Conditioning {
    /// From sequences `[prompts, tokens, width]`, pooled projections `[prompts, width]` and, where
    /// there is one, a guidance for each prompt.
    ///
    /// # Errors
    /// [`ModelError::InputShape`] when the numbers of prompts differ, [`ModelError::NoPrompts`] when
    /// there is none.
    pub fn new(
        encoder_hidden_states: Tensor<3>,
        pooled_projections: Tensor<2>,
        guidance: Option<Vec<f32>>,
    ) -> Result<Self, ModelError> {
        let [prompts, ..] = encoder_hidden_states.dims();
        if prompts == 0 {
            return Err(ModelError::NoPrompts);
        }
        let pooled = pooled_projections.dims();
        let rows = [
            ("pooled_projections", pooled[0], pooled.to_vec()),
            (
                "guidance",
                guidance.as_ref().map_or(prompts, Vec::len),
                vec![guidance.as_ref().map_or(prompts, Vec::len)],
            ),
        ];
        for (input, found_rows, found) in rows {
            if found_rows != prompts {
                let expected = format!("{prompts} rows, as many as encoder_hidden_states has");
                return Err(ModelError::InputShape {
                    input,
                    found,
                    expected,
                });
            }
        }
        Ok(Self {
            encoder_hidden_states,
            pooled_projections,
            guidance,
        })
    }

    /// Reads `encoder_hidden_states` `[prompts, tokens, width]`, `pooled_projections`
    /// `[prompts, width]` and, if there, `guidance` `[prompts]`.
    ///
    /// # Errors
    /// As [`read_floats`](crate::read_floats), [`ModelError::TensorShape`], or as [`new`](Self::new).
    pub fn read(source: &dyn WeightSource, device: &Device) -> Result<Self, ModelError> {
        let encoder_hidden_states = tensor(source, "encoder_hidden_states", device)?;
        let pooled_projections = tensor(source, "pooled_projections", device)?;
        let guidance = match source.entries().contains_key("guidance") {
            true => Some(sized::<1>(source, "guidance")?.0),
            false => None,
        };
        Self::new(encoder_hidden_states, pooled_projections, guidance)
    }

    /// Number of prompts.
    #[must_use]
    pub fn num_prompts(&self) -> usize {
        let [prompts, ..] = self.encoder_hidden_states.dims();
        prompts
    }

    /// The prompts in `range`, to run a batch in parts.
    ///
    /// # Errors
    /// [`ModelError::NoPrompts`] when the range holds none of them.
    pub fn rows(&self, range: Range<usize>) -> Result<Self, ModelError> {
        let end = range.end.min(self.num_prompts());
        if range.start >= end {
            return Err(ModelError::NoPrompts);
        }
        let length = end - range.start;
        Ok(Self {
            encoder_hidden_states: self.encoder_hidden_states.clone().narrow(
                0,
                range.start,
                length,
            ),
            pooled_projections: self
                .pooled_projections
                .clone()
                .narrow(0, range.start, length),
            guidance: self
                .guidance
                .as_ref()
                .map(|guidance| guidance[range.start..end].to_vec()),
        })
    }

    /// Sequences `[prompts, tokens, width]`.
    #[must_use]
    pub fn encoder_hidden_states(&self) -> &Tensor<3> {
        &self.encoder_hidden_states
    }

    /// Pooled projections `[prompts, width]`.
    #[must_use]
    pub fn pooled_projections(&self) -> &Tensor<2> {
        &self.pooled_projections
    }

    /// Guidance of each prompt, if given.
    #[must_use]
    pub fn guidance(&self) -> Option<&[f32]> {
        self.guidance.as_deref()
    }
}

fn tensor<const D: usize>(
    source: &dyn WeightSource,
    name: &str,
    device: &Device,
) -> Result<Tensor<D>, ModelError> {
    let (values, shape) = sized::<D>(source, name)?;
    Ok(Tensor::from_data(
        TensorData::new(values, shape),
        (device, DType::F32),
    ))
}

/// The values of a tensor of `D` dimensions.
fn sized<const D: usize>(
    source: &dyn WeightSource,
    name: &str,
) -> Result<(Vec<f32>, [usize; D]), ModelError> {
    let (values, shape) = read_floats(source, name)?;
    match <[usize; D]>::try_from(shape) {
        Ok(shape) => Ok((values, shape)),
        Err(found) => Err(ModelError::TensorShape {
            file: source.label(),
            tensor: name.to_owned(),
            found,
            expected: format!("{D} dimensions, the first of them the prompts"),
        }),
    }
}
