//! Areas `patches` and `peers`: patches over one layer, by sidecar and merged.

use std::sync::Arc;

use burn::tensor::Device;
use overglaze_patches::{
    Component, Patch, PatchEntry, PatchSet, RowPart, RowRanges, TargetName,
    kinds::set_weight::{Parameter, SetParameter},
    registry,
};
use serde_json::Value;

use super::{
    Refusal, expected_names,
    sequence::{Expected, OutputDtype, Sequence, forms, in_words},
};
use crate::{Case, Comparison, ModuleCase};

/// Runs a case in every form its layer can have, and takes the worst.
pub(crate) fn run(case: &Case, device: &Device) -> Result<Comparison, Refusal> {
    let module = [(LAYER.to_owned(), ModuleCase::of(case))];
    let is_wider =
        module[0].1.kind() == "linear" && case.width("in.x") > case.width("param.weight");
    let mut forms = forms(&module, device)?;
    if is_wider {
        forms = forms.into_iter().map(Sequence::with_open_input).collect();
    }
    run_forms(case, device, OutputDtype::OfCase, forms)
}

/// Runs a case's patches over each of `forms`, and takes the worst.
pub(super) fn run_forms(
    case: &Case,
    device: &Device,
    dtype: OutputDtype,
    forms: Vec<Sequence>,
) -> Result<Comparison, Refusal> {
    run_forms_for(case, device, (expected_names(case)?, dtype), forms)
}

/// The same for some of the case's outputs.
pub(super) fn run_forms_for(
    case: &Case,
    device: &Device,
    (outputs, dtype): (Vec<&str>, OutputDtype),
    forms: Vec<Sequence>,
) -> Result<Comparison, Refusal> {
    let sets = patch_sets(case, device)?;
    let expected = Expected {
        sets: &sets,
        outputs,
        merged: case.listed("expect_merged"),
        dtype,
    };
    let mut worst: Option<Comparison> = None;
    for form in forms {
        let comparison = form.run(case, &expected, device)?;
        worst = Some(worst.map_or(comparison, |worst| worst.worst(comparison)));
    }
    worst.ok_or_else(|| Refusal::Failed("nothing to compare".into()))
}

/// One set per patch of the case, with its strength; built from the tensors, never from the label.
fn patch_sets(case: &Case, device: &Device) -> Result<Vec<(PatchSet, f32)>, Refusal> {
    let Value::Array(patches) = case.json("patches") else {
        return Err(Refusal::Failed("its `patches` are no list".into()));
    };
    patches
        .iter()
        .enumerate()
        .map(|(index, described)| {
            let patch = match &described["sub"] {
                Value::Array(parts) => row_ranges(case, index, parts, device)?,
                _ => one_patch(case, index, described, device)?,
            };
            let weight = described["weight"].as_f64().unwrap_or(1.0);
            #[expect(
                clippy::cast_possible_truncation,
                reason = "strengths are f32 by definition"
            )]
            Ok((set_of(&format!("patch.{index}"), patch), weight as f32))
        })
        .collect()
}

/// The patch of the tensors `patch.<index>.*`. A replaced parameter is spelled in the cases alone: its value, and
/// the parameter's name as an option.
fn one_patch(
    case: &Case,
    index: usize,
    described: &Value,
    device: &Device,
) -> Result<Arc<dyn Patch>, Refusal> {
    let Some(name) = described["param_name"].as_str() else {
        return detected(case, &format!("patch.{index}."), device);
    };
    let parameter = match name {
        "bias" => Parameter::Bias,
        _ => Parameter::Weight,
    };
    let value = case.data(&format!("patch.{index}.value"))?;
    let patch = SetParameter::new(parameter, value, device).map_err(in_words)?;
    Ok(Arc::new(patch))
}

fn row_ranges(
    case: &Case,
    index: usize,
    parts: &[Value],
    device: &Device,
) -> Result<Arc<dyn Patch>, Refusal> {
    let d_output = case.json("module")["out_features"].as_u64().unwrap_or(0);
    let row = |value: &Value| value.as_u64().and_then(|row| usize::try_from(row).ok());
    let parts = parts
        .iter()
        .enumerate()
        .map(|(part, described)| {
            let range = &described["range"];
            let (Some(start), Some(end)) = (row(&range[0]), row(&range[1])) else {
                return Err(Refusal::Failed(format!("part {part} has no `range`")));
            };
            let patch = detected(case, &format!("patch.{index}.sub.{part}."), device)?;
            Ok(RowPart {
                rows: start..end,
                patch,
            })
        })
        .collect::<Result<Vec<_>, Refusal>>()?;
    let d_output = usize::try_from(d_output).unwrap_or(0);
    Ok(Arc::new(RowRanges::new(d_output, parts).map_err(in_words)?))
}

/// A key set no kind accepts is a kind that is not there yet.
pub(super) fn detected(
    case: &Case,
    prefix: &str,
    device: &Device,
) -> Result<Arc<dyn Patch>, Refusal> {
    let group = case.group(prefix)?;
    if !registry::is_accepted(&group) {
        let keys: Vec<_> = group.tensors.keys().cloned().collect();
        return Err(Refusal::Unsupported(format!(
            "no patch kind accepts the keys {keys:?}"
        )));
    }
    registry::load(group, device).map_err(in_words)
}

/// A set of one patch for the case's one layer.
pub(super) fn set_of(name: &str, patch: Arc<dyn Patch>) -> PatchSet {
    let entry = PatchEntry {
        target: TargetName::Dotted(LAYER.into()),
        component: Component::Denoiser,
        patch,
        keys: vec![name.into()],
        dialect: "case",
    };
    PatchSet::new(name, vec![entry])
}

pub(super) const LAYER: &str = "layer";
