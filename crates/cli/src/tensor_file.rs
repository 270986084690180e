//! Reading noise from, and writing latents to, safetensors files.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use overglaze_models::{did_you_mean, read_floats};
use overglaze_stream::WeightSource;
use safetensors::{Dtype, tensor::TensorView};

use crate::{CliError, Latents, loras, output_file::OutputFile};

/// Opens a file of tensors, with the nearest name where it is not there.
pub(crate) fn open(path: &Path) -> Result<std::sync::Arc<dyn WeightSource>, CliError> {
    if !path.exists() {
        return Err(loras::missing(path));
    }
    Ok(overglaze_core::open(path)?)
}

/// Reads the noise `[rows, tokens, channels]` of a file: the tensor `in.noise`, or the only one.
pub(crate) fn read_noise(path: &Path, shape: [usize; 3]) -> Result<Latents, CliError> {
    let source = open(path)?;
    let tensor = noise_name(&*source)?;
    let entry = &source.entries()[&tensor];
    if entry.shape != shape {
        return Err(CliError::TensorShape {
            file: source.label(),
            tensor,
            found: entry.shape.clone(),
            expected: format!("{shape:?} (prompts, tokens, channels)"),
        });
    }
    let (values, _) = read_floats(&*source, &tensor)?;
    Ok(Latents::new(values, shape))
}

/// Writes one tensor a column, in order of their names, with `metadata` beside them: a single entry that
/// holds JSON, since several would be written in an order that changes from run to run.
pub(crate) fn write_latents(
    place: OutputFile,
    columns: &[(&str, &Latents)],
    metadata: &BTreeMap<&str, String>,
) -> Result<(), CliError> {
    let path = place.path().to_owned();
    let encode = |source| CliError::EncodeLatents {
        path: path.clone(),
        source,
    };
    let bytes: Vec<Vec<u8>> = columns
        .iter()
        .map(|(_, latents)| latents.to_bytes())
        .collect();
    let views = columns
        .iter()
        .zip(&bytes)
        .map(|((name, latents), bytes)| {
            Ok((
                *name,
                TensorView::new(Dtype::F32, latents.shape().to_vec(), bytes)?,
            ))
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(encode)?;
    let metadata = serde_json::json!(metadata).to_string();
    let metadata = HashMap::from([(METADATA.to_owned(), metadata)]);
    place.write(&safetensors::serialize(views, Some(metadata)).map_err(encode)?)
}

fn noise_name(source: &dyn WeightSource) -> Result<String, CliError> {
    let entries = source.entries();
    if entries.contains_key(NOISE) {
        return Ok(NOISE.into());
    }
    if let (Some(only), 1) = (entries.keys().next(), entries.len()) {
        return Ok(only.clone());
    }
    Err(CliError::TensorMissing {
        file: source.label(),
        tensor: NOISE.into(),
        hint: did_you_mean(NOISE, entries.keys().map(String::as_str)),
        expected: "that tensor, or exactly one tensor of any name, [prompts, tokens, channels]",
    })
}

const NOISE: &str = "in.noise";

/// The one metadata entry of a file of latents.
const METADATA: &str = "overglaze";
