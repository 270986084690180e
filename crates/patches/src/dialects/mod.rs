//! Spellings of adapter keys, one file each: from a file's key to a target name and a canonical suffix.

mod diffusers;
mod families;
mod kohya;
mod suffixes;

use std::fmt;

pub(crate) use families::family;
pub(crate) use suffixes::adapter_name;
pub use suffixes::split_suffix;

/// The layer a key is meant for, as far as the file's spelling tells.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetName {
    /// The module path with its dots, e.g. `transformer_blocks.0.attn.to_q`.
    Dotted(String),
    /// The module path with dots written as underscores, e.g. `double_blocks_0_img_attn_qkv`. It cannot
    /// be undone by rule; the model's own name table resolves it.
    Flattened(String),
}

impl TargetName {
    /// The name as the file spells it, without the spelling's prefix.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Dotted(name) | Self::Flattened(name) => name,
        }
    }
}

impl fmt::Display for TargetName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// One key of a file, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileKey {
    /// The layer it is for.
    pub target: TargetName,
    /// Canonical suffix, e.g. `lora_up.weight`.
    pub suffix: String,
}

/// A registered spelling of adapter keys; submit one with `inventory`.
#[derive(Debug)]
pub struct Dialect {
    /// Name, as reports show it.
    pub name: &'static str,
    /// Reads one key of a file; `None` when the key is not in this spelling.
    pub parse: fn(&str) -> Option<FileKey>,
}
inventory::collect!(Dialect);

/// Every registered dialect, sorted by name.
#[must_use]
pub fn dialects() -> Vec<&'static Dialect> {
    let mut dialects: Vec<_> = inventory::iter::<Dialect>.into_iter().collect();
    dialects.sort_unstable_by_key(|dialect| dialect.name);
    dialects
}
