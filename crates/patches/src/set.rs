//! One adapter file, read and accounted for key by key.
//!
//! Every key of the file ends in exactly one of four places: an entry (a patch was built from it),
//! a refused group (understood, but no patch can be built, with the reason), the duplicates (they repeat
//! another key's tensor), or the unread keys (no dialect knows the spelling).

use std::{path::Path, sync::Arc};

use burn::tensor::{Device, TensorData};
use bytes::Bytes;

use crate::{
    AdapterConfig, Component, LayerConfig, Patch, PatchError, TargetName, TensorGroup, container,
    dialects::dialects,
    files,
    gather::{Gathered, Layer, gather},
    notes::Notes,
    registry,
};

/// One adapter file, as patches and the names of the layers they are for.
#[derive(Debug)]
pub struct PatchSet {
    /// Name of the adapter.
    pub name: String,
    /// The patches, by target.
    pub entries: Vec<PatchEntry>,
    /// Groups of keys that are understood but of which no patch can be built.
    pub refused: Vec<RefusedGroup>,
    /// Keys that repeat the tensor of another key of their layer bit for bit, under a second spelling; in
    /// alphabetical order. They are used once, under the key met first.
    pub duplicates: Vec<String>,
    /// Keys in no spelling this build reads, in alphabetical order.
    pub unread: Vec<String>,
    /// What is to be said of the adapter as a whole.
    pub notes: Vec<String>,
}

/// A patch and the layer it is for.
#[derive(Debug)]
pub struct PatchEntry {
    /// The layer, as far as the file's spelling tells.
    pub target: TargetName,
    /// The model the layer is in.
    pub component: Component,
    /// The patch.
    pub patch: Arc<dyn Patch>,
    /// Keys of the file that went into it.
    pub keys: Vec<String>,
    /// Name of the dialect the keys are in.
    pub dialect: &'static str,
}

/// Keys of one layer of which no patch can be built.
#[derive(Debug)]
pub struct RefusedGroup {
    /// Name of the layer in the file.
    pub target: String,
    /// The model the layer is in.
    pub component: Component,
    /// Keys of the file.
    pub keys: Vec<String>,
    /// Why.
    pub error: PatchError,
}

impl PatchSet {
    /// A set of finished patches, that no file stands behind.
    #[must_use]
    pub fn new(name: impl Into<String>, entries: Vec<PatchEntry>) -> Self {
        Self {
            name: name.into(),
            entries,
            refused: Vec::new(),
            duplicates: Vec::new(),
            unread: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Reads one safetensors file, or a PEFT folder, by the rules of [`files`].
    ///
    /// The configuration beside the file counts, else the one in its metadata. The set is named after the
    /// file or folder. The file is mapped: it must not be cut or rewritten while the set is in use.
    ///
    /// # Errors
    /// What is wrong with the file or its configuration, or an error of
    /// [`from_tensors`](Self::from_tensors).
    ///
    /// # Examples
    /// ```no_run
    /// use burn::tensor::Device;
    /// use overglaze_patches::PatchSet;
    ///
    /// let set = PatchSet::load("style.safetensors".as_ref(), &Device::flex())?;
    /// for entry in &set.entries {
    ///     println!("{}: {}", entry.target, entry.patch.kind());
    /// }
    /// # Ok::<(), overglaze_patches::PatchError>(())
    /// ```
    pub fn load(path: &Path, device: &Device) -> Result<Self, PatchError> {
        let files::AdapterFiles { weights, config } = files::locate(path)?;
        let container = container::read(&weights)?;
        let config = files::config_of(&weights, config, &container.metadata)?;
        let name = files::set_name(path);
        Self::from_tensors(&name, container.tensors, config.as_ref(), device)
    }

    /// Reads the content of a safetensors file that is in memory; aligned tensors share it.
    ///
    /// # Errors
    /// As [`load`](Self::load), with `name` in the place of the path.
    pub fn from_bytes(name: &str, content: &Bytes, device: &Device) -> Result<Self, PatchError> {
        let container = container::parse(content, Path::new(name))?;
        let config = AdapterConfig::from_metadata(Path::new(name), &container.metadata)?;
        Self::from_tensors(name, container.tensors, config.as_ref(), device)
    }

    /// Reads the tensors of one adapter; `config` gives the scale where the tensors do not.
    ///
    /// # Errors
    /// [`PatchError::NoAdapterTensors`], [`PatchError::AmbiguousKey`], [`PatchError::Conflict`],
    /// [`PatchError::TwoAdapters`], or [`PatchError::UnsupportedConfig`] for patterns that take too long. What is
    /// wrong with one layer is no error: see [`refused`](Self::refused).
    pub fn from_tensors(
        name: &str,
        tensors: impl IntoIterator<Item = (String, TensorData)>,
        config: Option<&AdapterConfig>,
        device: &Device,
    ) -> Result<Self, PatchError> {
        let Gathered {
            layers,
            duplicates,
            mut unread,
        } = gather(name, tensors)?;
        if layers.is_empty() {
            return Err(PatchError::NoAdapterTensors {
                name: name.into(),
                num_keys: unread.len(),
                dialects: dialects().iter().map(|dialect| dialect.name).collect(),
            });
        }
        let targets: Vec<_> = layers.keys().map(TargetName::as_str).collect();
        config.map_or(Ok(()), |config| config.check_work(&targets))?;
        let mut set = Self {
            notes: config.map_or_else(Vec::new, |config| config.notes(&targets)),
            refused: config.map_or_else(Vec::new, |config| config.take_saved_modules(&mut unread)),
            duplicates,
            unread,
            ..Self::new(name, Vec::new())
        };
        let mut notes = Notes::default();
        for (target, layer) in layers {
            notes.add(set.build(target, layer, config, device));
        }
        set.notes.extend(notes.lines());
        Ok(set)
    }

    /// Keys of the file: those in entries, those refused, the duplicates and those unread.
    #[must_use]
    pub fn num_keys(&self) -> usize {
        let in_entries: usize = self.entries.iter().map(|entry| entry.keys.len()).sum();
        let in_refused: usize = self.refused.iter().map(|group| group.keys.len()).sum();
        in_entries + in_refused + self.duplicates.len() + self.unread.len()
    }

    /// Adds the entry or the refused group of one layer; the answer is what there is to say of an entry.
    fn build(
        &mut self,
        target: TargetName,
        layer: Layer,
        config: Option<&AdapterConfig>,
        device: &Device,
    ) -> Notes {
        let Layer {
            dialect,
            component,
            keys,
            tensors,
        } = layer;
        let tensors = tensors
            .into_iter()
            .map(|(suffix, source)| (suffix, source.data))
            .collect();
        let group = TensorGroup {
            target: target.as_str().into(),
            tensors,
            config: layer_config(config, &target),
        };
        let notes = Notes::of(&group, &keys);
        match registry::load(group, device) {
            Ok(patch) => {
                self.entries.push(PatchEntry {
                    target,
                    component,
                    patch,
                    keys,
                    dialect,
                });
                notes
            }
            Err(error) => {
                let target = target.as_str().into();
                self.refused.push(RefusedGroup {
                    target,
                    component,
                    keys,
                    error,
                });
                Notes::default()
            }
        }
    }
}

/// What the configuration says of a layer. Its patterns are for dotted names, and files that flatten theirs
/// carry alphas of their own.
fn layer_config(config: Option<&AdapterConfig>, target: &TargetName) -> Option<LayerConfig> {
    match target {
        TargetName::Dotted(path) => Some(config?.layer(path)),
        TargetName::Flattened(_) => None,
    }
}
