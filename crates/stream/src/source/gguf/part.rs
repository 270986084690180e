//! One file with its checked header: a whole one, or a part of a split one.

use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::{
    BlockTypes,
    header::GgufHeader,
    split::{self, Place},
};
use crate::StreamError;

#[derive(Debug)]
pub(super) struct Part {
    pub(super) label: String,
    /// Where it is, if that is on a disk.
    pub(super) path: Option<PathBuf>,
    pub(super) map: Bytes,
    pub(super) header: GgufHeader,
    place: Option<Place>,
}

impl Part {
    /// A file in memory.
    pub(super) fn parse(
        label: String,
        map: Bytes,
        block_types: &BlockTypes<'_>,
    ) -> Result<Self, StreamError> {
        let header = GgufHeader::parse(&label, &map, block_types)?;
        let place = split::place(&label, &header.values)?;
        Ok(Self {
            label,
            path: None,
            map,
            header,
            place,
        })
    }

    /// A file of a disk.
    pub(super) fn mapped(
        path: &Path,
        map: Bytes,
        block_types: &BlockTypes<'_>,
    ) -> Result<Self, StreamError> {
        let part = Self::parse(path.display().to_string(), map, block_types)?;
        Ok(Self {
            path: Some(path.to_owned()),
            ..part
        })
    }

    /// Which part it is; `None` for a whole file.
    pub(super) fn place(&self) -> Option<Place> {
        self.place
    }
}
