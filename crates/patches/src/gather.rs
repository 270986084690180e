//! The keys of one file, understood and sorted by the layer they are for.
//!
//! A file is one adapter: its keys name at most one, and where two spellings give one tensor, they give
//! the same. A name with dots and the same name with underscores for them are two spellings of one layer.

use std::collections::BTreeMap;

use burn::tensor::TensorData;

use crate::{
    Component, Dialect, FileKey, PatchError, TargetName,
    dialects::{adapter_name, dialects},
    shared_keys::is_shared,
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
    pub(crate) component: Component,
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
    let (mut adapter, mut shared) = (None, Vec::new());
    for (key, data) in tensors {
        let source = Source { key, data };
        match understand(&source.key, &dialects)? {
            Some((dialect, file_key)) => {
                check_adapter(name, &mut adapter, &source.key)?;
                gathered.insert(dialect, file_key, source)?;
            }
            None if is_shared(&source.key) => shared.push(source),
            None => gathered.unread.push(source.key),
        }
    }
    gathered.insert_shared(shared, &dialects)?;
    gathered.join_spellings()?;
    gathered.forget_numbers();
    gathered.duplicates.sort_unstable();
    gathered.unread.sort_unstable();
    Ok(gathered)
}

/// The dialect that reads `key`, and what the key is in it.
///
/// # Errors
/// [`PatchError::AmbiguousKey`] when two do.
pub(crate) fn understand(
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
    ///
    /// # Errors
    /// [`PatchError::Conflict`].
    pub(crate) fn insert(
        &mut self,
        dialect: &'static str,
        file_key: FileKey,
        source: Source,
    ) -> Result<(), PatchError> {
        let FileKey {
            target,
            suffix,
            component,
        } = file_key;
        let layer = self.layers.entry(target.clone()).or_insert_with(|| Layer {
            dialect,
            component,
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

    /// Puts the layers whose name has underscores for dots to those of the same name with dots.
    fn join_spellings(&mut self) -> Result<(), PatchError> {
        for (flat, dotted) in self.two_spellings() {
            let Some(layer) = self.layers.remove(&flat) else {
                continue;
            };
            for (suffix, source) in layer.tensors {
                let file_key = FileKey {
                    target: dotted.clone(),
                    suffix,
                    component: layer.component,
                };
                self.insert(layer.dialect, file_key, source)?;
            }
        }
        Ok(())
    }

    /// The layers that are there under both spellings, where only one name with dots can be meant.
    fn two_spellings(&self) -> Vec<(TargetName, TargetName)> {
        let mut spellings = BTreeMap::<_, Vec<_>>::new();
        for target in self.layers.keys() {
            if let TargetName::Dotted(name) = target {
                let flat = TargetName::Flattened(name.replace('.', "_"));
                spellings.entry(flat).or_default().push(target.clone());
            }
        }
        let both = spellings
            .into_iter()
            .filter(|(flat, _)| self.layers.contains_key(flat));
        both.filter_map(|(flat, dotted)| match <[_; 1]>::try_from(dotted) {
            Ok([dotted]) => Some((flat, dotted)),
            Err(_) => None,
        })
        .collect()
    }
}
