//! Learned scales of outputs or inputs: (IA)³, as LyCORIS and PEFT save it.
//!
//! `ΔW = W · w` along rows (one value an output) or along the input channels; W′ = W(1 + s·w).
//!
//! LyCORIS: `weight` is w, `on_input` says which side it is for; the bias stays as it is. PEFT: `ia3_l` is `1 + w`.
//! On the output side, `[d_output, 1]`, it scales the bias too, `Δb = b · w`; a feed-forward module's, `[1, d_input]`,
//! is for the inputs. A convolution's `[1, N, 1, 1]` does not tell: the configuration's `feedforward_modules` does,
//! and without one the size, where only one side has it.
//!
//! Liu et al., "Few-Shot Parameter-Efficient Fine-Tuning is Better and Cheaper than In-Context Learning", 2022,
//! section 3.3.

use std::{ops::Range, sync::Arc};

use burn::tensor::{Device, FloatDType, Tensor};

use crate::{
    BaseAccess, BaseLayer, KindDocs, LayerShape, Patch, PatchError, PatchKind, TensorGroup,
    patch::{moved, tensor_bytes, wide},
};

inventory::submit! {
    PatchKind::new(KIND, &[&[WEIGHT, ON_INPUT], &[PEFT]], load)
        .with_aliases(&[("ia3_l.*", PEFT)])
        .with_docs(KindDocs {
            formula: "ΔW = W · w along outputs or inputs; w = ia3_l − 1 in PEFT, with Δb = b · w on outputs",
            layers: "linear, convolution, embedding",
            strength: "proportional",
            source: "Liu et al. 2022, \"T-Few\", section 3.3",
        })
}

#[derive(Clone, Debug)]
struct Ia3 {
    /// w `[d_output]` or `[d_input]`.
    scale: Tensor<1>,
    side: Side,
    scales_bias: bool,
}

/// What w has a value for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Output,
    Input,
    /// The side that has as many, if only one has.
    BySize,
}

fn load(mut group: TensorGroup, device: &Device) -> Result<Arc<dyn Patch>, PatchError> {
    if group.has(PEFT) {
        return load_peft(group, device);
    }
    let on_input = group.take_finite(ON_INPUT)?.unwrap_or_default();
    let side = if on_input == 0.0 {
        Side::Output
    } else {
        Side::Input
    };
    let (scale, _) = group.take_vector(WEIGHT, device)?;
    Ok(Arc::new(Ia3 {
        scale,
        side,
        scales_bias: false,
    }))
}

fn load_peft(mut group: TensorGroup, device: &Device) -> Result<Arc<dyn Patch>, PatchError> {
    let is_feedforward = group
        .config
        .as_ref()
        .and_then(|config| config.is_feedforward);
    let is_matrix = group.tensors.get(PEFT).is_some_and(|data| data.rank() == 2);
    let (scale, axis) = group.take_vector(PEFT, device)?;
    let side = match (axis.filter(|_| is_matrix), is_feedforward) {
        (Some(0), _) | (None, Some(false)) => Side::Output,
        (Some(_), _) | (None, Some(true)) => Side::Input,
        (None, None) => Side::BySize,
    };
    Ok(Arc::new(Ia3 {
        // Kept as the difference to 1: its precision would be lost in 16 bits.
        scale: wide(&scale).sub_scalar(1.0),
        side,
        scales_bias: true,
    }))
}

impl Patch for Ia3 {
    fn kind(&self) -> &str {
        KIND
    }

    fn base_access(&self) -> BaseAccess {
        BaseAccess::Weight
    }

    fn check(&self, layer: &LayerShape) -> Result<(), PatchError> {
        self.side_on(layer).map(|_| ())
    }

    fn delta_weight(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        let weight = base.weight_for(KIND)?;
        let scale = wide(&self.scale);
        if self.side_on(base.shape)? == Side::Output {
            return Ok(Some(weight.clone() * scale.unsqueeze_dim::<2>(1)));
        }
        let [d_output, fan_in] = weight.dims();
        let d_input = base.shape.d_input();
        let columns = weight
            .clone()
            .reshape([d_output, d_input, fan_in / d_input]);
        let scaled = columns * scale.reshape([1, d_input, 1]);
        Ok(Some(scaled.reshape([d_output, fan_in])))
    }

    fn changes_bias(&self) -> bool {
        self.scales_bias && self.side != Side::Input
    }

    fn delta_bias(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<1>>, PatchError> {
        if !self.changes_bias() {
            return Ok(None);
        }
        let bias = match self.side_on(base.shape)? {
            Side::Output => base.bias,
            _ => None,
        };
        Ok(Some(match bias {
            Some(bias) => bias.clone() * wide(&self.scale),
            // What is announced is there: a missing bias is zeros, and so is its change.
            None => Tensor::zeros([base.shape.d_output()], &self.scale.device()),
        }))
    }

    fn slice_rows(&self, rows: Range<usize>) -> Option<Arc<dyn Patch>> {
        let num_values = self.scale.dims()[0];
        match self.side {
            // Every row is scaled by the same values.
            Side::Input => Some(Arc::new(self.clone())),
            Side::Output if !rows.is_empty() && rows.end <= num_values => Some(Arc::new(Self {
                scale: self.scale.clone().slice([rows]),
                ..self.clone()
            })),
            _ => None,
        }
    }

    fn to_device(&self, device: &Device, dtype: FloatDType) -> Arc<dyn Patch> {
        Arc::new(Self {
            scale: moved(&self.scale, device, dtype),
            ..self.clone()
        })
    }

    fn num_bytes(&self) -> usize {
        tensor_bytes(&self.scale)
    }
}

impl Ia3 {
    /// The side of `layer` that is scaled.
    fn side_on(&self, layer: &LayerShape) -> Result<Side, PatchError> {
        if !layer.is_matrix() {
            return Err(no_meaning(
                layer,
                "it scales the rows or columns of a weight matrix",
            ));
        }
        let [num_values] = self.scale.dims();
        let fits_output = num_values == layer.d_output();
        let fits_input = num_values == layer.d_input();
        let side = match self.side {
            Side::BySize if fits_output && fits_input => {
                return Err(no_meaning(layer, AMBIGUOUS));
            }
            Side::BySize if fits_output => Side::Output,
            Side::BySize => Side::Input,
            side => side,
        };
        match side {
            Side::Output if fits_output => Ok(side),
            Side::Input if layer.groups() > 1 => Err(no_meaning(layer, GROUPED)),
            Side::Input if fits_input => Ok(side),
            _ => Err(PatchError::DoesNotFit {
                kind: KIND.into(),
                patch: match side {
                    Side::Output => [num_values, layer.fan_in()],
                    _ => [layer.d_output(), num_values],
                },
                base: layer.dims().into(),
            }),
        }
    }
}

fn no_meaning(layer: &LayerShape, why: &str) -> PatchError {
    PatchError::NoMeaning {
        kind: KIND.into(),
        operator: layer.operator(),
        why: why.into(),
    }
}

const KIND: &str = "ia3";
const WEIGHT: &str = "weight";
const ON_INPUT: &str = "on_input";
const PEFT: &str = "ia3_l";
const AMBIGUOUS: &str = "this one has as many outputs as inputs, and `ia3_l` does not say which it scales; load \
                         the adapter's folder, whose adapter_config.json does";
const GROUPED: &str = "this one is convolved in groups, each of which reads other inputs; apply it to layers of \
                       one group";
