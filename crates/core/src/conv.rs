//! `y = W ∗ x + b + Σ strengthᵢ · (ΔWᵢ ∗ x + Δbᵢ)`: convolutions over one, two and three axes whose base is
//! never rewritten.
//!
//! A weight is `[d_output, d_input / groups, kernel…]`, an input `[batch, d_input, axes…]`. Unpatched and all in
//! one place, it is Burn's own convolution. Everything else is computed in f32 and rounded once: one product
//! with the base, and the patches' own: thin factors as a convolution and a 1×1 one behind it, one for the sum
//! of the others' ΔW. Packed weights are decoded once a pass.

use std::sync::Arc;

use burn::{
    module::{Module, Param},
    nn::conv::{Conv1d, Conv2d, Conv3d},
    tensor::{
        DType, Device, Tensor,
        module::{conv1d, conv2d, conv3d},
    },
};
use overglaze_patches::{ConvGeometry, ConvInput, LayerShape, Patch};

use crate::{
    ConvLayout, Error, FrozenWeight, LayerState, LayerWeights, PatchedLayer, Path, Weight,
    WeightRef,
    conv_ranks::{array, feature_of, one, options, per_channel, ranked, tensor_of},
    dense,
    error::value_or_panic,
    frozen::FrozenBase,
    layer_base::LayerBase,
};

/// A drop-in for [`burn::nn::conv::Conv1d`] that takes patches, and packed or streamed weights.
pub type PatchedConv1d = PatchedConv<3>;
/// A drop-in for [`burn::nn::conv::Conv2d`] that takes patches, and packed or streamed weights.
pub type PatchedConv2d = PatchedConv<4>;
/// A drop-in for [`burn::nn::conv::Conv3d`] that takes patches, and packed or streamed weights.
pub type PatchedConv3d = PatchedConv<5>;

/// A convolution with a weight of `D` axes: [`PatchedConv1d`], [`PatchedConv2d`] or [`PatchedConv3d`].
///
/// Over a dense resident layer `weight` and `bias` are that layer's own parameters, so Burn's visitors,
/// mappers and records see the same names, and editing them takes effect.
#[derive(Module, Debug)]
pub struct PatchedConv<const D: usize> {
    /// The Burn layer's own weight `[d_output, d_input / groups, kernel…]`; `None` when the base is packed or
    /// streamed.
    pub weight: Option<Param<Tensor<D>>>,
    /// The Burn layer's own bias `[d_output]`.
    pub bias: Option<Param<Tensor<1>>>,
    #[module(skip)]
    layout: ConvLayout<D>,
    #[module(skip)]
    frozen: Option<FrozenBase>,
    #[module(skip)]
    home: Device,
    #[module(skip)]
    state: LayerState,
}

impl<const D: usize> PatchedConv<D> {
    /// A layer over a weight `[d_output, fan_in]`, every axis but the first flattened, and a bias `[d_output]`
    /// that are in place. Whether there is a bias is told by the bias, not by `layout`.
    ///
    /// # Errors
    /// [`Error::WeightShape`] when they are not of the layout's shape, [`Error::Convolution`] for a layout that
    /// cannot be computed.
    pub fn from_weights(
        weight: Weight,
        bias: Option<Tensor<1>>,
        layout: impl Into<ConvLayout<D>>,
        device: Device,
    ) -> Result<Self, Error> {
        let mut layout = layout.into();
        layout.has_bias = bias.is_some();
        let d_output = layout.dims[0];
        if let Some(found) = bias
            .as_ref()
            .map(Tensor::dims)
            .filter(|dims| dims != &[d_output])
        {
            return Err(Error::WeightShape {
                found: found.to_vec(),
                expected: vec![d_output],
            });
        }
        let weights = FrozenWeight::Resident(Arc::new(LayerWeights { weight, bias }));
        Self::from_frozen(weights, layout, device, LayerState::default())
    }

    pub(crate) fn from_frozen(
        weight: FrozenWeight,
        layout: ConvLayout<D>,
        home: Device,
        state: LayerState,
    ) -> Result<Self, Error> {
        layout.check()?;
        let (found, expected) = (weight.shape(), LayerShape::conv(&layout.dims, 1).matrix());
        if found != expected {
            return Err(Error::WeightShape {
                found: found.to_vec(),
                expected: expected.to_vec(),
            });
        }
        let has_bias = layout.has_bias;
        Ok(Self {
            weight: None,
            bias: None,
            layout,
            frozen: Some(FrozenBase { weight, has_bias }),
            home,
            state,
        })
    }

    /// Shape and geometry.
    #[must_use]
    pub fn layout(&self) -> ConvLayout<D> {
        let mut layout = self.layout.clone();
        if let Some(weight) = &self.weight {
            layout.dims = weight.lazy_shape().dims();
        }
        layout
    }

    /// Applies the layer, `[batch, d_input, axes…] -> [batch, d_output, axes…]`, in the input's dtype on its
    /// device.
    ///
    /// # Panics
    /// Where [`try_forward`](Self::try_forward) would answer an error.
    #[must_use]
    pub fn forward(&self, input: Tensor<D>) -> Tensor<D> {
        value_or_panic(self.try_forward(input))
    }

    /// Applies the layer, `[batch, d_input, axes…] -> [batch, d_output, axes…]`, in the input's dtype on its
    /// device.
    ///
    /// # Errors
    /// [`Error::InputChannels`], [`Error::InputTooSmall`], [`Error::Convolution`], or as
    /// [`PatchedLinear::try_forward`](crate::PatchedLinear::try_forward).
    pub fn try_forward(&self, input: Tensor<D>) -> Result<Tensor<D>, Error> {
        let (geometry, output_dims) = self.layout().resolve(input.dims())?;
        let (device, dtype) = (input.device(), input.dtype());
        if input.dims()[0] == 0 {
            return Ok(Tensor::zeros(output_dims, (&device, dtype)));
        }
        if let Some(weight) = self.base().native_weight(&device, dtype) {
            let bias = self.bias.as_ref().map(Param::val);
            if let Some(output) = burn_conv(&input, weight, bias, &geometry) {
                return Ok(output);
            }
        }
        let output = self.forward_wide(dense::cast(input, DType::F32), geometry)?;
        Ok(dense::cast(output, dtype))
    }

    /// The path a forward pass with an input of `dtype` on `device` would take.
    ///
    /// # Errors
    /// [`Error::Stream`] when a streamed weight cannot be loaded, [`Error::NotStarted`], [`Error::NoWeight`].
    pub fn path(&self, device: &Device, dtype: DType) -> Result<Path, Error> {
        self.base().path(device, dtype)
    }

    /// The pass in f32.
    fn forward_wide(&self, input: Tensor<D>, geometry: ConvGeometry) -> Result<Tensor<D>, Error> {
        let (device, base, traffic) = (input.device(), self.base(), &self.state.traffic);
        let current = base.acquire_for(&device)?;
        let shape = self.layer_shape();
        let first = input.clone().slice_dim(0, 0..1);
        let input = ConvInput::new(feature_of(input), geometry);
        let weight = current.dense(&device, traffic).clone();
        let output = input.convolve(weight, shape.kernel(), shape.groups());
        let mut output: Tensor<D> = tensor_of(output);
        if let Some(bias) = current.bias(&device, traffic) {
            output = output + per_channel(bias.clone());
        }
        // A sidecar knows nothing of groups.
        let applies_itself = |patch: &dyn Patch| {
            let first = input.with_feature(feature_of(first.clone()));
            shape.groups() == 1 && patch.sidecar_conv(&first).is_some()
        };
        let residual = base.residual(&device, &shape, &current, applies_itself)?;
        let Some(residual) = residual else {
            return Ok(output);
        };
        if let Some(term) = residual.conv(&input, &shape) {
            output = output + tensor_of(term);
        }
        if let Some(bias) = &residual.bias {
            output = output + per_channel(bias.clone());
        }
        Ok(output)
    }

    fn base(&self) -> LayerBase<'_, D> {
        LayerBase {
            weight: self.weight.as_ref(),
            bias: self.bias.as_ref(),
            frozen: self.frozen.as_ref(),
            home: &self.home,
            state: &self.state,
            as_rows: dense::flattened,
        }
    }

    fn over_burn(
        weight: Param<Tensor<D>>,
        bias: Option<Param<Tensor<1>>>,
        layout: ConvLayout<D>,
    ) -> Self {
        Self {
            home: weight.lazy_device(),
            weight: Some(weight),
            bias,
            layout,
            frozen: None,
            state: LayerState::default(),
        }
    }

    /// The Burn parameters of a layer that nothing is laid over.
    fn into_params(self) -> Result<(Param<Tensor<D>>, Option<Param<Tensor<1>>>), Error> {
        self.base().check_burn()?;
        Ok((self.weight.ok_or(Error::NoWeight)?, self.bias))
    }
}

/// Conversions between a rank's wrapper and its Burn layer, whose axes are stated as `$axes`.
macro_rules! burn_layer {
    ($rank:literal, $layer:ident, $axes:path) => {
        impl From<$layer> for PatchedConv<$rank> {
            /// Takes a Burn layer over, sharing its parameters.
            fn from(conv: $layer) -> Self {
                let layout = ConvLayout::from(&conv);
                Self::over_burn(conv.weight, conv.bias, layout)
            }
        }

        impl PatchedConv<$rank> {
            /// The Burn layer underneath, sharing its parameters.
            ///
            /// # Errors
            /// As [`PatchedLinear::into_inner`](crate::PatchedLinear::into_inner).
            pub fn into_inner(self) -> Result<$layer, Error> {
                let layout = self.layout();
                let (weight, bias) = self.into_params()?;
                Ok($layer {
                    weight,
                    bias,
                    stride: $axes(&layout.stride),
                    kernel_size: $axes(&layout.dims[2..]),
                    dilation: $axes(&layout.dilation),
                    groups: layout.groups,
                    padding: (&layout.padding).into(),
                })
            }
        }
    };
}

burn_layer!(3, Conv1d, one);
burn_layer!(4, Conv2d, array);
burn_layer!(5, Conv3d, array);

impl<const D: usize> PatchedLayer for PatchedConv<D> {
    fn state(&self) -> &LayerState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut LayerState {
        &mut self.state
    }

    fn layer_shape(&self) -> LayerShape {
        let layout = self.layout();
        LayerShape::conv(&layout.dims, layout.groups)
    }

    fn has_bias(&self) -> bool {
        self.base().has_bias()
    }

    fn device(&self) -> Device {
        self.base().device()
    }

    fn acquire_base(&self) -> Result<WeightRef, Error> {
        self.base().acquire_base()
    }

    fn frozen(&self) -> Option<&FrozenWeight> {
        self.base().frozen()
    }
}

/// Burn's own convolution; `None` for uneven padding over three axes, which Burn does not compute.
fn burn_conv<const D: usize>(
    input: &Tensor<D>,
    weight: Tensor<D>,
    bias: Option<Tensor<1>>,
    geometry: &ConvGeometry,
) -> Option<Tensor<D>> {
    let is_uneven = geometry
        .padding
        .iter()
        .any(|[before, after]| before != after);
    match D {
        3 => {
            let (input, weight) = (ranked(input.clone()), ranked(weight));
            Some(ranked::<3, D>(conv1d(
                input,
                weight,
                bias,
                options(geometry),
            )))
        }
        4 => {
            let (input, weight) = (ranked(input.clone()), ranked(weight));
            Some(ranked::<4, D>(conv2d(
                input,
                weight,
                bias,
                options(geometry),
            )))
        }
        5 if !is_uneven => {
            let (input, weight) = (ranked(input.clone()), ranked(weight));
            Some(ranked::<5, D>(conv3d(
                input,
                weight,
                bias,
                options(geometry),
            )))
        }
        _ => None,
    }
}
