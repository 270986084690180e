//! Weight decomposition around any other kind: DoRA.
//!
//! `V = W + ΔW`, ΔW of the inner patch at strength 1; `ΔW_dora = V · m / (‖V‖ + ε) − W`; Δb of the inner patch. The
//! residual of the whole is proportional to the strength, `W + s(W′ − W)`, as in `InvokeAI` and `ComfyUI`.
//!
//! | key | m | ‖V‖ over | ε |
//! |---|---|---|---|
//! | `lora_magnitude_vector` (PEFT), `magnitude` (ai-toolkit) | one an output, in any shape | everything but outputs | 0 |
//! | the same on an embedding | one an input, `[d_model]` | the vocabulary | 0 |
//! | `dora_scale` `[d_output, 1, …]` | one an output | everything but outputs | that of f32 |
//! | `dora_scale` `[1, d_input, 1, …]` | one an input channel | everything but inputs | that of f32 |
//! | `dora_scale` `[N]` | outputs where N are, else inputs | | that of f32 |
//!
//! `[1, N, 1, 1]` is an output vector in PEFT and an input one in LyCORIS: the key tells, never the size.
//!
//! Liu et al., "DoRA: Weight-Decomposed Low-Rank Adaptation", 2024, equation 5; axes: LyCORIS `wd_on_out`.

use std::{ops::Range, sync::Arc};

use burn::tensor::{Device, FloatDType, Tensor};

use crate::{
    BaseAccess, BaseLayer, KindDocs, LayerShape, Operator, Patch, PatchError, PatchKind, Replaced,
    TensorGroup,
    patch::{moved, tensor_bytes, wide},
    slice_rows,
};

inventory::submit! {
    PatchKind::wrapper(KIND, &[&[SCALE], &[MAGNITUDE]], wrap)
        .with_aliases(ALIASES)
        .with_docs(KindDocs {
            formula: "V = W + ΔW of the inner kind; ΔW' = V · m / (‖V‖ + ε) − W",
            layers: "those of the inner kind",
            strength: "proportional: W + s(W' − W)",
            source: "Liu et al. 2024, \"DoRA\", equation 5",
        })
}

#[derive(Clone, Debug)]
struct Dora {
    inner: Arc<dyn Patch>,
    /// m `[d_output]` or `[d_input]`.
    magnitude: Tensor<1>,
    side: Side,
    /// ε.
    epsilon: f32,
}

/// What m has a value for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Output,
    Input,
    /// Outputs, and of an embedding inputs, of which PEFT multiplies the transpose.
    Peft,
    /// Outputs where m has as many values, else inputs.
    BySize,
}

fn wrap(
    inner: Arc<dyn Patch>,
    mut group: TensorGroup,
    device: &Device,
) -> Result<Arc<dyn Patch>, PatchError> {
    if group.has(SCALE) && group.has(MAGNITUDE) {
        let why = format!("`{SCALE}` and `{MAGNITUDE}` are both there, expected one magnitude");
        return Err(group.inconsistent(why));
    }
    if inner.replaces().weight {
        let why = format!("a {} patch has no difference to decompose", inner.kind());
        return Err(group.inconsistent(why));
    }
    let (key, epsilon) = match group.has(SCALE) {
        true => (SCALE, f32::EPSILON),
        false => (MAGNITUDE, 0.0),
    };
    let (magnitude, axis) = group.take_vector(key, device)?;
    let side = match axis {
        _ if key == MAGNITUDE => Side::Peft,
        Some(0) => Side::Output,
        Some(1) => Side::Input,
        Some(axis) => {
            let why = format!(
                "`{key}` has its values on axis {axis} (from 0), expected them on axis 0 for outputs or 1 for \
                 inputs"
            );
            return Err(group.inconsistent(why));
        }
        None => Side::BySize,
    };
    Ok(Arc::new(Dora {
        inner,
        magnitude,
        side,
        epsilon,
    }))
}

impl Patch for Dora {
    fn kind(&self) -> &str {
        KIND
    }

    fn base_access(&self) -> BaseAccess {
        BaseAccess::Weight
    }

    fn check(&self, layer: &LayerShape) -> Result<(), PatchError> {
        if !layer.is_matrix() {
            return Err(PatchError::NoMeaning {
                kind: KIND.into(),
                operator: layer.operator(),
                why: "it needs the norms of a weight matrix".into(),
            });
        }
        // A whole layer of as many rows whose input is closed: norms are of the base's columns.
        self.inner.check(&layer.with_rows(layer.d_output()))?;
        self.side_on(layer).map(|_| ())
    }

    fn replaces(&self) -> Replaced {
        self.inner.replaces()
    }

    fn delta_weight(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        let weight = base.weight_for(KIND)?;
        let changed = match self.inner.delta_weight(base)? {
            Some(delta) => weight.clone() + wide(&delta),
            None => weight.clone(),
        };
        let rescaled = match self.side_on(base.shape)? {
            Side::Input => self.per_input(changed, base.shape),
            _ => self.per_output(changed),
        };
        Ok(Some(rescaled - weight.clone()))
    }

    fn changes_bias(&self) -> bool {
        self.inner.changes_bias()
    }

    fn delta_bias(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<1>>, PatchError> {
        self.inner.delta_bias(base)
    }

    fn slice_rows(&self, rows: Range<usize>) -> Option<Arc<dyn Patch>> {
        let num_values = self.magnitude.dims()[0];
        let is_output = match self.side {
            Side::Output => true,
            Side::Input => false,
            Side::Peft | Side::BySize => rows_of(&*self.inner) == Some(num_values),
        };
        // The norms of inputs are over all rows.
        if !is_output || rows.is_empty() || rows.end > num_values {
            return None;
        }
        Some(Arc::new(Self {
            inner: slice_rows(&self.inner, rows.clone()),
            magnitude: self.magnitude.clone().slice([rows]),
            side: match self.side {
                // A cut embedding is refused: its norms were over all rows.
                Side::Peft => Side::Peft,
                _ => Side::Output,
            },
            epsilon: self.epsilon,
        }))
    }

    fn to_device(&self, device: &Device, dtype: FloatDType) -> Arc<dyn Patch> {
        Arc::new(Self {
            inner: self.inner.to_device(device, dtype),
            magnitude: moved(&self.magnitude, device, dtype),
            ..self.clone()
        })
    }

    fn num_bytes(&self) -> usize {
        self.inner.num_bytes() + tensor_bytes(&self.magnitude)
    }
}

impl Dora {
    fn side_on(&self, layer: &LayerShape) -> Result<Side, PatchError> {
        let [num_values] = self.magnitude.dims();
        let fits = |side| match side {
            Side::Input => num_values == layer.d_input(),
            _ => num_values == layer.d_output(),
        };
        let sides: &[Side] = match self.side {
            Side::Peft if layer.operator() == Operator::Embedding => &[Side::Input],
            Side::Output | Side::Peft => &[Side::Output],
            Side::Input => &[Side::Input],
            Side::BySize => &[Side::Output, Side::Input],
        };
        let fitting = sides.iter().copied().find(|side| fits(*side));
        fitting.ok_or_else(|| PatchError::DoesNotFit {
            kind: KIND.into(),
            patch: match sides {
                [Side::Input] => [layer.d_output(), num_values],
                _ => [num_values, layer.fan_in()],
            },
            base: layer.dims().into(),
        })
    }

    /// `changed` `[d_output, fan_in]` with rows of the length m.
    fn per_output(&self, changed: Tensor<2>) -> Tensor<2> {
        let norms = changed.clone().square().sum_dim(1).sqrt();
        let magnitude = wide(&self.magnitude).unsqueeze_dim::<2>(1);
        changed * self.factors(magnitude, norms)
    }

    /// `changed` `[d_output, fan_in]` with the length m in all that belongs to one input.
    fn per_input(&self, changed: Tensor<2>, layer: &LayerShape) -> Tensor<2> {
        let [d_output, fan_in] = changed.dims();
        let d_input = layer.d_input();
        let changed = changed.reshape([d_output, d_input, fan_in / d_input]);
        let norms = changed.clone().square().sum_dim(0).sum_dim(2).sqrt();
        let magnitude = wide(&self.magnitude).reshape([1, d_input, 1]);
        (changed * self.factors(magnitude, norms)).reshape([d_output, fan_in])
    }

    /// `m / (‖V‖ + ε)`, and any finite number where there is no V.
    fn factors<const D: usize>(&self, magnitude: Tensor<D>, norms: Tensor<D>) -> Tensor<D> {
        let is_zero = norms.clone().equal_elem(0.0);
        magnitude / norms.add_scalar(self.epsilon).mask_fill(is_zero, 1.0)
    }
}

/// Rows of the weight that `patch` is for: it states them when it is asked about another shape.
fn rows_of(patch: &dyn Patch) -> Option<usize> {
    match patch.check(&LayerShape::linear(0, 0)) {
        Err(PatchError::DoesNotFit { patch, .. }) => Some(patch[0]),
        _ => None,
    }
}

const KIND: &str = "dora";
/// The spelling whose axis is told by its shape.
const SCALE: &str = "dora_scale";
/// The spelling that has a value an output, or an embedding's input, whatever its shape.
const MAGNITUDE: &str = "lora_magnitude_vector";
/// PEFT may write the adapter's name between, and wrote a parameter before it wrote a module.
const ALIASES: &[(&str, &str)] = &[
    ("lora_magnitude_vector.weight", MAGNITUDE),
    ("lora_magnitude_vector.*.weight", MAGNITUDE),
    ("lora_magnitude_vector.*", MAGNITUDE),
    ("lora_magnitude", MAGNITUDE),
    ("magnitude", MAGNITUDE),
];
