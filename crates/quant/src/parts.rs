//! The byte strings a packed matrix consists of, by name.

use std::fmt;

use bytes::Bytes;

use crate::kernels::Scalars;

/// One tensor of a packed matrix.
#[derive(Clone)]
pub struct Part {
    /// What the format calls it, e.g. `values`, `scale`.
    pub name: &'static str,
    /// The container's word for the type of its elements, e.g. `F32`; empty where the format alone knows.
    pub tag: String,
    /// Shape as stored; empty where the format alone knows.
    pub shape: Vec<usize>,
    /// The stored bytes.
    pub bytes: Bytes,
}

/// The named parts of a packed matrix, e.g. `values`, `scale`; cloning shares the bytes.
#[derive(Clone, Default)]
pub struct Parts(Vec<Part>);

impl Part {
    /// The name of the part that holds the packed values.
    pub const VALUES: &'static str = "values";

    /// The elements as numbers; `None` where their type is none this crate reads.
    #[must_use]
    pub fn scalars(&self) -> Option<Scalars<'_>> {
        Scalars::new(&self.tag, &self.bytes)
    }
}

impl Parts {
    /// These parts; of two with one name the first counts.
    #[must_use]
    pub fn new(parts: Vec<Part>) -> Self {
        Self(parts)
    }

    /// The one part of a format that keeps everything in its blocks.
    #[must_use]
    pub fn values(bytes: Bytes) -> Self {
        Self(vec![Part {
            name: Part::VALUES,
            tag: String::new(),
            shape: Vec::new(),
            bytes,
        }])
    }

    /// The part called `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Part> {
        self.iter().find(|part| part.name == name)
    }

    /// The bytes of the part called `name`; none where there is no such part.
    #[must_use]
    pub fn bytes(&self, name: &str) -> &[u8] {
        self.get(name).map_or(&[], |part| &part.bytes)
    }

    /// Bytes of all parts together.
    #[must_use]
    pub fn num_bytes(&self) -> usize {
        self.iter().map(|part| part.bytes.len()).sum()
    }

    /// Every part, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Part> {
        self.0.iter()
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name, tag, shape, ..
        } = self;
        write!(
            formatter,
            "{name}: {tag}{shape:?}, {} bytes",
            self.bytes.len()
        )
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}
