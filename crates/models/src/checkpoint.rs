//! The names and shapes of a checkpoint's tensors, and a view of a checkpoint below a name prefix.
//!
//! A checkpoint that carries a whole pipeline keeps its transformer below
//! `model.diffusion_model.`; [`Prefixed`] shows that part under the transformer's own names.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use overglaze_core::stored_weights;
use overglaze_stream::{StreamError, TensorEntry, WeightSource};

use crate::ModelError;

/// Names and shapes of a checkpoint's tensors; all that detection and inference look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorShapes {
    file: String,
    shapes: BTreeMap<String, Vec<usize>>,
}

impl TensorShapes {
    /// Names and shapes under the name of the file they are from.
    pub fn new(
        file: impl Into<String>,
        shapes: impl IntoIterator<Item = (String, Vec<usize>)>,
    ) -> Self {
        Self {
            file: file.into(),
            shapes: shapes.into_iter().collect(),
        }
    }

    /// Names and logical shapes of a source's weights; what a packed weight keeps in tensors beside it is left out.
    #[must_use]
    pub fn of(source: &dyn WeightSource) -> Self {
        let weights = stored_weights(source).into_iter();
        Self::new(
            source.label(),
            weights.map(|(name, weight)| (name, weight.shape)),
        )
    }

    /// The file they are from, for messages.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Number of tensors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shapes.len()
    }

    /// Whether there is no tensor at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shapes.is_empty()
    }

    /// Whether a tensor of this name is there.
    #[must_use]
    pub fn contains(&self, tensor: &str) -> bool {
        self.shapes.contains_key(tensor)
    }

    /// Names in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.shapes.keys().map(String::as_str)
    }

    /// The shape of a tensor.
    ///
    /// # Errors
    /// [`ModelError::MissingTensor`] when it is not there.
    pub fn shape(&self, tensor: &str) -> Result<&[usize], ModelError> {
        self.shapes
            .get(tensor)
            .map(Vec::as_slice)
            .ok_or_else(|| ModelError::MissingTensor {
                file: self.file.clone(),
                tensor: tensor.to_owned(),
            })
    }

    /// The shape `[rows, columns]` of a matrix.
    ///
    /// # Errors
    /// [`ModelError::MissingTensor`], or [`ModelError::TensorShape`] when it is no matrix.
    pub fn matrix(&self, tensor: &str) -> Result<[usize; 2], ModelError> {
        let shape = self.shape(tensor)?;
        shape
            .try_into()
            .map_err(|_| self.wrong_shape(tensor, shape, "a matrix [d_output, d_input]".to_owned()))
    }

    pub(crate) fn wrong_shape(
        &self,
        tensor: &str,
        found: &[usize],
        expected: String,
    ) -> ModelError {
        ModelError::TensorShape {
            file: self.file.clone(),
            tensor: tensor.to_owned(),
            found: found.to_vec(),
            expected,
        }
    }

    /// Only the tensors below `prefix`, without it.
    #[must_use]
    pub fn below(&self, prefix: &str) -> Self {
        let inside = self.shapes.iter().filter_map(|(name, shape)| {
            Some((name.strip_prefix(prefix)?.to_owned(), shape.clone()))
        });
        Self::new(self.file.clone(), inside)
    }
}

/// The tensors of a source below a name prefix, under their names without it.
#[derive(Debug)]
pub(crate) struct Prefixed {
    source: Arc<dyn WeightSource>,
    prefix: &'static str,
    entries: BTreeMap<String, TensorEntry>,
}

impl Prefixed {
    /// The tensors below `prefix`; the source itself where that is empty.
    pub(crate) fn below(
        source: Arc<dyn WeightSource>,
        prefix: &'static str,
    ) -> Arc<dyn WeightSource> {
        if prefix.is_empty() {
            return source;
        }
        let inside = source.entries().iter().filter_map(|(name, entry)| {
            Some((name.strip_prefix(prefix)?.to_owned(), entry.clone()))
        });
        let entries = inside.collect();
        Arc::new(Self {
            source,
            prefix,
            entries,
        })
    }
}

impl WeightSource for Prefixed {
    fn entries(&self) -> &BTreeMap<String, TensorEntry> {
        &self.entries
    }

    fn metadata(&self) -> &BTreeMap<String, String> {
        self.source.metadata()
    }

    fn label(&self) -> String {
        self.source.label()
    }

    fn read(&self, name: &str) -> Result<Bytes, StreamError> {
        self.source.read(&format!("{}{name}", self.prefix))
    }

    fn read_into(&self, name: &str, buffer: &mut [u8]) -> Result<(), StreamError> {
        self.source
            .read_into(&format!("{}{name}", self.prefix), buffer)
    }

    fn notes(&self) -> &[String] {
        self.source.notes()
    }
}
