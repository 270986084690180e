//! The golden FLUX cases: tiny checkpoints in both namings and what diffusers computed on them.

use std::{path::PathBuf, sync::Arc};

use burn::tensor::{DType, Device, Tensor, TensorData};
use bytes::Bytes;
use overglaze_core::open;
use overglaze_models::{
    FluxConfigFile, FluxInputs, PositionIds,
    flux::{FluxLoadOptions, FluxModel},
};
use overglaze_stream::{MemorySource, WeightSource};

/// The two checkpoints of the same weights.
pub(crate) const CHECKPOINTS: [&str; 2] = ["diffusers", "flux_bfl.safetensors"];

pub(crate) fn source(file: &str) -> Arc<dyn WeightSource> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../cases/flux")).join(file);
    open(&path).unwrap()
}

pub(crate) fn config() -> FluxConfigFile {
    let json = include_bytes!("../../../../cases/flux/diffusers/config.json");
    FluxConfigFile::from_json(json).unwrap()
}

pub(crate) fn options() -> FluxLoadOptions {
    FluxLoadOptions {
        config: Some(config()),
        ..FluxLoadOptions::resident(Device::flex())
    }
}

pub(crate) fn model(checkpoint: &str) -> FluxModel {
    FluxModel::load(source(checkpoint), options()).unwrap()
}

/// The values and shape of a tensor stored in f32.
pub(crate) fn read(source: &dyn WeightSource, tensor: &str) -> (Vec<f32>, Vec<usize>) {
    let entry = &source.entries()[tensor];
    assert_eq!(entry.tag, "F32", "{tensor}");
    let bytes = source.read(tensor).unwrap();
    let (words, _) = bytes.as_chunks::<4>();
    (
        words.iter().map(|word| f32::from_le_bytes(*word)).collect(),
        entry.shape.clone(),
    )
}

pub(crate) fn tensor<const D: usize>(source: &dyn WeightSource, name: &str) -> Tensor<D> {
    let (values, shape) = read(source, name);
    Tensor::from_data(
        TensorData::new(values, shape),
        (&Device::flex(), DType::F32),
    )
}

/// The inputs of the golden cases: two rows, an image of 3 × 4 tokens and 5 text tokens.
pub(crate) fn inputs() -> FluxInputs {
    let case = source("base.safetensors");
    let case = case.as_ref();
    FluxInputs {
        hidden_states: tensor(case, "in.hidden_states"),
        encoder_hidden_states: tensor(case, "in.encoder_hidden_states"),
        pooled_projections: tensor(case, "in.pooled_projections"),
        timestep: read(case, "in.timestep").0,
        guidance: Some(read(case, "in.guidance").0),
        img_ids: PositionIds::from_tensor(tensor(case, "in.img_ids")).unwrap(),
        txt_ids: PositionIds::from_tensor(tensor(case, "in.txt_ids")).unwrap(),
    }
}

pub(crate) fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.try_into_vec_as::<f32>().unwrap()
}

/// A copy of a checkpoint in memory, every tensor under the name and shape that `edit` gives it;
/// `None` leaves it out. Bytes stay as they are as long as the shape takes as many.
pub(crate) fn edited(
    file: &str,
    edit: impl Fn(&str, &[usize]) -> Option<(String, Vec<usize>)>,
) -> Arc<dyn WeightSource> {
    let original = source(file);
    let mut copy = MemorySource::new("edited");
    for (name, entry) in original.entries() {
        let Some((new_name, shape)) = edit(name, &entry.shape) else {
            continue;
        };
        let bytes = match shape == entry.shape {
            true => original.read(name).unwrap(),
            false => Bytes::from(vec![0; shape.iter().product::<usize>() * 2]),
        };
        copy.insert(new_name, entry.tag.clone(), shape, bytes)
            .unwrap();
    }
    Arc::new(copy)
}
