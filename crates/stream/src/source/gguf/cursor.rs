//! Reading little-endian numbers and texts off the front of a file, never past its end.

use std::fmt::Arguments;

use bytes::Bytes;

use super::GgufError;
use crate::source::header::{MAX_HEADER_BYTES, shorten};

/// A place in the header of a file; what is read there is named only if it is not there.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    file: &'a str,
    bytes: &'a Bytes,
    position: usize,
}

impl<'a> Cursor<'a> {
    /// At `position`, which is not past the end.
    pub(super) fn at(file: &'a str, bytes: &'a Bytes, position: usize) -> Self {
        Self {
            file,
            bytes,
            position,
        }
    }

    /// What to call the file in messages.
    pub(super) fn file(&self) -> String {
        self.file.to_owned()
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    pub(super) fn remaining_bytes(&self) -> u64 {
        (self.bytes.len() - self.position) as u64
    }

    /// What was read since `start`, as a view.
    pub(super) fn since(&self, start: usize) -> Bytes {
        self.bytes.slice(start..self.position)
    }

    /// To a place where it was before.
    pub(super) fn go_back_to(&mut self, position: usize) {
        self.position = self.position.min(position);
    }

    /// Passes over `num_bytes`, if there are as many.
    pub(super) fn skip(
        &mut self,
        num_bytes: u64,
        what: Arguments<'_>,
    ) -> Result<&'a [u8], GgufError> {
        let end = (self.position as u64).saturating_add(num_bytes);
        if num_bytes > self.remaining_bytes() {
            return Err(GgufError::Truncated {
                file: self.file(),
                what: shorten(&what.to_string()),
                offset: self.position as u64,
                needed_bytes: num_bytes,
                available_bytes: self.remaining_bytes(),
            });
        }
        if end > MAX_HEADER_BYTES {
            return Err(GgufError::HeaderTooLong {
                file: self.file(),
                what: shorten(&what.to_string()),
                limit_bytes: MAX_HEADER_BYTES,
            });
        }
        let end = usize::try_from(end).expect("it was compared with a slice's length");
        let passed = &self.bytes[self.position..end];
        self.position = end;
        Ok(passed)
    }

    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(
        &mut self,
        what: Arguments<'_>,
    ) -> Result<[u8; N], GgufError> {
        let bytes = self.skip(N as u64, what)?;
        Ok(bytes.try_into().expect("as many bytes were asked for"))
    }

    pub(super) fn u32(&mut self, what: Arguments<'_>) -> Result<u32, GgufError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: Arguments<'_>) -> Result<u64, GgufError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A text behind its length.
    pub(super) fn text(&mut self, what: Arguments<'_>) -> Result<&'a str, GgufError> {
        let num_bytes = self.u64(what)?;
        let bytes = self.skip(num_bytes, what)?;
        str::from_utf8(bytes).map_err(|_| GgufError::NotUtf8 {
            file: self.file(),
            what: shorten(&what.to_string()),
        })
    }
}
