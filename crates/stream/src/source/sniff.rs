//! What a file is that was taken for a safetensors file: a pure function of its first bytes.
//!
//! A safetensors file begins with a little-endian `u64`, the length of the header, and then `{`. Anything
//! whose first nine bytes read so is left to the header parser.

use super::header::MAX_HEADER_BYTES;

/// Another kind of file under the name of a safetensors file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Impostor {
    /// Nothing in it.
    Empty,
    /// A web page.
    Html,
    /// An XML answer, mostly a server's error.
    Xml,
    /// A JSON text, mostly a server's error.
    Json,
    /// A git-LFS pointer.
    LfsPointer,
    /// A GGUF file.
    Gguf,
    /// A zip archive, as `PyTorch` writes.
    Zip,
    /// A bare pickle, as old `PyTorch` writes.
    Pickle,
}

impl Impostor {
    /// What the file is, with its article.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Html => "an HTML page",
            Self::Xml => "an XML text",
            Self::Json => "a JSON text",
            Self::LfsPointer => "a git-LFS pointer",
            Self::Gguf => "a GGUF file",
            Self::Zip => "a zip/pickle archive as PyTorch writes it",
            Self::Pickle => "a pickle renamed to .safetensors",
        }
    }

    /// What its owner can do.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Empty => "the download failed, so fetch it again",
            Self::Html | Self::Xml | Self::Json => {
                "a server's answer was saved in its place, so fetch the file itself"
            }
            Self::LfsPointer => "run `git lfs pull` in its repository to fetch the weights",
            Self::Gguf => "only safetensors files can be opened here, so convert it first",
            Self::Zip | Self::Pickle => {
                "a pickle is opened under its own name only, and never run, so rename it to .pt or convert it"
            }
        }
    }
}

/// Tells from the first bytes of a file (64 are enough) whether it is a known kind that isn't safetensors.
#[must_use]
pub fn sniff(first: &[u8]) -> Option<Impostor> {
    if first.is_empty() {
        return Some(Impostor::Empty);
    }
    if begins_like_safetensors(first) {
        return None;
    }
    BINARY
        .iter()
        .find(|(magic, _)| first.starts_with(magic))
        .map(|(_, impostor)| *impostor)
        .or_else(|| sniff_text(first))
}

/// Whether a header's length and its brace come first.
pub(super) fn begins_like_safetensors(first: &[u8]) -> bool {
    first
        .split_first_chunk::<8>()
        .is_some_and(|(length, rest)| {
            u64::from_le_bytes(*length) <= MAX_HEADER_BYTES && rest.first() == Some(&b'{')
        })
}

fn sniff_text(first: &[u8]) -> Option<Impostor> {
    let text = first.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(first);
    let text = text.trim_ascii_start().to_ascii_lowercase();
    TEXT.iter()
        .find(|(start, _)| text.starts_with(start))
        .map(|(_, impostor)| *impostor)
}

const BINARY: &[(&[u8], Impostor)] = &[
    (b"GGUF", Impostor::Gguf),
    (b"PK\x03\x04", Impostor::Zip),
    (b"PK\x05\x06", Impostor::Zip),
    (b"\x80\x02", Impostor::Pickle),
    (b"\x80\x03", Impostor::Pickle),
    (b"\x80\x04", Impostor::Pickle),
    (b"\x80\x05", Impostor::Pickle),
];

/// In lower case.
const TEXT: &[(&[u8], Impostor)] = &[
    (b"<!doctype", Impostor::Html),
    (b"<html", Impostor::Html),
    (b"<head", Impostor::Html),
    (b"<?xml", Impostor::Xml),
    (b"<error", Impostor::Xml),
    (b"version https://git-lfs", Impostor::LfsPointer),
    (b"{\"", Impostor::Json),
    (b"{\n", Impostor::Json),
    (b"{\r\n", Impostor::Json),
    (b"{ ", Impostor::Json),
];
