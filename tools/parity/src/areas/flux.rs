//! Area `flux`: a tiny FLUX, in both checkpoint namings, bare and with adapters in both file dialects.

use std::{collections::BTreeMap, path::PathBuf};

use burn::tensor::{Device, Tensor, TensorData};
use overglaze_core::{LoaderConfig, MountReport, adapter_file, mount};
use overglaze_models::{
    FluxConfigFile, FluxInputs, FluxModel, PositionIds,
    flux::{BlockKind, FluxLoadOptions},
};
use serde_json::Value;

use super::{Refusal, against, expected_names};
use crate::{Case, Comparison};

/// Runs the case on {every checkpoint} × {every spelling of its adapters} and takes the worst.
pub(crate) fn run(case: &Case, device: &Device) -> Result<Comparison, Refusal> {
    let Value::Object(checkpoints) = case.json("files") else {
        return Err(Refusal::Failed("its `files` are no table".into()));
    };
    let spellings: &[&str] = if case.meta("loras").is_some() {
        &SPELLINGS
    } else {
        &[""]
    };
    let mut worst: Option<Comparison> = None;
    for file in checkpoints.values().filter_map(Value::as_str) {
        for spelling in spellings {
            let outputs = outputs(case, file, spelling, device)
                .map_err(|why| Refusal::Failed(format!("{file} {spelling}: {why}")))?;
            for name in expected_names(case)? {
                let found = outputs
                    .get(name)
                    .ok_or_else(|| Refusal::Unsupported(format!("output `{name}`")))?;
                let comparison = against(case, name, found)?;
                worst = Some(worst.map_or(comparison, |worst| worst.worst(comparison)));
            }
        }
    }
    worst.ok_or_else(|| Refusal::Failed("nothing to compare".into()))
}

fn outputs(
    case: &Case,
    file: &str,
    spelling: &str,
    device: &Device,
) -> Result<BTreeMap<String, TensorData>, String> {
    let mut model = load(case, file, device)?;
    if let Value::Array(loras) = case.json("loras") {
        for lora in &loras {
            mount_lora(&mut model, case, lora, spelling, device)?;
        }
    }
    let mut outputs = BTreeMap::new();
    let sample = model
        .transformer
        .forward_observed(inputs(case, device)?, &mut |block| {
            let kind = match block.kind {
                BlockKind::Double => "double",
                BlockKind::Single => "single",
            };
            let name = |stream| format!("out.{kind}_{}.{stream}", block.index);
            outputs.insert(name("img"), kept(block.img));
            outputs.insert(name("txt"), kept(block.txt));
        })
        .map_err(|error| error.to_string())?;
    outputs.insert("out.sample".into(), sample.into_data());
    Ok(outputs)
}

/// The values, in memory of their own: what `CubeCL` 0.11.3 reads from a device in wgpu is overwritten by the next reads.
fn kept(output: Tensor<3>) -> TensorData {
    let data = output.into_data();
    let bytes = data.as_bytes().to_vec();
    TensorData::from_bytes_vec(bytes, data.shape().clone(), data.dtype())
}

fn load(case: &Case, file: &str, device: &Device) -> Result<FluxModel, String> {
    let source =
        overglaze_core::open(&case.folder.join(file)).map_err(|error| error.to_string())?;
    let config = case.meta("config").ok_or("no `config`")?;
    let config = FluxConfigFile::from_json(config.as_bytes()).map_err(|error| error.to_string())?;
    let options = FluxLoadOptions {
        config: Some(config),
        loader: LoaderConfig::resident(device.clone()),
    };
    FluxModel::load(source, options).map_err(|error| error.to_string())
}

fn mount_lora(
    model: &mut FluxModel,
    case: &Case,
    lora: &Value,
    spelling: &str,
    device: &Device,
) -> Result<MountReport, String> {
    let name = lora["name"].as_str().ok_or("a LoRA without a name")?;
    let weight = lora["weight"].as_f64().ok_or("a LoRA without a weight")?;
    let path: PathBuf = case.folder.join(format!("{name}_{spelling}.safetensors"));
    let set = adapter_file::load(&path, device).map_err(|error| error.to_string())?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "strengths are f32 by definition"
    )]
    let report = mount(&mut model.transformer, name, &set, weight as f32)
        .map_err(|error| error.to_string())?;
    match report.first_failure() {
        None => Ok(report),
        Some(why) => Err(format!("{}: {why}", path.display())),
    }
}

fn inputs(case: &Case, device: &Device) -> Result<FluxInputs, String> {
    let ids = |name: &str| {
        let ids: Tensor<2> = case.tensor(name, device)?;
        PositionIds::from_tensor(ids).map_err(|error| error.to_string())
    };
    let guidance = match case.has("in.guidance") {
        true => Some(numbers(case, "in.guidance")?),
        false => None,
    };
    Ok(FluxInputs {
        hidden_states: case.tensor("in.hidden_states", device)?,
        encoder_hidden_states: case.tensor("in.encoder_hidden_states", device)?,
        pooled_projections: case.tensor("in.pooled_projections", device)?,
        timestep: numbers(case, "in.timestep")?,
        guidance,
        img_ids: ids("in.img_ids")?,
        txt_ids: ids("in.txt_ids")?,
    })
}

fn numbers(case: &Case, name: &str) -> Result<Vec<f32>, String> {
    Ok(case.data(name)?.iter::<f32>().collect())
}

const SPELLINGS: [&str; 2] = ["diffusers", "kohya"];
