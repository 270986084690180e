//! Opening weights of any container, with what the formats compiled in know of its types, and what libraries that
//! quantize write beside it.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use overglaze_quant::formats_by_name;
use overglaze_stream::{BlockType, GgufValue, StreamError, TensorEntry, WeightSource};

/// Opens weights by path: a safetensors or GGUF file, the `.index.json` of a sharded checkpoint, or a folder.
///
/// What says how the weights are quantized, a `quantization_config.json` beside them or the entry
/// `quantization_config` of their `config.json`, is the metadata `quantization_config` of the answer, where the file
/// has no such entry of its own.
///
/// # Errors
/// As [`overglaze_stream::open`].
pub fn open(path: &Path) -> Result<Arc<dyn WeightSource>, StreamError> {
    let source = overglaze_stream::open(path, &block_type)?;
    if source.metadata().contains_key(CONFIG) {
        return Ok(source);
    }
    let folder = folder_of(&*source, path);
    Ok(match folder.as_deref().and_then(config_in) {
        Some(config) => Arc::new(Described::new(source, config)),
        None => source,
    })
}

/// The tensor type that has the number `id` in GGUF files.
fn block_type(id: u32) -> Option<BlockType> {
    let mut formats = formats_by_name().into_iter();
    let format = formats.find(|format| format.ggml_type() == Some(id))?;
    let block = format.block()?;
    Some(BlockType {
        tag: format.tags().first()?,
        block_len: block.len,
        block_bytes: block.bytes,
    })
}

/// The folder the weights lie in.
fn folder_of(source: &dyn WeightSource, path: &Path) -> Option<PathBuf> {
    let files = source
        .entries()
        .values()
        .filter_map(|entry| entry.file.as_deref());
    let file = files.into_iter().next().unwrap_or(path);
    file.parent().map(Path::to_owned)
}

/// The text that describes how the weights in `folder` are quantized.
fn config_in(folder: &Path) -> Option<String> {
    if let Some(text) = read_text(&folder.join("quantization_config.json")) {
        return Some(text);
    }
    // One that is damaged is not of this matter: who reads the model's geometry says so.
    let config = read_text(&folder.join("config.json"))?;
    let config: serde_json::Value = serde_json::from_str(&config).ok()?;
    let config = config.get(CONFIG).filter(|config| config.is_object())?;
    Some(config.to_string())
}

fn read_text(path: &Path) -> Option<String> {
    let mut text = String::new();
    let file = File::open(path).ok().filter(|_| path.is_file())?;
    let read = file
        .take(MAX_CONFIG_BYTES + 1)
        .read_to_string(&mut text)
        .ok()?;
    (read as u64 <= MAX_CONFIG_BYTES).then_some(text)
}

/// A source with a description of how its weights are quantized.
#[derive(Debug)]
struct Described {
    source: Arc<dyn WeightSource>,
    metadata: BTreeMap<String, String>,
}

impl Described {
    fn new(source: Arc<dyn WeightSource>, config: String) -> Self {
        let mut metadata = source.metadata().clone();
        metadata.insert(CONFIG.into(), config);
        Self { source, metadata }
    }
}

impl WeightSource for Described {
    fn entries(&self) -> &BTreeMap<String, TensorEntry> {
        self.source.entries()
    }

    fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    fn typed_metadata(&self) -> BTreeMap<String, GgufValue> {
        let mut values = self.source.typed_metadata();
        let config = GgufValue::from(&*self.metadata[CONFIG]);
        values.insert(CONFIG.into(), config);
        values
    }

    fn label(&self) -> String {
        self.source.label()
    }

    fn read(&self, name: &str) -> Result<Bytes, StreamError> {
        self.source.read(name)
    }

    fn read_into(&self, name: &str, buffer: &mut [u8]) -> Result<(), StreamError> {
        self.source.read_into(name, buffer)
    }
}

const CONFIG: &str = "quantization_config";
/// The longest description read; real ones have a few thousand bytes.
const MAX_CONFIG_BYTES: u64 = 4 << 20;
