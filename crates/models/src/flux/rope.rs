//! Rotary positions: three axes (index, row, column) share the head's width, pairs interleaved.
//!
//! Axis a of width d turns the pair i of a head by `angle = position·10000^(−2i/d)`:
//! `(x₀, x₁) → (x₀·cos − x₁·sin, x₁·cos + x₀·sin)`. Angles are computed in f64, their sine and
//! cosine rounded to f32. Turned heads hold first all x₀, then all x₁: queries and keys alike, so that
//! their products are the same, and no pair has to be put back together.
//! Reference: Su et al., "`RoFormer`"; origin: diffusers `FluxPosEmbed`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::tensor::{DType, Device, Tensor, TensorData};

use crate::{flux::PositionIds, rounded};

/// Sines and cosines of a sequence, both `[1, tokens, 1, head_dim / 2, 1]`.
#[derive(Clone, Debug)]
pub(crate) struct Rotary {
    cos: Tensor<5>,
    sin: Tensor<5>,
}

impl Rotary {
    pub(crate) fn new(ids: &[PositionIds; 2], axes: &[usize], device: &Device) -> Self {
        let num_tokens = ids.iter().map(PositionIds::len).sum();
        let num_pairs = axes.iter().sum::<usize>() / 2;
        let frequencies: Vec<(usize, f64)> = axes.iter().enumerate().flat_map(axis).collect();
        let mut cos = Vec::with_capacity(num_tokens * num_pairs);
        let mut sin = Vec::with_capacity(num_tokens * num_pairs);
        for position in ids.iter().flat_map(PositionIds::as_slice) {
            for (axis, frequency) in &frequencies {
                let (sine, cosine) = (f64::from(position[*axis]) * frequency).sin_cos();
                cos.push(rounded(cosine));
                sin.push(rounded(sine));
            }
        }
        let tensor = |values| {
            let data = TensorData::new(values, [1, num_tokens, 1, num_pairs, 1]);
            Tensor::from_data(data, (device, DType::F32))
        };
        Self {
            cos: tensor(cos),
            sin: tensor(sin),
        }
    }

    /// Turns every head of `x` `[batch, tokens, heads, head_dim]`.
    pub(crate) fn apply(&self, x: Tensor<4>) -> Tensor<4> {
        let [batch, tokens, heads, head_dim] = x.dims();
        let num_pairs = head_dim / 2;
        let pairs: Tensor<5> = x.reshape([batch, tokens, heads, num_pairs, 2]);
        let (first, second) = (pairs.clone().narrow(4, 0, 1), pairs.narrow(4, 1, 1));
        let turned = [
            first.clone() * self.cos.clone() - second.clone() * self.sin.clone(),
            second * self.cos.clone() + first * self.sin.clone(),
        ];
        let halves = turned.map(|half| half.reshape([batch, tokens, heads, num_pairs]));
        Tensor::cat(halves.into(), 3)
    }
}

/// The last few rotary tables of a model, shared by its clones: every step of a run uses the same ones,
/// and runs of other sizes may go on beside it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RotaryCache(Arc<Mutex<Vec<Cached>>>);

#[derive(Debug)]
struct Cached {
    ids: [PositionIds; 2],
    device: Device,
    rotary: Rotary,
}

impl RotaryCache {
    /// The tables of text positions followed by image positions.
    pub(crate) fn rotary(&self, ids: [PositionIds; 2], axes: &[usize], device: &Device) -> Rotary {
        if let Some(hit) = self.find(&ids, device) {
            return hit;
        }
        // Computed without the lock, so that nobody else waits for it.
        let rotary = Rotary::new(&ids, axes, device);
        let mut entries = self.entries();
        if entries.len() == MAX_ENTRIES {
            entries.remove(0);
        }
        entries.push(Cached {
            ids,
            device: device.clone(),
            rotary: rotary.clone(),
        });
        rotary
    }

    /// The tables that are there, which are then the last to go.
    fn find(&self, ids: &[PositionIds; 2], device: &Device) -> Option<Rotary> {
        let mut entries = self.entries();
        let is_hit = |entry: &Cached| entry.ids == *ids && entry.device == *device;
        let index = entries.iter().position(is_hit)?;
        entries[index..].rotate_left(1);
        entries.last().map(|entry| entry.rotary.clone())
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Cached>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

const THETA: f64 = 10_000.0;

/// Tables kept at once; for 4,608 tokens of FLUX.1 one is 2.4 MB.
const MAX_ENTRIES: usize = 4;
