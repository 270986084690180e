//! Reading noise from, and writing latents to, safetensors files.

use std::{collections::HashMap, path::Path};

use half::{bf16, f16};
use overglaze_stream::{TensorEntry, WeightSource};
use safetensors::{Dtype, tensor::TensorView};

use crate::{CliError, Latents, loras, output_file::OutputFile};

/// Opens a file of tensors, with the nearest name where it is not there.
pub(crate) fn open(path: &Path) -> Result<std::sync::Arc<dyn WeightSource>, CliError> {
    if !path.exists() {
        return Err(loras::missing(path));
    }
    Ok(overglaze_stream::open(path)?)
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
    let values = floats(&*source, &tensor, entry)?;
    match values.iter().find(|value| !value.is_finite()) {
        Some(&found) => Err(CliError::TensorValue {
            file: source.label(),
            tensor,
            found,
        }),
        None => Ok(Latents::new(values, shape)),
    }
}

/// Writes one tensor a column, in order of their names, with `metadata` beside them.
pub(crate) fn write_latents(
    place: &OutputFile,
    columns: &[(&str, &Latents)],
    metadata: HashMap<String, String>,
) -> Result<(), CliError> {
    let encode = |source| CliError::EncodeLatents {
        path: place.path().to_owned(),
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
        hint: loras::nearest(NOISE, entries.keys().map(String::as_str)),
        expected: "that tensor, or exactly one tensor of any name, [prompts, tokens, channels]",
    })
}

fn floats(
    source: &dyn WeightSource,
    tensor: &str,
    entry: &TensorEntry,
) -> Result<Vec<f32>, CliError> {
    let bytes = source.read(tensor)?;
    Ok(match entry.tag.as_str() {
        "F32" => words(&bytes, f32::from_le_bytes),
        "F16" => words(&bytes, |word| f16::from_le_bytes(word).to_f32()),
        "BF16" => words(&bytes, |word| bf16::from_le_bytes(word).to_f32()),
        found => {
            return Err(CliError::TensorType {
                file: source.label(),
                tensor: tensor.into(),
                found: found.into(),
            });
        }
    })
}

fn words<const N: usize>(bytes: &[u8], decode: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    bytes
        .as_chunks::<N>()
        .0
        .iter()
        .map(|word| decode(*word))
        .collect()
}

const NOISE: &str = "in.noise";
