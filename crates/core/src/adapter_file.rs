//! An adapter as it lies on disk: one safetensors file, or a PEFT folder with its configuration.

use std::{fs, path::Path};

use burn::tensor::{AllocationProperty, Bytes, DType, Device, Shape, TensorData};
use overglaze_patches::{AdapterConfig, PatchSet};
use overglaze_stream::{TensorEntry, WeightSource};

use crate::Error;

/// Reads the adapter at `path` with its tensors on `device`; the file is mapped, not copied, where the
/// alignment allows.
///
/// # Errors
/// [`Error::Stream`] when the file is not what it says, [`Error::AdapterFile`] when a folder lacks a
/// part, [`Error::Patch`] when its keys contradict each other.
pub fn load(path: &Path, device: &Device) -> Result<PatchSet, Error> {
    let (file, config) = if path.is_dir() {
        peft_folder(path)?
    } else {
        (path.into(), None)
    };
    let source = overglaze_stream::open(&file)?;
    from_source(&name_of(path), &*source, config, device)
}

/// Reads the adapter in `source` as [`load`] does.
///
/// # Errors
/// As [`load`].
pub fn from_source(
    name: &str,
    source: &dyn WeightSource,
    config: Option<AdapterConfig>,
    device: &Device,
) -> Result<PatchSet, Error> {
    let config = match config {
        Some(config) => Some(config),
        None => AdapterConfig::from_metadata(&source.metadata().clone().into_iter().collect())?,
    };
    let tensors = source
        .entries()
        .iter()
        .map(|(key, entry)| Ok((key.clone(), tensor_data(source, key, entry)?)))
        .collect::<Result<Vec<_>, Error>>()?;
    Ok(PatchSet::from_tensors(
        name,
        tensors,
        config.as_ref(),
        device,
    )?)
}

/// Whether `path` looks like a PEFT folder.
#[must_use]
pub fn is_peft_folder(path: &Path) -> bool {
    path.join(PEFT_CONFIG).is_file() && path.join(PEFT_WEIGHTS).is_file()
}

fn peft_folder(path: &Path) -> Result<(std::path::PathBuf, Option<AdapterConfig>), Error> {
    let fail = |why: String| Error::AdapterFile {
        path: path.display().to_string(),
        why,
    };
    let text = fs::read_to_string(path.join(PEFT_CONFIG)).map_err(|error| {
        fail(format!(
            "a folder is an adapter when it holds {PEFT_CONFIG}; reading that: {error}"
        ))
    })?;
    let config = AdapterConfig::from_json(&text)?;
    let weights = path.join(PEFT_WEIGHTS);
    if !weights.is_file() {
        return Err(fail(format!(
            "it holds {PEFT_CONFIG} but no {PEFT_WEIGHTS}"
        )));
    }
    Ok((weights, Some(config)))
}

fn tensor_data(
    source: &dyn WeightSource,
    key: &str,
    entry: &TensorEntry,
) -> Result<TensorData, Error> {
    let dtype = dtype_of(&entry.tag).ok_or_else(|| Error::AdapterFile {
        path: source.label(),
        why: format!(
            "tensor `{key}` has dtype {}, which adapters do not use",
            entry.tag
        ),
    })?;
    let bytes = source.read(key)?;
    let bytes = if (bytes.as_ptr() as usize).is_multiple_of(dtype.size()) {
        Bytes::from_shared(bytes, AllocationProperty::File)
    } else {
        Bytes::from_bytes_vec(bytes.to_vec())
    };
    Ok(TensorData::from_bytes(
        bytes,
        Shape::from(entry.shape.clone()),
        dtype,
    ))
}

fn dtype_of(tag: &str) -> Option<DType> {
    Some(match tag {
        "F64" => DType::F64,
        "F32" => DType::F32,
        "F16" => DType::F16,
        "BF16" => DType::BF16,
        "I64" => DType::I64,
        "I32" => DType::I32,
        "I16" => DType::I16,
        "I8" => DType::I8,
        "U8" => DType::U8,
        _ => return None,
    })
}

/// The file's name without its extension, or the folder's name.
fn name_of(path: &Path) -> String {
    let name = if path.is_dir() {
        path.file_name()
    } else {
        path.file_stem()
    };
    name.map_or_else(
        || path.display().to_string(),
        |name| name.to_string_lossy().into_owned(),
    )
}

const PEFT_CONFIG: &str = "adapter_config.json";
const PEFT_WEIGHTS: &str = "adapter_model.safetensors";
