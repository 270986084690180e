//! A parameter that takes the place of the base's.
//!
//! `W = value` or `b = value`, whatever the strength; as a residual `ΔW = value − W`, `Δb = value − b`, a missing
//! bias counting as zeros. `value` has the parameter's shape. Two of them on one parameter exclude each other.
//!
//! Files have it as `set_weight` (`ComfyUI`), and as a `scale` alone on a norm: control adapters of Black Forest
//! Labs replace the scales of RMS norms.
//!
//! `ComfyUI`, `comfy/lora.py`; `InvokeAI`, `patches/layers/set_parameter_layer.py`.

use std::{ops::Range, sync::Arc};

use burn::tensor::{Device, FloatDType, Tensor, TensorData};

use crate::{
    BaseAccess, BaseLayer, KindDocs, LayerShape, Operator, Patch, PatchError, PatchKind, Replaced,
    TensorGroup,
    axes::{check_bias, check_weight},
    values::Values,
};

inventory::submit! {
    PatchKind::new(KIND, &[&[SET_WEIGHT], &[SCALE]], load)
        .with_docs(KindDocs {
            formula: "W = set_weight; the scale of a norm = scale",
            layers: "set_weight: all; scale: norm",
            strength: "none: the value stands at any strength but 0",
            source: "ComfyUI, comfy/lora.py; InvokeAI, patches/layers/set_parameter_layer.py",
        })
}

/// The parameter of a layer that is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// The weight, or a norm's scale.
    Weight,
    /// The bias, or a norm's shift.
    Bias,
}

/// A parameter's new value.
#[derive(Clone, Debug)]
pub struct SetParameter {
    parameter: Parameter,
    value: Values,
    is_for_norms: bool,
}

impl SetParameter {
    /// Replaces `parameter` by `value`, of the parameter's shape; it is kept on `device` in its own dtype.
    ///
    /// # Errors
    /// [`PatchError::WrongRank`], as for a bias that is no vector, [`PatchError::NotFloat`] or
    /// [`PatchError::NotFinite`], and [`PatchError::Inconsistent`] for a tensor without elements.
    pub fn new(
        parameter: Parameter,
        value: TensorData,
        device: &Device,
    ) -> Result<Self, PatchError> {
        let key = match parameter {
            Parameter::Weight => "weight",
            Parameter::Bias => "bias",
        };
        if parameter == Parameter::Bias && value.rank() != 1 {
            return Err(PatchError::WrongRank {
                target: KIND.into(),
                key: key.into(),
                found: value.shape().to_vec(),
                expected: "one dimension".into(),
            });
        }
        let mut group = TensorGroup::new(KIND, [(key.into(), value)].into());
        Self::take(parameter, &mut group, key, device)
    }

    fn take(
        parameter: Parameter,
        group: &mut TensorGroup,
        key: &str,
        device: &Device,
    ) -> Result<Self, PatchError> {
        Ok(Self {
            parameter,
            value: Values::take(group, key, device)?,
            is_for_norms: key == SCALE,
        })
    }

    fn is(&self, parameter: Parameter) -> bool {
        self.parameter == parameter
    }
}

fn load(mut group: TensorGroup, device: &Device) -> Result<Arc<dyn Patch>, PatchError> {
    let key = if group.has(SCALE) { SCALE } else { SET_WEIGHT };
    let patch = SetParameter::take(Parameter::Weight, &mut group, key, device)?;
    Ok(Arc::new(patch))
}

impl Patch for SetParameter {
    fn kind(&self) -> &str {
        KIND
    }

    fn base_access(&self) -> BaseAccess {
        match self.parameter {
            Parameter::Weight => BaseAccess::Weight,
            Parameter::Bias => BaseAccess::Shape,
        }
    }

    fn check(&self, layer: &LayerShape) -> Result<(), PatchError> {
        if self.is_for_norms && layer.operator() != Operator::Norm {
            return Err(PatchError::NoMeaning {
                kind: KIND.into(),
                operator: layer.operator(),
                why: "a `scale` without factors beside it replaces the scale of a norm".into(),
            });
        }
        match self.parameter {
            Parameter::Weight => check_weight(KIND, self.value.dims(), layer),
            Parameter::Bias => check_bias(KIND, self.value.shape()[0], layer),
        }
    }

    fn replaces(&self) -> Replaced {
        Replaced {
            weight: self.is(Parameter::Weight),
            bias: self.is(Parameter::Bias),
        }
    }

    fn at_strength(&self, _strength: f32) -> Option<Arc<dyn Patch>> {
        Some(Arc::new(self.clone()))
    }

    fn delta_weight(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        if self.is(Parameter::Bias) {
            return Ok(None);
        }
        let weight = base.weight_for(KIND)?;
        let value = self.value.of_shape(base.shape.matrix());
        Ok(Some(value - weight.clone()))
    }

    fn changes_bias(&self) -> bool {
        self.is(Parameter::Bias)
    }

    fn delta_bias(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<1>>, PatchError> {
        if self.is(Parameter::Weight) {
            return Ok(None);
        }
        let [length, _] = self.value.shape();
        let value = self.value.of_shape([length, 1]).reshape([length]);
        Ok(Some(match base.bias {
            Some(bias) => value - bias.clone(),
            None => value,
        }))
    }

    fn slice_rows(&self, rows: Range<usize>) -> Option<Arc<dyn Patch>> {
        Some(Arc::new(Self {
            value: self.value.rows(rows)?,
            ..self.clone()
        }))
    }

    fn to_device(&self, device: &Device, dtype: FloatDType) -> Arc<dyn Patch> {
        Arc::new(Self {
            value: self.value.moved(device, dtype),
            ..self.clone()
        })
    }

    fn num_bytes(&self) -> usize {
        self.value.num_bytes()
    }
}

const KIND: &str = "set-parameter";
const SET_WEIGHT: &str = "set_weight";
const SCALE: &str = "scale";
