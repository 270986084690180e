//! Rotary position embedding over three axes, pairs interleaved.
//!
//! Axis a of width d turns the pair i of a head by `angle = position·10000^(−2i/d)`:
//! `(x₀, x₁) → (x₀·cos − x₁·sin, x₁·cos + x₀·sin)`. Angles are computed in f64, their sine and
//! cosine rounded to f32. Reference: Su et al., "`RoFormer`"; origin: diffusers `FluxPosEmbed`.

use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::{DType, Device, Tensor, TensorData};

use crate::flux::PositionIds;

/// Sines and cosines of a sequence, both `[1, tokens, head_dim / 2, 2]`.
#[derive(Clone, Debug)]
pub(crate) struct Rotary {
    cos: Tensor<4>,
    /// With the first of each pair negated.
    sin: Tensor<4>,
}

impl Rotary {
    pub(crate) fn new(ids: &[PositionIds; 2], axes: &[usize], device: &Device) -> Self {
        let num_tokens = ids.iter().map(PositionIds::len).sum();
        let num_pairs = axes.iter().sum::<usize>() / 2;
        let frequencies: Vec<(usize, f64)> = axes.iter().enumerate().flat_map(axis).collect();
        let mut cos = Vec::with_capacity(num_tokens * num_pairs * 2);
        let mut sin = Vec::with_capacity(num_tokens * num_pairs * 2);
        for position in ids.iter().flat_map(PositionIds::as_slice) {
            for (axis, frequency) in &frequencies {
                let angle = f64::from(position[*axis]) * frequency;
                let (sine, cosine) = (single(angle.sin()), single(angle.cos()));
                cos.extend([cosine, cosine]);
                sin.extend([-sine, sine]);
            }
        }
        let tensor = |values| {
            let data = TensorData::new(values, [1, num_tokens, num_pairs, 2]);
            Tensor::from_data(data, (device, DType::F32))
        };
        Self {
            cos: tensor(cos),
            sin: tensor(sin),
        }
    }

    /// Turns every head of `x` `[batch, heads, tokens, head_dim]`.
    pub(crate) fn apply(&self, x: Tensor<4>) -> Tensor<4> {
        let [batch, heads, tokens, head_dim] = x.dims();
        let pairs = x.reshape([batch * heads, tokens, head_dim / 2, 2]);
        let swapped = pairs.clone().flip([3]);
        let turned = pairs * self.cos.clone() + swapped * self.sin.clone();
        turned.reshape([batch, heads, tokens, head_dim])
    }
}

/// The last rotary tables, kept because every step of a run uses the same ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct RotaryCache(Arc<Mutex<Option<Cached>>>);

#[derive(Clone, Debug)]
struct Cached {
    ids: [PositionIds; 2],
    device: Device,
    rotary: Rotary,
}

impl RotaryCache {
    /// The tables of text positions followed by image positions.
    pub(crate) fn rotary(&self, ids: [PositionIds; 2], axes: &[usize], device: &Device) -> Rotary {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hit) = cached
            .as_ref()
            .filter(|hit| hit.ids == ids && hit.device == *device)
        {
            return hit.rotary.clone();
        }
        let rotary = Rotary::new(&ids, axes, device);
        *cached = Some(Cached {
            ids,
            device: device.clone(),
            rotary: rotary.clone(),
        });
        rotary
    }
}

/// The frequencies of one axis, each with the axis's index.
fn axis((index, width): (usize, &usize)) -> impl Iterator<Item = (usize, f64)> {
    let width = f64::from(u32::try_from(*width).expect("the configuration caps widths at 2^20"));
    let exponents = (0u32..).map(move |pair| f64::from(2 * pair) / width);
    exponents
        .take_while(|exponent| *exponent < 1.0)
        .map(move |e| (index, THETA.powf(e).recip()))
}

/// Rounds to f32.
#[expect(
    clippy::cast_possible_truncation,
    reason = "rounding to f32 is what is wanted"
)]
fn single(value: f64) -> f32 {
    value as f32
}

const THETA: f64 = 10_000.0;
