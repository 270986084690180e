//! The demo inside the binary: a small FLUX transformer of Fashion-MNIST, its words and its adapters.

use std::sync::Arc;

use burn::tensor::Device;
use bytes::Bytes;
use overglaze_core::adapter_file;
use overglaze_models::{FluxConfigFile, WordEmbedding};
use overglaze_patches::PatchSet;
use overglaze_stream::{MemorySource, WeightSource};

use crate::CliError;

/// The model's name in reports.
pub const NAME: &str = "demo";

/// Steps its reference images were made with.
pub const NUM_STEPS: u16 = 20;

/// Names of the embedded adapters, in natural order.
pub const LORA_NAMES: [&str; 5] = [
    "outline-epoch-1",
    "outline-epoch-2",
    "outline-epoch-4",
    "outline-epoch-10",
    "outline-epoch-20",
];

/// The transformer's weights; views into the binary. Their metadata say that they are the demo's, and what is made of
/// them keeps that.
///
/// # Errors
/// None with the file that is embedded.
pub fn weights() -> Result<Arc<dyn WeightSource>, CliError> {
    let mut source = embedded("the embedded demo", WEIGHTS)?;
    source.set_metadata(MARK, env!("CARGO_PKG_VERSION"));
    Ok(Arc::new(source))
}

/// Whether `source` was made of the demo by merging, quantizing or the like: geometry and words are then the demo's.
#[must_use]
pub fn is_made_of(source: &dyn WeightSource) -> bool {
    source.metadata().contains_key(MARK)
}

/// The transformer's geometry.
///
/// # Errors
/// None with the file that is embedded.
pub fn config() -> Result<FluxConfigFile, CliError> {
    Ok(FluxConfigFile::from_json(CONFIG)?)
}

/// The words and their vectors.
///
/// # Errors
/// None with the file that is embedded.
pub fn words() -> Result<WordEmbedding, CliError> {
    Ok(WordEmbedding::read(&embedded(
        "the demo's word embedding",
        WORDS,
    )?)?)
}

/// The embedded LoRA at this place of [`LORA_NAMES`], on `device`.
///
/// # Errors
/// None with the files that are embedded.
///
/// # Panics
/// Where there is no such place.
pub fn lora(index: usize, device: &Device) -> Result<PatchSet, CliError> {
    let name = LORA_NAMES[index];
    Ok(adapter_file::from_source(
        name,
        &embedded(name, LORAS[index])?,
        None,
        device,
    )?)
}

fn embedded(label: &str, file: &'static [u8]) -> Result<MemorySource, CliError> {
    Ok(MemorySource::from_safetensors(
        label,
        Bytes::from_static(file),
    )?)
}

/// The metadata entry of the demo and what is made of it.
const MARK: &str = "overglaze.demo";

const CONFIG: &[u8] = include_bytes!("../demo/transformer/config.json");
const WEIGHTS: &[u8] = include_bytes!("../demo/transformer/diffusion_pytorch_model.safetensors");
const WORDS: &[u8] = include_bytes!("../demo/word_embedding.safetensors");
const LORAS: [&[u8]; 5] = [
    include_bytes!("../demo/loras/outline-epoch-1.safetensors"),
    include_bytes!("../demo/loras/outline-epoch-2.safetensors"),
    include_bytes!("../demo/loras/outline-epoch-4.safetensors"),
    include_bytes!("../demo/loras/outline-epoch-10.safetensors"),
    include_bytes!("../demo/loras/outline-epoch-20.safetensors"),
];
