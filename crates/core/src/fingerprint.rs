//! Hashes of a base's stored bytes, to show that nothing has rewritten them.

use std::{fs::File, io, path::Path};

use crate::{Error, LayerTree};

/// A BLAKE3 hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(blake3::Hash);

impl Fingerprint {
    /// The hash of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(blake3::hash(bytes))
    }

    /// The hash of the file at `path`, as of its bytes; read in pieces.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(File::open(path)?)?;
        Ok(Self(hasher.finalize()))
    }

    /// The hash in hexadecimal.
    #[must_use]
    pub fn to_hex(&self) -> String {
        self.0.to_hex().to_string()
    }
}

/// Hashes the stored bytes of every layer of `tree` under its path, formats and shape, telling `progress`
/// the bytes read so far. Streamed weights are streamed through. Each text and each part is preceded by
/// its length, so that no two models run together to the same bytes.
///
/// # Errors
/// [`Error::Stream`] when a weight cannot be loaded.
pub fn fingerprint(
    tree: &impl LayerTree,
    progress: &mut dyn FnMut(u64),
) -> Result<Fingerprint, Error> {
    let (mut hasher, mut result, mut read) = (blake3::Hasher::new(), Ok(()), 0);
    tree.visit_layers(&mut |path, layer| {
        if result.is_err() {
            return;
        }
        for text in [path].into_iter().chain(layer.base_formats()) {
            hash_framed(&mut hasher, text.as_bytes());
        }
        for length in layer.weight_shape() {
            hasher.update(&(length as u64).to_le_bytes());
        }
        result = layer.visit_base_bytes(&mut |bytes| {
            hasher.update(&[MORE]);
            hash_framed(&mut hasher, bytes);
            read += bytes.len() as u64;
            progress(read);
        });
        hasher.update(&[END]);
    });
    result.map(|()| Fingerprint(hasher.finalize()))
}

fn hash_framed(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update_rayon(bytes);
}

/// Stands before every part of a layer.
const MORE: u8 = 1;
/// Stands after its last.
const END: u8 = 0;
