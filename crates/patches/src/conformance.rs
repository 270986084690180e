//! Checks that a patch keeps every promise of [`Patch`], for the tests of whoever writes a kind.
//!
//! A layer relies on those promises without looking: it adds a sidecar's output where it could have added ΔW, cuts a
//! patch where a weight is split, and moves it between devices. [`check`] asks a patch the same thing in all the ways a
//! layer may, on layers of the caller's choice with made-up values, and names the promise whose answers differ.
//!
//! # Examples
//! ```
//! use burn::tensor::{Device, TensorData};
//! use overglaze_patches::{LayerShape, TensorGroup, conformance, registry};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let factor = |shape: [usize; 2]| TensorData::full(shape, 0.5_f32);
//! let tensors = [("lora_up.weight", factor([4, 2])), ("lora_down.weight", factor([2, 3]))];
//! let tensors = tensors.map(|(key, data)| (key.to_owned(), data));
//! let group = TensorGroup::new("layer", tensors.into_iter().collect());
//! let patch = registry::load(group, &Device::flex())?;
//! conformance::check(
//!     &patch,
//!     &[LayerShape::linear(4, 3)],
//!     &[LayerShape::linear(5, 3), LayerShape::norm(4)],
//!     &Device::flex(),
//! )?;
//! # Ok(())
//! # }
//! ```

mod promise;
mod sample;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use burn::tensor::{Device, FloatDType};

use crate::{BaseAccess, LayerShape, Operator, Patch, PatchError};
pub use promise::{Nonconformance, Promise};
use sample::{Answer, Sample, difference};

/// Checks `patch` on every layer of `fitting`, and that it refuses every layer of `unfitting`; tensors are made on
/// `device`.
///
/// # Errors
/// The first promise that is not kept.
pub fn check(
    patch: &Arc<dyn Patch>,
    fitting: &[LayerShape],
    unfitting: &[LayerShape],
    device: &Device,
) -> Result<(), Nonconformance> {
    for layer in unfitting {
        guarded(patch, layer, || check_refused(patch, layer))?;
    }
    for layer in strange_layers() {
        guarded(patch, &layer, || match patch.check(&layer) {
            Ok(()) => Ok(()),
            Err(error) => check_reason(&error),
        })?;
    }
    for layer in fitting {
        guarded(patch, layer, || check_layer(patch, layer, device))?;
    }
    Ok(())
}

/// A broken promise, before it is known of whom.
type Broken = (Promise, String);

/// Names patch and layer of what `ask` finds, and takes a panic for a find.
fn guarded(
    patch: &Arc<dyn Patch>,
    layer: &LayerShape,
    ask: impl FnOnce() -> Result<(), Broken>,
) -> Result<(), Nonconformance> {
    let answer = catch_unwind(AssertUnwindSafe(ask));
    let answer = answer.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).into()));
        Err((Promise::NoPanic, text.unwrap_or_default()))
    });
    answer.map_err(|(promise, found)| Nonconformance {
        kind: patch.kind().into(),
        layer: layer.to_string(),
        promise,
        found,
    })
}

fn check_refused(patch: &Arc<dyn Patch>, layer: &LayerShape) -> Result<(), Broken> {
    match patch.check(layer) {
        Ok(()) => broken(
            Promise::Check,
            "it accepts the layer, which it is said not to fit",
        ),
        Err(error) => check_reason(&error),
    }
}

/// A refusal must say what was found and expected, or why the kind has no meaning there.
fn check_reason(error: &PatchError) -> Result<(), Broken> {
    match error {
        PatchError::DoesNotFit { .. }
        | PatchError::OtherAxes { .. }
        | PatchError::NoMeaning { .. }
        | PatchError::NeedsWholeBase { .. } => Ok(()),
        other => broken(
            Promise::Check,
            format!("it refuses with `{other}`, expected `DoesNotFit` or `NoMeaning`"),
        ),
    }
}

fn check_layer(patch: &Arc<dyn Patch>, layer: &LayerShape, device: &Device) -> Result<(), Broken> {
    if let Err(error) = patch.check(layer) {
        return broken(Promise::Check, format!("it refuses the layer: {error}"));
    }
    if patch.num_bytes() == 0 {
        return broken(Promise::NumBytes, "it has 0 bytes");
    }
    let sample = Sample::new(layer, 1, device);
    let whole = sample.answer(patch)?;
    check_access(patch, &sample, &whole)?;
    sample.without_bias().answer(patch)?;
    check_factors(patch, &whole)?;
    check_sidecars(patch, &sample, &whole)?;
    check_replaced(patch, layer, &whole, device)?;
    check_strengths(patch, &sample, &whole)?;
    check_rows(patch, &sample, &whole)?;
    check_moved(patch, &sample, &whole)
}

fn check_access(patch: &Arc<dyn Patch>, sample: &Sample, whole: &Answer) -> Result<(), Broken> {
    let blind = patch.delta_weight(&sample.blind());
    let is_same = match (patch.base_access(), blind) {
        (BaseAccess::Weight, Err(PatchError::BaseUnavailable { .. })) => return Ok(()),
        (BaseAccess::Weight, _) => {
            let found = "it reads the base, and answers without its values";
            return broken(Promise::BaseAccess, found);
        }
        (BaseAccess::Shape, Ok(delta)) => {
            delta.is_some() == whole.weight.is_some() && {
                let pair = delta.zip(whole.weight.clone());
                pair.is_none_or(|(blind, seen)| difference(&blind, &seen, EXACT).is_none())
            }
        }
        (BaseAccess::Shape, Err(_)) => false,
    };
    match is_same {
        true => Ok(()),
        false => broken(
            Promise::BaseAccess,
            "it asks for the shape alone, and ΔW depends on the base's values",
        ),
    }
}

fn check_factors(patch: &Arc<dyn Patch>, whole: &Answer) -> Result<(), Broken> {
    let Some(factors) = patch.low_rank() else {
        return Ok(());
    };
    let (up, down) = (factors.up.dims(), factors.down.dims());
    let Some(weight) = &whole.weight else {
        return broken(Promise::LowRank, "there are factors and no ΔW");
    };
    let expected = weight.dims();
    if [up[0], down[1]] != expected || up[1] != down[0] {
        let found = format!("the factors {up:?} and {down:?} are not of ΔW {expected:?}");
        return broken(Promise::LowRank, found);
    }
    sample::check_float(Promise::LowRank, &factors.up)?;
    sample::check_float(Promise::LowRank, &factors.down)?;
    let unlike = difference(&factors.product(), weight, CLOSE);
    same(Promise::LowRank, "the product", unlike)
}

fn check_sidecars(patch: &Arc<dyn Patch>, sample: &Sample, whole: &Answer) -> Result<(), Broken> {
    let width = whole.weight.as_ref().map_or(0, |weight| weight.dims()[1]);
    match sample.shape().operator() {
        Operator::Linear => {
            let input = sample.rows(width.max(sample.shape().d_input()));
            let Some(found) = patch.sidecar_linear(input.clone()) else {
                return Ok(());
            };
            let Some(weight) = &whole.weight else {
                return broken(Promise::SidecarLinear, "there is an output and no ΔW");
            };
            sample::check_float(Promise::SidecarLinear, &found)?;
            let expected = input.matmul(weight.clone().transpose());
            let unlike = difference(&found, &expected, CLOSE);
            same(Promise::SidecarLinear, "its output", unlike)
        }
        Operator::Conv { .. } => {
            let input = sample.conv_input();
            let Some(found) = patch.sidecar_conv(&input) else {
                return Ok(());
            };
            let Some(weight) = &whole.weight else {
                return broken(Promise::SidecarConv, "there is an output and no ΔW");
            };
            let (kernel, groups) = (sample.shape().kernel(), sample.shape().groups());
            let expected = input.convolve(weight.clone(), kernel, groups);
            let unlike = sample::unlike_features(&found, &expected, CLOSE);
            same(Promise::SidecarConv, "its output", unlike)
        }
        _ => Ok(()),
    }
}

/// What is replaced is the same over another base, and at another strength.
fn check_replaced(
    patch: &Arc<dyn Patch>,
    layer: &LayerShape,
    whole: &Answer,
    device: &Device,
) -> Result<(), Broken> {
    let replaced = patch.replaces();
    let (first, second) = (Sample::new(layer, 1, device), Sample::new(layer, 2, device));
    let other = second.answer(patch)?;
    let half = patch.at_strength(0.5);
    if (replaced.weight || replaced.bias) && half.is_none() {
        return broken(
            Promise::Replaces,
            "it replaces, and its residual depends on the strength",
        );
    }
    let half = half.map(|half| first.answer(&half)).transpose()?;
    let mut results = vec![second.patched(&other)];
    results.extend(half.map(|half| first.patched(&half)));
    let (weight, bias) = first.patched(whole);
    for (other_weight, other_bias) in results {
        if replaced.weight {
            let unlike = difference(&other_weight, &weight, CLOSE);
            same(Promise::Replaces, "the replaced weight", unlike)?;
        }
        if replaced.bias {
            let unlike = difference(&other_bias, &bias, CLOSE);
            same(Promise::Replaces, "the replaced bias", unlike)?;
        }
    }
    Ok(())
}

fn check_strengths(patch: &Arc<dyn Patch>, sample: &Sample, whole: &Answer) -> Result<(), Broken> {
    let at = |strength: f32| patch.at_strength(strength);
    let strengths = [1.0, 0.5, -1.0, 2.0, 1e-3, 1e-4];
    let answered = strengths.iter().filter(|strength| at(**strength).is_some());
    match answered.count() {
        0 => return Ok(()),
        count if count == strengths.len() => {}
        _ => {
            let found = "it answers at some strengths and not at others";
            return broken(Promise::AtStrength, found);
        }
    }
    let mut answers = Vec::new();
    for strength in strengths {
        if let Some(patch) = at(strength) {
            answers.push(sample.answer(&patch)?);
        }
    }
    let twice = at(0.5).and_then(|half| half.at_strength(2.0));
    let again = twice.map(|patch| sample.answer(&patch)).transpose()?;
    for (what, found) in [
        ("the residual at 1", answers.first()),
        ("at 0.5, then at 2", again.as_ref()),
    ] {
        if let Some(found) = found {
            same(Promise::AtStrength, what, found.unlike(whole, CLOSE))?;
        }
    }
    if let [.., above, below] = answers.as_slice() {
        same(
            Promise::AtStrength,
            "the residual near 0",
            above.unlike(below, NEAR),
        )?;
    }
    Ok(())
}

fn check_rows(patch: &Arc<dyn Patch>, sample: &Sample, whole: &Answer) -> Result<(), Broken> {
    let (shape, d_output) = (sample.shape(), sample.shape().d_output());
    if patch.d_input(shape) != shape.d_input() || shape.groups() > 1 {
        return Ok(());
    }
    let half = d_output / 2;
    let last = d_output.saturating_sub(1);
    for rows in [
        0..d_output,
        0..half,
        half..d_output,
        1..last,
        last..d_output + 1,
    ] {
        let part = patch.slice_rows(rows.clone());
        let Some(part) = part.filter(|_| !rows.is_empty() && rows.end <= d_output) else {
            continue;
        };
        let cut = sample.cut(rows.clone());
        if let Err(error) = part.check(cut.shape()) {
            let found = format!("rows {rows:?} do not fit a layer of as many: {error}");
            return broken(Promise::SliceRows, found);
        }
        let what = format!("the residual of rows {rows:?}");
        let unlike = cut.answer(&part)?.unlike(&whole.cut(rows), CLOSE);
        same(Promise::SliceRows, &what, unlike)?;
    }
    Ok(())
}

fn check_moved(patch: &Arc<dyn Patch>, sample: &Sample, whole: &Answer) -> Result<(), Broken> {
    for (dtype, tolerance) in [(FloatDType::F32, CLOSE), (FloatDType::BF16, COARSE)] {
        let moved = patch.to_device(sample.device(), dtype);
        let is_same = moved.kind() == patch.kind()
            && moved.replaces() == patch.replaces()
            && moved.base_access() == patch.base_access()
            && moved.changes_bias() == patch.changes_bias()
            && moved.check(sample.shape()).is_ok();
        if !is_same {
            return broken(
                Promise::ToDevice,
                "the copy is another patch by what it says of itself",
            );
        }
        let unlike = sample.answer(&moved)?.unlike(whole, tolerance);
        same(Promise::ToDevice, "the copy's residual", unlike)?;
    }
    let unlike = sample.answer(patch)?.unlike(whole, EXACT);
    same(
        Promise::ToDevice,
        "the residual after a copy was made",
        unlike,
    )
}

fn broken(promise: Promise, found: impl Into<String>) -> Result<(), Broken> {
    Err((promise, found.into()))
}

fn same(promise: Promise, what: &str, unlike: Option<String>) -> Result<(), Broken> {
    unlike.map_or(Ok(()), |unlike| {
        broken(promise, format!("{what} differs: {unlike}"))
    })
}

/// Layers that no file is for, to which a patch must answer all the same.
fn strange_layers() -> [LayerShape; 6] {
    [
        LayerShape::linear(0, 0),
        LayerShape::linear(1, 1),
        LayerShape::conv(&[1, 1, 1, 1], 1),
        LayerShape::embedding(1, 1),
        LayerShape::norm(1),
        LayerShape::parameter(&[]),
    ]
}

/// Nothing is computed in another order.
const EXACT: f32 = 0.0;
/// Sums of f32 products in another order, over at most some thousand terms, of the largest value.
const CLOSE: f32 = 1e-4;
/// Factors rounded to bf16, 2⁻⁸ each, of the largest value of residual and base.
const COARSE: f32 = 0.05;
/// A thousandth of the strength changes a residual by about as much of it.
const NEAR: f32 = 0.02;
