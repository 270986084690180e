//! Keys that an adapter has in common with a plain checkpoint, of which a dialect alone can make nothing.
//!
//! `<layer>.weight` is IA3's beside `<layer>.on_input`, as `LyCORIS` writes it; `<norm>.scale` is a control
//! adapter's, as Black Forest Labs write it, in a file that has factors. Both are read when the rest of the
//! file is known to be an adapter's. Numbers alone, as an `alpha`, make no adapter of a file.

use crate::{
    Dialect, FileKey, PatchError,
    dialects::is_norm,
    gather::{Gathered, Source, understand},
};

/// Whether `key` could be a checkpoint's and, beside others, an adapter's.
pub(crate) fn is_shared(key: &str) -> bool {
    Shared::of(key).is_some()
}

impl Gathered {
    /// Adds those of the `shared` keys that are an adapter's; the others are unread.
    ///
    /// # Errors
    /// As [`insert`](Self::insert), or [`PatchError::AmbiguousKey`].
    pub(crate) fn insert_shared(
        &mut self,
        shared: Vec<Source>,
        dialects: &[&'static Dialect],
    ) -> Result<(), PatchError> {
        let is_adapter = self.has_factors();
        for source in shared {
            let understood = match Shared::of(&source.key) {
                Some(shared) if is_adapter => shared.understand(dialects)?,
                _ => None,
            };
            match understood.filter(|(_, file_key)| self.expects(file_key)) {
                Some((dialect, file_key)) => self.insert(dialect, file_key, source)?,
                None => self.unread.push(source.key),
            }
        }
        Ok(())
    }

    /// Leaves all keys unread where none but numbers are: audio models have an `alpha` of their own.
    pub(crate) fn forget_numbers(&mut self) {
        if !self.has_factors() {
            let layers = std::mem::take(&mut self.layers);
            let keys = layers.into_values().flat_map(|layer| layer.keys);
            self.unread.extend(keys.chain(self.duplicates.drain(..)));
        }
    }

    /// Whether some layer has more than the numbers that a checkpoint may have too.
    fn has_factors(&self) -> bool {
        let mut suffixes = self.layers.values().flat_map(|layer| layer.tensors.keys());
        suffixes.any(|suffix| !NUMBERS.contains(&suffix.as_str()))
    }

    /// Whether the adapter has a use for the shared `file_key`: the weight of IA3 goes with its flag.
    fn expects(&self, file_key: &FileKey) -> bool {
        let layer = self.layers.get(&file_key.target);
        let has_flag = layer.is_some_and(|layer| layer.tensors.contains_key(ON_INPUT));
        has_flag || file_key.suffix != "weight"
    }
}

/// A key that could be a checkpoint's.
struct Shared<'a> {
    path: &'a str,
    suffix: &'static str,
    /// A suffix no checkpoint has, by which the dialects read the same layer's name.
    stand_in: &'static str,
}

impl<'a> Shared<'a> {
    fn of(key: &'a str) -> Option<Self> {
        let (path, tail) = key.rsplit_once('.')?;
        let (suffix, stand_in) = match tail {
            "weight" => ("weight", ON_INPUT),
            "scale" if is_norm(path) => ("scale", "alpha"),
            _ => return None,
        };
        Some(Self {
            path,
            suffix,
            stand_in,
        })
    }

    /// The dialect and what the key is in it.
    fn understand(
        &self,
        dialects: &[&'static Dialect],
    ) -> Result<Option<(&'static str, FileKey)>, PatchError> {
        let key = format!("{}.{}", self.path, self.stand_in);
        let understood = understand(&key, dialects)?;
        Ok(understood.map(|(dialect, file_key)| {
            let suffix = self.suffix.into();
            (dialect, FileKey { suffix, ..file_key })
        }))
    }
}

const ON_INPUT: &str = "on_input";
/// What a checkpoint's layers may have beside their weights.
const NUMBERS: [&str; 3] = ["alpha", "scale", "rescale"];
