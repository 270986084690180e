//! An adapter as it lies on disk: one safetensors file, or a PEFT folder with its configuration.
//!
//! The rules are those of [`overglaze_patches::files`]; the file itself is opened and checked as every
//! other weight file is.

use std::path::Path;

use burn::tensor::{Device, TensorData};
use overglaze_patches::{
    AdapterConfig, PatchSet,
    files::{self, AdapterFiles},
    stored_tensor,
};
use overglaze_stream::WeightSource;

use crate::Error;

pub use overglaze_patches::files::is_peft_folder;

/// Reads the adapter at `path` with its tensors on `device`; the file is mapped, not copied, where the
/// alignment allows.
///
/// # Errors
/// [`Error::Stream`] when the file is not what it says, [`Error::Patch`] when a folder lacks a part, the
/// configuration is damaged, or the keys contradict each other.
pub fn load(path: &Path, device: &Device) -> Result<PatchSet, Error> {
    let AdapterFiles { weights, config } = files::locate(path)?;
    let source = crate::open(&weights)?;
    from_source(&files::set_name(path), &*source, config, device)
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
    let config = files::config_of(Path::new(&source.label()), config, source.metadata())?;
    let keys = source.entries().keys();
    let tensors = keys
        .map(|key| Ok((key.clone(), tensor_data(source, key)?)))
        .collect::<Result<Vec<_>, Error>>()?;
    Ok(PatchSet::from_tensors(
        name,
        tensors,
        config.as_ref(),
        device,
    )?)
}

/// The tensor `key` of `source`: a view of the file where it lies aligned, else a copy.
///
/// # Errors
/// [`Error::Stream`] when there is none, [`Error::Patch`] for a dtype that plain tensors do not have.
pub(crate) fn tensor_data(source: &dyn WeightSource, key: &str) -> Result<TensorData, Error> {
    let bytes = source.read(key)?;
    let entry = &source.entries()[key];
    let label = source.label();
    let tensor = stored_tensor(Path::new(&label), key, &entry.tag, &entry.shape, bytes)?;
    Ok(tensor)
}
