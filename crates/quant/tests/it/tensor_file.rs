//! Files of tensors in memory, and the weights in them.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fs,
    path::Path,
};

use bytes::Bytes;
use overglaze_quant::{
    FoundPart, FoundWeight, Part, Parts, QuantError, QuantizedTensor, TensorFile, TensorHead,
    find_weight,
};
use safetensors::SafeTensors;

/// Tensors and texts by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryFile {
    tensors: BTreeMap<String, (String, Vec<usize>, Bytes)>,
    /// Names of tensors that cannot be read.
    spoilt: BTreeSet<String>,
    pub(crate) texts: BTreeMap<String, String>,
}

impl MemoryFile {
    /// A safetensors file, its metadata as texts.
    pub(crate) fn open(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap();
        let (_, head) = SafeTensors::read_metadata(&bytes).unwrap();
        let texts = head.metadata().clone().unwrap_or_default();
        let mut file = Self {
            texts: texts.into_iter().collect(),
            ..Self::default()
        };
        for (name, tensor) in SafeTensors::deserialize(&bytes).unwrap().iter() {
            let tag = tensor.dtype().to_string();
            file.set(name, &tag, tensor.shape(), tensor.data().to_vec());
        }
        file
    }

    pub(crate) fn set(&mut self, name: &str, tag: &str, shape: &[usize], bytes: Vec<u8>) {
        let tensor = (tag.into(), shape.to_vec(), bytes.into());
        self.tensors.insert(name.into(), tensor);
    }

    /// The same with one tensor more, or another.
    pub(crate) fn with(mut self, name: &str, tag: &str, shape: &[usize], bytes: Vec<u8>) -> Self {
        self.set(name, tag, shape, bytes);
        self
    }

    pub(crate) fn with_text(mut self, key: &str, text: &str) -> Self {
        self.texts.insert(key.into(), text.into());
        self
    }

    /// The names that begin with `start`, without it.
    pub(crate) fn names_after<'a>(&'a self, start: &'a str) -> impl Iterator<Item = &'a str> {
        let names = self.tensors.keys();
        names.filter_map(move |name| name.strip_prefix(start))
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.tensors.remove(name).unwrap();
    }

    /// Lets the tensor's bytes be out of reach from now on.
    pub(crate) fn spoil(&mut self, name: &str) {
        self.spoilt.insert(name.into());
    }

    /// The values of a tensor of floats.
    pub(crate) fn floats(&self, name: &str) -> Vec<f32> {
        let part = self.part(Part::VALUES, name);
        part.scalars().unwrap().iter().collect()
    }

    pub(crate) fn part(&self, part: &'static str, name: &str) -> Part {
        let (tag, shape, bytes) = self.tensors[name].clone();
        Part {
            name: part,
            tag,
            shape,
            bytes,
        }
    }

    /// The weight whose main tensor is `name`.
    pub(crate) fn weight(&self, name: &str) -> Result<QuantizedTensor, QuantError> {
        let FoundWeight {
            format,
            shape,
            parts,
            ..
        } = find_weight(name, self)?;
        let parts = parts.into_iter().map(|part| match part {
            FoundPart::InFile { part, tensor } => self.part(part, &tensor),
            FoundPart::Known(part) => part,
        });
        let product = |sizes: &[usize]| sizes.iter().copied().fold(1, usize::saturating_mul);
        let shape = match shape.as_slice() {
            [d_output, kernel @ ..] if !kernel.is_empty() => [*d_output, product(kernel)],
            row => [1, product(row)],
        };
        QuantizedTensor::new(format, shape, Parts::new(parts.collect()))
    }
}

impl TensorFile for MemoryFile {
    fn head(&self, name: &str) -> Option<TensorHead<'_>> {
        let (tag, shape, _) = self.tensors.get(name)?;
        Some(TensorHead { tag, shape })
    }

    fn read(&self, name: &str) -> Result<Bytes, Box<dyn Error + Send + Sync>> {
        if self.spoilt.contains(name) {
            return Err("the disk is broken".into());
        }
        let tensor = self.tensors.get(name).ok_or("no such tensor")?;
        Ok(tensor.2.clone())
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.texts.get(key).map(String::as_str)
    }
}
