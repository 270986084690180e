//! Files split into parts: `name-00001-of-00003.gguf` and so on, which say of themselves which part they are.
//!
//! `split.no` counts from 0, `split.count` and `split.tensors.count` are of the whole. Origin: llama.cpp's
//! `gguf-split`.

use std::{collections::BTreeMap, path::Path};

use super::{BlockTypes, GgufError, GgufValue, Part, header::MAX_ENTRIES, metadata::describe};
use crate::{
    StreamError, TensorEntry,
    source::{header::shorten, mapping::map_file},
};

/// Which part a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// From 1, as in the name.
    number: u64,
    count: u64,
    /// Of all parts, where the file says it.
    num_tensors: Option<u64>,
}

/// The place that the metadata of a file give it; `None` where it is whole.
pub(super) fn place(
    file: &str,
    values: &BTreeMap<String, GgufValue>,
) -> Result<Option<Place>, GgufError> {
    let number = |key: &str, expected, limit: u64| match values.get(key) {
        None => Ok(None),
        Some(value) => value
            .as_u64()
            .filter(|number| *number < limit)
            .map(Some)
            .ok_or_else(|| GgufError::KeyValue {
                file: file.to_owned(),
                key: key.to_owned(),
                found: describe(value),
                expected,
            }),
    };
    let Some(count) = number("split.count", "a count of at most 4096", MAX_PARTS + 1)? else {
        return Ok(None);
    };
    let index = number("split.no", "a number below `split.count`", count.max(1))?;
    let num_tensors = number("split.tensors.count", "a count", u64::MAX)?;
    Ok((count > 1).then_some(Place {
        number: index.unwrap_or(0) + 1,
        count,
        num_tensors,
    }))
}

/// All parts of the file that `part`, at `path`, is one of, in order.
pub(super) fn with_others(
    path: &Path,
    part: Part,
    block_types: &BlockTypes<'_>,
) -> Result<Vec<Part>, StreamError> {
    let Some(place) = part.place() else {
        return Ok(vec![part]);
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let Some(stem) = name.strip_suffix(&name_end(place.number, place.count)) else {
        return Err(misnamed(&part.label, place).into());
    };
    let label = part.label.clone();
    let (mut parts, mut opened) = (Vec::new(), Some(part));
    let mut num_tensors = 0;
    for number in 1..=place.count {
        let mut next = match opened.take_if(|_| number == place.number) {
            Some(part) => part,
            None => open_other(path, stem, Place { number, ..place }, block_types)?,
        };
        num_tensors += next.header.tensors.len() as u64;
        if number > 1 {
            // The first part's count; many others' would add up.
            next.header.values.clear();
        }
        parts.push(next);
        check_total(&label, place, num_tensors, number == place.count)?;
    }
    Ok(parts)
}

/// The number and count in the name of a part.
pub(crate) fn numbers_in(file_name: &str) -> Option<(u64, u64)> {
    let stem = file_name.strip_suffix(".gguf")?;
    let (stem, count) = stem.rsplit_once("-of-")?;
    let (_, number) = stem.rsplit_once('-')?;
    let parse = |digits: &str| digits.parse().ok().filter(|_| digits.len() == 5);
    Some((parse(number)?, parse(count)?))
}

/// A part whose name leaves open where the others are.
pub(super) fn misnamed(file: &str, place: Place) -> GgufError {
    GgufError::PartName {
        file: file.to_owned(),
        number: place.number,
        count: place.count,
        expected: name_end(place.number, place.count),
    }
}

/// A tensor of the part `file` that another one has, too.
pub(super) fn duplicate(file: &str, tensor: &str, other: &TensorEntry) -> GgufError {
    let other = other.file.as_deref().and_then(Path::file_name);
    GgufError::PartDuplicate {
        file: file.to_owned(),
        tensor: shorten(tensor),
        other: other.unwrap_or_default().to_string_lossy().into_owned(),
    }
}

fn open_other(
    path: &Path,
    stem: &str,
    expected: Place,
    block_types: &BlockTypes<'_>,
) -> Result<Part, StreamError> {
    let name = format!("{stem}{}", name_end(expected.number, expected.count));
    let part_path = path.with_file_name(&name);
    if let Ok(false) = part_path.try_exists() {
        return Err(GgufError::MissingPart {
            file: path.display().to_string(),
            count: expected.count,
            part: name,
        }
        .into());
    }
    let part = Part::mapped(&part_path, map_file(&part_path)?, block_types)?;
    if part.place() == Some(expected) {
        return Ok(part);
    }
    Err(GgufError::PartMismatch {
        file: part.label.clone(),
        found: part
            .place()
            .map_or_else(|| "a whole file".to_owned(), describe_place),
        expected: describe_place(expected),
    }
    .into())
}

fn check_total(file: &str, place: Place, found: u64, is_last: bool) -> Result<(), GgufError> {
    let file = file.to_owned();
    match place.num_tensors {
        Some(expected) if is_last && found != expected => Err(GgufError::PartTensors {
            file,
            found,
            expected,
        }),
        _ if found > MAX_ENTRIES => Err(GgufError::Count {
            file,
            what: "tensors in all parts",
            found,
            limit: MAX_ENTRIES,
        }),
        _ => Ok(()),
    }
}

fn describe_place(place: Place) -> String {
    let Place { number, count, .. } = place;
    match place.num_tensors {
        Some(num_tensors) => format!("part {number} of {count} with {num_tensors} tensors in all"),
        None => format!("part {number} of {count}"),
    }
}

fn name_end(number: u64, count: u64) -> String {
    format!("-{number:05}-of-{count:05}.gguf")
}

/// As many mappings as a system has to spare; real files have dozens.
const MAX_PARTS: u64 = 4096;
