//! A place in a pickle's bytes: every length is compared with what is left before anything is taken.

use super::{PickleError, PickleForm};

/// Longest line read: a module or a name.
const MAX_LINE_BYTES: usize = 1024;

/// Bytes, and how far they are read.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    file: &'a str,
    form: PickleForm,
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(file: &'a str, form: PickleForm, bytes: &'a [u8]) -> Self {
        Self {
            file,
            form,
            bytes,
            position: 0,
        }
    }

    pub(super) fn file(&self) -> &'a str {
        self.file
    }

    pub(super) fn form(&self) -> PickleForm {
        self.form
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    pub(super) fn take(&mut self, num_bytes: u64) -> Result<&'a [u8], PickleError> {
        let rest = &self.bytes[self.position..];
        let taken = usize::try_from(num_bytes)
            .ok()
            .and_then(|num_bytes| rest.get(..num_bytes))
            .ok_or_else(|| PickleError::Truncated {
                file: self.file.to_owned(),
                form: self.form,
                offset: self.bytes.len(),
                needed_bytes: num_bytes.saturating_sub(rest.len() as u64),
            })?;
        self.position += taken.len();
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], PickleError> {
        let taken = self.take(N as u64)?;
        Ok(taken.try_into().expect("as many bytes were taken"))
    }

    pub(super) fn byte(&mut self) -> Result<u8, PickleError> {
        self.array().map(|[byte]| byte)
    }

    /// Up to a line feed, which is not part of it.
    pub(super) fn line(&mut self) -> Result<&'a str, PickleError> {
        let rest = &self.bytes[self.position..];
        let end = rest
            .iter()
            .take(MAX_LINE_BYTES)
            .position(|byte| *byte == b'\n');
        let Some(end) = end else {
            return Err(self.malformed("a line of at most 1024 bytes"));
        };
        self.position += end + 1;
        self.utf8(&rest[..end])
    }

    pub(super) fn utf8(&self, bytes: &'a [u8]) -> Result<&'a str, PickleError> {
        std::str::from_utf8(bytes).map_err(|_| self.malformed("text in UTF-8"))
    }

    pub(super) fn malformed(&self, expected: &'static str) -> PickleError {
        PickleError::Malformed {
            file: self.file.to_owned(),
            form: self.form,
            offset: self.position,
            expected,
        }
    }

    pub(super) fn limit(&self, what: &'static str, limit: usize) -> PickleError {
        PickleError::Limit {
            file: self.file.to_owned(),
            form: self.form,
            what,
            limit,
        }
    }
}
