//! The keys of one file, understood and sorted by the layer they are for.
//!
//! A file is one adapter: its keys name at most one, and where two spellings give one tensor, they give
//! the same.

use std::collections::BTreeMap;

use burn::tensor::TensorData;

use crate::{
    Dialect, FileKey, PatchError, TargetName,
    dialects::{adapter_name, dialects},
};

/// The keys of one file: by layer, or apart from all layers.
#[derive(Default)]
pub(crate) struct Gathered {
    pub(crate) layers: BTreeMap<TargetName, Layer>,
    pub(crate) duplicates: Vec<String>,
    pub(crate) unread: Vec<String>,
}

/// The tensors of one layer, by canonical suffix.
pub(crate) struct Layer {
    pub(crate) dialect: &'static str,
    pub(crate) keys: Vec<String>,
    pub(crate) tensors: BTreeMap<String, Source>,
}

pub(crate) struct Source {
    pub(crate) key: String,
    pub(crate) data: TensorData,
}

/// Sorts the keys of the adapter `name` by layer.
///
/// # Errors
/// [`PatchError::AmbiguousKey`], [`PatchError::Conflict`] or [`PatchError::TwoAdapters`].
pub(crate) fn gather(
    name: &str,
    tensors: impl IntoIterator<Item = (String, TensorData)>,
) -> Result<Gathered, PatchError> {
    let dialects = dialects();
    let mut gathered = Gathered::default();
    let mut adapter = None;
    for (key, data) in tensors {
        match understand(&key, &dialects)? {
            None => gathered.unread.push(key),
            Some((dialect, file_key)) => {
                check_adapter(name, &mut adapter, &key)?;
                gathered.insert(dialect, file_key, Source { key, data })?;
            }
        }
    }
    gathered.duplicates.sort_unstable();
    gathered.unread.sort_unstable();
    Ok(gathered)
}

fn understand(
    key: &str,
    dialects: &[&'static Dialect],
) -> Result<Option<(&'static str, FileKey)>, PatchError> {
    let mut claims = dialects
        .iter()
        .filter_map(|dialect| Some((dialect.name, (dialect.parse)(key)?)));
    let first = claims.next();
    let others: Vec<_> = claims.map(|(name, _)| name).collect();
    match first {
        Some((name, _)) if !others.is_empty() => Err(PatchError::AmbiguousKey {
            key: key.into(),
            dialects: [vec![name], others].concat(),
        }),
        claim => Ok(claim),
    }
}

/// Factors of two adapters must not become one patch: every key that names its adapter names `adapter`.
fn check_adapter(name: &str, adapter: &mut Option<String>, key: &str) -> Result<(), PatchError> {
    let Some(found) = adapter_name(key) else {
        return Ok(());
    };
    let first = adapter.get_or_insert_with(|| found.into());
    if first == found {
        return Ok(());
    }
    Err(PatchError::TwoAdapters {
        name: name.into(),
        first: first.clone(),
        second: found.into(),
        key: key.into(),
    })
}

impl Gathered {
    /// Adds a tensor; a second spelling of one that is there must equal it bit for bit.
    fn insert(
        &mut self,
        dialect: &'static str,
        FileKey { target, suffix }: FileKey,
        source: Source,
    ) -> Result<(), PatchError> {
        let layer = self.layers.entry(target.clone()).or_insert_with(|| Layer {
            dialect,
            keys: Vec::new(),
            tensors: BTreeMap::new(),
        });
        match layer.tensors.get(&suffix) {
            None => {
                layer.keys.push(source.key.clone());
                layer.tensors.insert(suffix, source);
            }
            Some(present) if present.data == source.data => self.duplicates.push(source.key),
            Some(present) => {
                return Err(PatchError::Conflict {
                    target: target.as_str().into(),
                    suffix,
                    first: present.key.clone(),
                    second: source.key,
                });
            }
        }
        Ok(())
    }
}
