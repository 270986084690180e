//! Area `patches`: patches over one layer, by sidecar and merged.

use std::sync::Arc;

use burn::tensor::Device;
use overglaze_core::{
    LayerTree, NameTable, PatchedLayer, PatchedLinear, merge, mount, restore, unmount,
};
use overglaze_patches::{Patch, PatchEntry, PatchSet, RowPart, RowRanges, TargetName, registry};
use serde_json::Value;

use super::{
    Refusal, against, expected_names,
    layers::{burn_linear, forward, module_kind, packed_linear},
};
use crate::{Case, Comparison};

/// Runs a linear case by sidecar and merged, over packed bytes and over a Burn layer; takes the worst.
pub(crate) fn run(case: &Case, device: &Device) -> Result<Comparison, Refusal> {
    let kind = module_kind(case);
    if kind != "linear" {
        return Err(Refusal::Unsupported(format!("module `{kind}`")));
    }
    if case.width("in.x") != case.width("param.weight") {
        return Err(Refusal::Unsupported("an input wider than the layer".into()));
    }
    let sets = patch_sets(case, device)?;
    let bases = [
        packed_linear(case, device)?,
        burn_linear(case, device)?.into(),
    ];
    let mut worst: Option<Comparison> = None;
    for base in bases {
        for comparison in run_over(base, &sets, case, device)? {
            worst = Some(worst.map_or(comparison, |worst| worst.worst(comparison)));
        }
    }
    worst.ok_or_else(|| Refusal::Failed("nothing to compare".into()))
}

fn run_over(
    base: PatchedLinear,
    sets: &[(PatchSet, f32)],
    case: &Case,
    device: &Device,
) -> Result<Vec<Comparison>, Refusal> {
    let mut tree = OneLayer::new(base).map_err(in_words)?;
    let unpatched = forward(&tree.layer, case, device)?;
    let mut comparisons = Vec::new();
    for (set, strength) in sets {
        mount(&mut tree, &set.name, set, *strength).map_err(in_words)?;
    }
    let sidecar = forward(&tree.layer, case, device)?;
    for (set, _) in sets {
        unmount(&mut tree, &set.name).map_err(in_words)?;
    }
    let named: Vec<_> = sets
        .iter()
        .map(|(set, strength)| (&*set.name, set, *strength))
        .collect();
    merge(&mut tree, &named).map_err(in_words)?;
    let merged = forward(&tree.layer, case, device)?;
    for name in expected_names(case)? {
        comparisons.push(against(case, name, &sidecar)?);
        comparisons.push(against(case, name, &merged)?);
    }
    let (weight, bias) = tree.layer.effective_values(device).map_err(in_words)?;
    for name in case.listed("expect_merged") {
        let found = match name.rsplit('.').next() {
            Some("weight") => weight.clone().into_data(),
            Some("bias") => bias
                .clone()
                .ok_or("the merged layer has no bias".to_owned())?
                .into_data(),
            _ => return Err(Refusal::Unsupported(format!("merged parameter `{name}`"))),
        };
        comparisons.push(against(case, name, &found)?);
    }
    restore(&mut tree);
    if forward(&tree.layer, case, device)?.as_bytes() != unpatched.as_bytes() {
        return Err(Refusal::Failed(
            "the base output changed by mounting or merging".into(),
        ));
    }
    Ok(comparisons)
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
                _ => detected(case, &format!("patch.{index}."), device)?,
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
fn detected(case: &Case, prefix: &str, device: &Device) -> Result<Arc<dyn Patch>, Refusal> {
    let group = case.group(prefix)?;
    if !registry::kinds().iter().any(|kind| kind.accepts(&group)) {
        let keys: Vec<_> = group.tensors.keys().cloned().collect();
        return Err(Refusal::Unsupported(format!(
            "no patch kind accepts the keys {keys:?}"
        )));
    }
    registry::load(group, device).map_err(in_words)
}

fn set_of(name: &str, patch: Arc<dyn Patch>) -> PatchSet {
    let entry = PatchEntry {
        target: TargetName::Dotted(LAYER.into()),
        patch,
        keys: vec![name.into()],
        dialect: "case",
    };
    PatchSet::new(name, vec![entry])
}

fn in_words(error: impl std::error::Error) -> Refusal {
    Refusal::Failed(error.to_string())
}

/// A model of one layer.
struct OneLayer {
    layer: PatchedLinear,
    names: NameTable,
}

impl OneLayer {
    fn new(layer: PatchedLinear) -> Result<Self, overglaze_core::Error> {
        let mut names = NameTable::default();
        names.add_layer(LAYER, layer.d_output())?;
        Ok(Self { layer, names })
    }
}

impl LayerTree for OneLayer {
    fn visit_layers(&self, visitor: &mut dyn FnMut(&str, &dyn PatchedLayer)) {
        visitor(LAYER, &self.layer);
    }

    fn visit_layers_mut(&mut self, visitor: &mut dyn FnMut(&str, &mut dyn PatchedLayer)) {
        visitor(LAYER, &mut self.layer);
    }

    fn names(&self) -> &NameTable {
        &self.names
    }
}

const LAYER: &str = "layer";
