//! A tensor of a source by its name, the weight it is part of, and what is said when it is missing or has another
//! shape.

use bytes::Bytes;
use overglaze_quant::{FoundWeight, TensorFile, TensorHead, find_weight};
use overglaze_stream::{TensorEntry, WeightSource};

use crate::Error;

/// The entry of the tensor `name`.
pub(crate) fn entry<'a>(
    source: &'a dyn WeightSource,
    name: &str,
) -> Result<&'a TensorEntry, Error> {
    let entry = source.entries().get(name);
    entry.ok_or_else(|| missing(source, name))
}

/// That the source has no tensor `name`, with the nearest name it has.
pub(crate) fn missing(source: &dyn WeightSource, name: &str) -> Error {
    Error::MissingTensor {
        file: source.label(),
        tensor: name.into(),
        hint: nearest(source, name),
    }
}

/// That the tensor `name` has another shape than `expected`.
pub(crate) fn wrong_shape(
    source: &dyn WeightSource,
    name: &str,
    found: &[usize],
    expected: String,
) -> Error {
    Error::WrongShape {
        file: source.label(),
        tensor: name.into(),
        found: found.to_vec(),
        expected,
    }
}

fn nearest(source: &dyn WeightSource, name: &str) -> String {
    let best = source.entries().keys().max_by(|a, b| {
        let score = |known: &str| strsim::normalized_levenshtein(name, known);
        score(a).total_cmp(&score(b))
    });
    best.map_or_else(String::new, |best| {
        format!("; the nearest name in it is `{best}`")
    })
}

/// The weight whose main tensor is `name`: its format and its parts.
pub(crate) fn found(source: &dyn WeightSource, name: &str) -> Result<FoundWeight, Error> {
    entry(source, name)?;
    find_weight(name, &SourceFile(source)).map_err(|source| Error::Quant {
        tensor: name.into(),
        source: Box::new(source),
    })
}

/// A source as formats look at it.
struct SourceFile<'a>(&'a dyn WeightSource);

impl TensorFile for SourceFile<'_> {
    fn head(&self, name: &str) -> Option<TensorHead<'_>> {
        let entry = self.0.entries().get(name)?;
        Some(TensorHead {
            tag: &entry.tag,
            shape: &entry.shape,
        })
    }

    fn read(&self, name: &str) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.0.read(name)?)
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.0.metadata().get(key).map(String::as_str)
    }
}
