//! A text that may be a view into a file.

use std::fmt;

use bytes::Bytes;

use crate::source::header::shorten;

/// UTF-8 text of a metadata value; one that was read is a view into the file.
#[derive(Clone, PartialEq, Eq)]
pub struct GgufText(Bytes);

impl GgufText {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // It was UTF-8 when the file was opened: only who rewrites an open file sees nothing here.
        str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Bytes that were found to be UTF-8.
    pub(super) fn of_checked(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// Bytes of the text.
    pub(super) fn num_bytes(&self) -> usize {
        self.0.len()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend((self.0.len() as u64).to_le_bytes());
        out.extend_from_slice(&self.0);
    }
}

impl From<&str> for GgufText {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

/// The beginning of a long text.
impl fmt::Debug for GgufText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&shorten(self.as_str()), f)
    }
}
