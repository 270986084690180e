//! Names and shapes of a file without its data: `{"key": [shape]}`, or nested by layer, `{"layer": {"tail": [shape]}}`.
//!
//! As a model it is all that names and shapes can tell. As an adapter its tensors are made up: scalars one, all
//! others next to nothing, and no two alike, so that two spellings of one tensor contradict each other.

use std::{collections::BTreeMap, fmt, path::Path};

use burn::tensor::Device;
use bytes::Bytes;
use overglaze_core::adapter_file;
use overglaze_models::TensorShapes;
use overglaze_patches::PatchSet;
use overglaze_stream::MemorySource;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};

use crate::{CliError, document, loras};

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "neither a shape like [3072, 64] nor a layer's tensors like {\"weight\": [3072, 64]}"
)]
enum Entry {
    Shape(Vec<usize>),
    Layer(BTreeMap<String, Vec<usize>>),
}

/// Shapes by key, no key twice.
struct Keys(BTreeMap<String, Vec<usize>>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(KeysVisitor)
    }
}

struct KeysVisitor;

impl<'de> Visitor<'de> for KeysVisitor {
    type Value = Keys;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
        let mut keys = BTreeMap::new();
        let mut add = |key: String, shape| match keys.insert(key.clone(), shape) {
            None => Ok(()),
            Some(_) => Err(A::Error::custom(format!("the key `{key}` is there twice"))),
        };
        while let Some(name) = map.next_key::<String>()? {
            let entry = map.next_value();
            match entry.map_err(|why| A::Error::custom(format!("`{name}` is {why}")))? {
                Entry::Shape(shape) => add(name, shape)?,
                Entry::Layer(tails) => tails
                    .into_iter()
                    .try_for_each(|(tail, shape)| add(format!("{name}.{tail}"), shape))?,
            }
        }
        Ok(Keys(keys))
    }
}

/// The tensors of a model.
///
/// # Errors
/// [`CliError::Json`], or [`CliError::KeyShape`] for a weight that cannot be one.
pub fn model_of_keys(path: &Path) -> Result<TensorShapes, CliError> {
    Ok(TensorShapes::new(loras::name(path), read(path)?))
}

/// An adapter of tensors without meaning.
///
/// # Errors
/// As [`model_of_keys`], also for a tensor that is too large, and those of any adapter's keys.
pub fn adapter_of_keys(path: &Path, device: &Device) -> Result<PatchSet, CliError> {
    let keys = read(path)?;
    let values = values(path, &keys)?;
    let mut source = MemorySource::new(path.display().to_string());
    for (index, (key, shape)) in keys.into_iter().enumerate() {
        let num_bytes = 2 * shape.iter().product::<usize>();
        let bytes = match num_bytes {
            2 => Bytes::from_static(&ONE),
            num_bytes => values.slice(4 * index..4 * index + num_bytes),
        };
        source
            .insert(key, "F16", shape, bytes)
            .map_err(overglaze_core::Error::from)?;
    }
    Ok(adapter_file::from_source(
        &loras::name(path),
        &source,
        None,
        device,
    )?)
}

/// Whether a file is named as one of these.
pub(crate) fn is_key_list(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
}

/// Whether a file holds one.
pub(crate) fn is_list(path: &Path) -> bool {
    is_key_list(path) && read(path).is_ok()
}

fn read(path: &Path) -> Result<BTreeMap<String, Vec<usize>>, CliError> {
    let text = document::read(path, document::MAX_KEYS_BYTES)?;
    let Keys(keys) = serde_json::from_slice(&text).map_err(|source| CliError::Json {
        path: path.to_owned(),
        expected: EXPECTED,
        source,
    })?;
    match keys.iter().find(|(key, shape)| !is_possible(key, shape)) {
        None => Ok(keys),
        Some((key, shape)) => Err(CliError::KeyShape {
            path: path.to_owned(),
            key: key.clone(),
            found: shape.clone(),
            expected: "one to eight sizes above 0",
        }),
    }
}

/// Checkpoints hold flags without axes or values, but no such weights.
fn is_possible(key: &str, shape: &[usize]) -> bool {
    let is_weight = key.ends_with(".weight") || key.ends_with(".bias");
    let is_empty = shape.is_empty() || shape.contains(&0);
    shape.len() <= MAX_RANK && !(is_weight && is_empty)
}

/// What the tensors share: two values in half precision for each key, and zeros for the largest tensor. The
/// values count the keys in their lowest bits, so that they are next to nothing.
fn values(path: &Path, keys: &BTreeMap<String, Vec<usize>>) -> Result<Bytes, CliError> {
    let mut most = 0;
    for (key, shape) in keys {
        let num_values = shape
            .iter()
            .try_fold(1_usize, |product, size| product.checked_mul(*size));
        match num_values.filter(|num_values| *num_values <= MAX_VALUES) {
            Some(num_values) => most = most.max(num_values),
            None => {
                return Err(CliError::KeyShape {
                    path: path.to_owned(),
                    key: key.clone(),
                    found: shape.clone(),
                    expected: "at most 134217728 values",
                });
            }
        }
    }
    let mut values = vec![0; 4 * keys.len() + 2 * most];
    for (index, pair) in (1_u32..).zip(values.chunks_exact_mut(4).take(keys.len())) {
        let [low, high] = [index & 0x1ff, (index >> 9) & 0x1ff];
        pair.copy_from_slice(&(low | high << 16).to_le_bytes());
    }
    Ok(Bytes::from(values))
}

const EXPECTED: &str =
    "a JSON object from key to shape, such as {\"x_embedder.weight\": [3072, 64]}";

/// Dimensions of a weight at most.
const MAX_RANK: usize = 8;

/// Values of an adapter's tensor at most; FLUX.1's largest layer has 66 million.
const MAX_VALUES: usize = 134_217_728;

/// One in half precision: an alpha or a flag.
const ONE: [u8; 2] = [0x00, 0x3c];
