//! The zip form of `torch.save`.
//!
//! ```text
//! <any folder>/data.pkl      the pickle
//! <any folder>/data/<key>    a storage, as it is
//! <any folder>/byteorder     "little" or "big"; absent in old files
//! ```
//! Members must be stored as they are, which `torch.save` does: nothing can grow, and storages are used in place.
//! Nothing is ever written to the disk; names that lead out of the archive are refused all the same. Checksums are
//! not compared, as `torch.load` does not by default.

use bytes::Bytes;
use rawzip::{CompressionMethod, ZipArchive, ZipFileHeaderRecord};

use super::{super::header::shorten, PickleError, tensors::Storages};

/// The parts of an archive.
#[derive(Debug)]
pub(super) struct Archive {
    pub(super) pickle: Bytes,
    pub(super) storages: Storages,
}

impl Archive {
    pub(super) fn read(file: &str, whole: &Bytes) -> Result<Self, PickleError> {
        let members = members(file, whole)?;
        let mut pickles = members.iter().filter_map(|(name, bytes)| {
            let folder = name.strip_suffix("data.pkl")?;
            folder.ends_with('/').then_some((folder, bytes))
        });
        let (folder, pickle) = match (pickles.next(), pickles.count()) {
            (Some(only), 0) => only,
            (first, others) => {
                return Err(PickleError::NoPickle {
                    file: file.to_owned(),
                    found: usize::from(first.is_some()) + others,
                });
            }
        };
        let order = members.get(&format!("{folder}byteorder"));
        if order.is_some_and(|order| order.trim_ascii() == b"big") {
            return Err(PickleError::BigEndian {
                file: file.to_owned(),
            });
        }
        let prefix = format!("{folder}data/");
        let storages = members
            .iter()
            .filter_map(|(name, bytes)| {
                Some((name.strip_prefix(&prefix)?.to_owned(), bytes.clone()))
            })
            .collect();
        Ok(Self {
            pickle: pickle.clone(),
            storages,
        })
    }
}

/// Every member but folders, by its name.
fn members(file: &str, whole: &Bytes) -> Result<Storages, PickleError> {
    let refused = |source| PickleError::Archive {
        file: file.to_owned(),
        source,
    };
    let archive = ZipArchive::from_slice(whole).map_err(refused)?;
    let mut members = Storages::new();
    for record in archive.entries() {
        let record = record.map_err(refused)?;
        if record.is_dir() {
            continue;
        }
        let name = member_name(file, &record)?;
        check_stored(file, &name, &record)?;
        let entry = archive.get_entry(record.wayfinder()).map_err(refused)?;
        let bytes = whole.slice_ref(entry.data());
        if members.contains_key(&name) {
            return Err(PickleError::DuplicateMember {
                file: file.to_owned(),
                member: shorten(&name),
            });
        }
        members.insert(name, bytes);
    }
    Ok(members)
}

/// A relative path down from the archive, in UTF-8.
fn member_name(file: &str, record: &ZipFileHeaderRecord<'_>) -> Result<String, PickleError> {
    let path = record.file_path();
    let bytes: &[u8] = path.as_ref();
    let is_plain = |name: &&str| {
        !name.contains(['\\', ':', '\0'])
            && name.split('/').all(|part| !matches!(part, "" | "." | ".."))
    };
    match std::str::from_utf8(bytes).ok().filter(is_plain) {
        Some(name) => Ok(name.to_owned()),
        None => Err(PickleError::MemberName {
            file: file.to_owned(),
            member: shorten(&String::from_utf8_lossy(bytes)),
        }),
    }
}

fn check_stored(
    file: &str,
    name: &str,
    record: &ZipFileHeaderRecord<'_>,
) -> Result<(), PickleError> {
    let method = record.compression_method();
    let is_stored = method == CompressionMethod::STORE
        && !record.flags().is_encrypted()
        && record.compressed_size_hint() == record.uncompressed_size_hint();
    if is_stored {
        return Ok(());
    }
    Err(PickleError::Compressed {
        file: file.to_owned(),
        member: shorten(name),
        method: method.as_u16(),
    })
}
