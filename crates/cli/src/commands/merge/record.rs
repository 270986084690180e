//! What a merged checkpoint says of itself: the entry `overglaze.merged` of its metadata.
//!
//! ```text
//! {"version": 1, "overglaze": "0.1.0", "loras": [{"name": "style.safetensors", "strength": 0.8,
//!   "block_strengths": ["double_blocks.0.*=0.5"], "blake3": "…", "keys_applied": 78}]}
//! ```
//! The list goes on where the model was a merged one already. The hash is that of the file with the tensors.

use std::collections::BTreeMap;

use overglaze_core::{FileMerge, fingerprint::Fingerprint};
use overglaze_patches::files;
use serde_json::{Value, json};

use crate::{CliError, lora_arg::BlockStrength, loras};

use super::Adapter;

/// The model's metadata, with what is merged now.
pub(super) fn metadata(
    model: &BTreeMap<String, String>,
    adapters: &[Adapter<'_>],
    blocks: &[BlockStrength],
    merge: &FileMerge<'_>,
) -> Result<BTreeMap<String, String>, CliError> {
    let mut metadata = model.clone();
    let mut loras = metadata
        .get(MERGED)
        .map_or_else(Vec::new, |text| earlier(text));
    let blocks: Vec<_> = blocks.iter().map(ToString::to_string).collect();
    for (adapter, report) in adapters.iter().zip(merge.reports()) {
        loras.push(json!({
            "name": loras::name(&adapter.arg.path),
            "strength": in_few_digits(adapter.arg.strength),
            "block_strengths": blocks,
            "blake3": hash(adapter)?,
            "keys_applied": report.keys_applied(),
        }));
    }
    let version = env!("CARGO_PKG_VERSION");
    let record = json!({"version": RECORD_VERSION, "overglaze": version, "loras": loras});
    metadata.insert(MERGED.into(), record.to_string());
    // Readers of the Python side refuse metadata without it.
    metadata
        .entry("format".into())
        .or_insert_with(|| "pt".into());
    Ok(metadata)
}

/// What an earlier merge recorded; whatever it is, it is kept.
fn earlier(text: &str) -> Vec<Value> {
    match serde_json::from_str(text) {
        Ok(Value::Object(mut record)) => match record.remove("loras") {
            Some(Value::Array(loras)) => loras,
            _ => vec![Value::Object(record)],
        },
        _ => vec![text.into()],
    }
}

/// The number that is written as `value` is, which is not always the same number in f64.
fn in_few_digits(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| value.into())
}

fn hash(adapter: &Adapter<'_>) -> Result<String, CliError> {
    let weights = files::locate(&adapter.arg.path)
        .map_err(overglaze_core::Error::from)?
        .weights;
    let hash = Fingerprint::of_file(&weights).map_err(|source| CliError::Read {
        path: weights,
        source,
    })?;
    Ok(hash.to_hex())
}

/// The entry's key.
const MERGED: &str = "overglaze.merged";

const RECORD_VERSION: u32 = 1;
