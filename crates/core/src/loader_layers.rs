//! The layers besides linear ones that a [`LayerLoader`] builds.
//!
//! Weights of convolutions and embeddings are kept as linear ones are: read in place, or streamed. A norm's
//! scale and shift and bare parameters are small and always in place.

use std::sync::Arc;

use burn::{
    nn::conv::{Conv1dConfig, Conv2dConfig, Conv3dConfig},
    tensor::{DType, Tensor},
};
use overglaze_patches::LayerShape;

use crate::{
    ConvLayout, Error, LayerLoader, NormRounding, PatchedConv, PatchedConv1d, PatchedConv2d,
    PatchedConv3d, PatchedEmbedding, PatchedGroupNorm, PatchedLayer, PatchedLayerNorm,
    PatchedParameter, PatchedRmsNorm, tensor_spec::TensorSpec,
};

impl LayerLoader {
    /// The convolution over `<path>.weight` `[d_output, d_input / groups, kernel]` and, where `config` has a
    /// bias, `<path>.bias` `[d_output]`.
    ///
    /// # Errors
    /// [`Error::Convolution`] for a config that cannot be computed, or as [`linear`](Self::linear).
    pub fn conv1d(&mut self, path: &str, config: &Conv1dConfig) -> Result<PatchedConv1d, Error> {
        self.conv(path, config.into())
    }

    /// The convolution over `<path>.weight` `[d_output, d_input / groups, height, width]` and, where `config` has
    /// a bias, `<path>.bias` `[d_output]`.
    ///
    /// # Errors
    /// As [`conv1d`](Self::conv1d).
    pub fn conv2d(&mut self, path: &str, config: &Conv2dConfig) -> Result<PatchedConv2d, Error> {
        self.conv(path, config.into())
    }

    /// The convolution over `<path>.weight` `[d_output, d_input / groups, depth, height, width]` and, where
    /// `config` has a bias, `<path>.bias` `[d_output]`.
    ///
    /// # Errors
    /// As [`conv1d`](Self::conv1d).
    pub fn conv3d(&mut self, path: &str, config: &Conv3dConfig) -> Result<PatchedConv3d, Error> {
        self.conv(path, config.into())
    }

    /// The embedding over `<path>.weight` `[num_embeddings, d_model]`.
    ///
    /// # Errors
    /// As [`linear`](Self::linear).
    pub fn embedding(&mut self, path: &str) -> Result<PatchedEmbedding, Error> {
        let weight = self.matrix(&weight_of(path))?.with_values()?;
        let frozen = self.freeze(path, weight, None)?;
        let device = self.device().clone();
        Ok(PatchedEmbedding::from_frozen(frozen, device, self.state()))
    }

    /// The layer norm over `<path>.weight` `[d_model]` and, when the source has it, `<path>.bias` `[d_model]`.
    ///
    /// # Errors
    /// As [`linear`](Self::linear).
    pub fn layer_norm(&mut self, path: &str, epsilon: f64) -> Result<PatchedLayerNorm, Error> {
        let (gamma, beta) = self.scale_shift(path)?;
        let mut norm = PatchedLayerNorm::from_affine(gamma, beta, epsilon);
        *norm.state_mut() = self.state();
        Ok(norm)
    }

    /// The group norm over `<path>.weight` `[num_channels]` and, when the source has it, `<path>.bias`
    /// `[num_channels]`.
    ///
    /// # Errors
    /// [`Error::NormGroups`] when `num_groups` does not divide the channels, or as [`linear`](Self::linear).
    pub fn group_norm(
        &mut self,
        path: &str,
        num_groups: usize,
        epsilon: f64,
    ) -> Result<PatchedGroupNorm, Error> {
        let (gamma, beta) = self.scale_shift(path)?;
        let mut norm = PatchedGroupNorm::from_affine(gamma, beta, num_groups, epsilon);
        norm.check_groups()?;
        *norm.state_mut() = self.state();
        Ok(norm)
    }

    /// The RMS norm over the scale `tensor` `[d_model]` that keeps its input's dtype, as Black Forest Labs' code
    /// does.
    ///
    /// # Errors
    /// As [`vector`](Self::vector).
    pub fn rms_norm(&mut self, tensor: &str, epsilon: f64) -> Result<PatchedRmsNorm, Error> {
        let gamma = self.vector(tensor)?;
        let mut norm = PatchedRmsNorm::from_gamma(gamma, epsilon, Arc::clone(self.traffic()));
        *norm.state_mut() = self.state();
        Ok(norm)
    }

    /// The RMS norm over the scale `tensor` `[d_model]` whose output has the dtype of the scale, as in diffusers.
    ///
    /// # Errors
    /// As [`vector`](Self::vector).
    pub fn diffusers_rms_norm(
        &mut self,
        tensor: &str,
        epsilon: f64,
    ) -> Result<PatchedRmsNorm, Error> {
        let spec = self.row(tensor, None)?;
        let gamma = self.as_stored(&spec)?;
        let mut norm = PatchedRmsNorm::from_gamma(gamma, epsilon, Arc::clone(self.traffic()));
        *norm.state_mut() = self.state();
        Ok(norm.with_rounding(NormRounding::Scale))
    }

    /// The bare parameter `tensor` of `D` axes.
    ///
    /// # Errors
    /// As [`linear`](Self::linear).
    pub fn parameter<const D: usize>(
        &mut self,
        tensor: &str,
    ) -> Result<PatchedParameter<D>, Error> {
        let found = self.found(tensor)?;
        let Ok(dims) = <[usize; D]>::try_from(found.shape.clone()) else {
            return Err(self.wrong_shape(tensor, &found.shape, format!("{D} axes")));
        };
        let spec = self.spec(tensor, found, LayerShape::parameter(&dims).matrix())?;
        let spec = spec.with_values()?;
        let values = self.as_stored(&spec)?;
        let values = match dims.contains(&0) {
            true => Tensor::zeros(dims, (&values.device(), values.dtype())),
            false => values.reshape(dims),
        };
        let mut parameter = PatchedParameter::from_tensor(values, Arc::clone(self.traffic()));
        *parameter.state_mut() = self.state();
        Ok(parameter)
    }

    fn conv<const D: usize>(
        &mut self,
        path: &str,
        layout: ConvLayout<D>,
    ) -> Result<PatchedConv<D>, Error> {
        layout.check()?;
        let (name, shape) = (weight_of(path), LayerShape::conv(&layout.dims, 1));
        let found = self.found(&name)?;
        // Some packed files tell the matrix and not the kernel's axes.
        let is_matrix = found.shape == shape.matrix();
        if found.shape != shape.dims() && !is_matrix {
            let expected = format!("{:?}", shape.dims());
            return Err(self.wrong_shape(&name, &found.shape, expected));
        }
        let weight = self.spec(&name, found, shape.matrix())?.with_values()?;
        let bias = match layout.has_bias {
            true => Some(self.row(&format!("{path}.bias"), Some(layout.dims[0]))?),
            false => None,
        };
        let frozen = self.freeze(path, weight, bias)?;
        let device = self.device().clone();
        PatchedConv::from_frozen(frozen, layout, device, self.state())
    }

    fn scale_shift(&mut self, path: &str) -> Result<(Tensor<1>, Option<Tensor<1>>), Error> {
        let scale = self.row(&weight_of(path), None)?;
        let name = format!("{path}.bias");
        let shift = match self.source().entries().contains_key(&name) {
            true => Some(self.row(&name, Some(scale.shape[1]))?),
            false => None,
        };
        let gamma = self.as_stored(&scale)?;
        let beta = shift.map(|shift| self.as_stored(&shift)).transpose()?;
        Ok((gamma, beta))
    }

    /// A vector in the dtype it is stored in, where that is one the device has, else in f32.
    fn as_stored(&mut self, spec: &TensorSpec) -> Result<Tensor<1>, Error> {
        let stored = spec.format.dense_dtype();
        let stored = stored.filter(|dtype| self.device().supports_dtype(*dtype));
        self.in_place(spec, stored.unwrap_or(DType::F32))
    }
}

fn weight_of(path: &str) -> String {
    format!("{path}.weight")
}
