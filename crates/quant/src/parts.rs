//! The byte strings a packed matrix consists of, by name.

use std::fmt;

use bytes::Bytes;

/// The named parts of a packed matrix, e.g. `values`, `scales`; cloning shares the bytes.
#[derive(Clone, Default)]
pub struct Parts(Vec<(&'static str, Bytes)>);

impl Parts {
    /// The name of the part that holds the packed values.
    pub const VALUES: &'static str = "values";

    /// Parts under their names.
    #[must_use]
    pub fn new(parts: Vec<(&'static str, Bytes)>) -> Self {
        Self(parts)
    }

    /// The one part of a format that keeps everything in its blocks.
    #[must_use]
    pub fn values(bytes: Bytes) -> Self {
        Self(vec![(Self::VALUES, bytes)])
    }

    /// The part called `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.shared(name).map(Bytes::as_ref)
    }

    /// The part called `name`, as a handle that shares its bytes.
    #[must_use]
    pub fn shared(&self, name: &str) -> Option<&Bytes> {
        self.iter()
            .find(|(part, _)| *part == name)
            .map(|(_, bytes)| bytes)
    }

    /// Bytes of all parts together.
    #[must_use]
    pub fn num_bytes(&self) -> usize {
        self.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// Every part with its name, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Bytes)> {
        self.0.iter().map(|(name, bytes)| (*name, bytes))
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_map()
            .entries(self.iter().map(|(name, bytes)| (name, bytes.len())))
            .finish()
    }
}
