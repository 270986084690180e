//! Area `adapters`: whole adapters as LyCORIS and PEFT save them, over the layers they were made for.

use std::path::Path;

use burn::tensor::{Device, TensorData};
use overglaze_patches::{AdapterConfig, PatchSet};
use serde_json::Value;

use super::{
    Refusal, expected_names,
    patches::{LAYER, detected, set_of},
    sequence::{Expected, OutputDtype, forms, in_words},
};
use crate::{Case, Comparison, ModuleCase};

/// Runs every expected output, `out.strength_S.y`, in every form the layers can have, and takes the worst.
pub(crate) fn run(case: &Case, device: &Device) -> Result<Comparison, Refusal> {
    let modules = modules(case);
    let mut worst: Option<Comparison> = None;
    for (strength, output) in strengths(case)? {
        let sets = [(set(case, device)?, strength)];
        let expected = Expected {
            sets: &sets,
            outputs: output.into_iter().collect(),
            dtype: OutputDtype::OfCase,
            merged: Vec::new(),
        };
        for form in forms(&modules, device)? {
            let comparison = form.run(case, &expected, device)?;
            worst = Some(worst.map_or(comparison, |worst| worst.worst(comparison)));
        }
    }
    worst.ok_or_else(|| Refusal::Failed("nothing to compare".into()))
}

/// The case's layers and their paths: one, or a sequence.
fn modules(case: &Case) -> Vec<(String, ModuleCase<'_>)> {
    let module = case.json("module");
    let Value::Array(layers) = &module["layers"] else {
        return vec![(LAYER.to_owned(), ModuleCase::of(case))];
    };
    let described = layers.iter().map(|layer| {
        let path = layer["path"].as_str().unwrap_or_default();
        let module = ModuleCase::new(case, layer.clone(), &format!("param.{path}"));
        (path.to_owned(), module)
    });
    described.collect()
}

/// Strength and name of every expected output; a case that must be refused is tried at strength 1.
fn strengths(case: &Case) -> Result<Vec<(f32, Option<&str>)>, Refusal> {
    let names = expected_names(case)?;
    if names.is_empty() {
        return Ok(vec![(1.0, None)]);
    }
    let strength = |name: &str| {
        let number = name.strip_prefix("out.strength_")?.strip_suffix(".y")?;
        number.parse().ok()
    };
    names
        .into_iter()
        .map(|name| match strength(name) {
            Some(strength) => Ok((strength, Some(name))),
            None => Err(Refusal::Failed(format!("`{name}` names no strength"))),
        })
        .collect()
}

/// The adapter: a PEFT folder's tensors and configuration, or the keys of one LyCORIS layer.
fn set(case: &Case, device: &Device) -> Result<PatchSet, Refusal> {
    let Some(config) = case.meta("adapter_config") else {
        return Ok(set_of("adapter", detected(case, "patch.0.", device)?));
    };
    let path = Path::new("adapter_config.json");
    let config = AdapterConfig::from_json(path, config).map_err(in_words)?;
    let tensors = case.group("adapter.")?.tensors;
    let tensors = tensors.into_iter().collect::<Vec<(String, TensorData)>>();
    PatchSet::from_tensors("adapter", tensors, Some(&config), device).map_err(in_words)
}
