//! One case file: metadata and tensors.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use burn::tensor::{DType, Device, Shape, Tensor, TensorData};
use overglaze_core::open;
use overglaze_patches::TensorGroup;
use overglaze_quant::{Parts, QuantizedTensor, format_by_tag};
use overglaze_stream::WeightSource;
use serde_json::Value;

/// A golden case.
#[derive(Clone, Debug)]
pub struct Case {
    /// `area/name`.
    pub name: String,
    /// Folder of the file, for the data files a case refers to.
    pub folder: std::path::PathBuf,
    source: Arc<dyn WeightSource>,
}

impl Case {
    /// Reads `path`; `None` when the file is data that a case refers to and no case itself.
    ///
    /// # Errors
    /// When the file is no safetensors file.
    pub fn open(path: &Path) -> Result<Option<Self>, String> {
        let source = open(path).map_err(|error| error.to_string())?;
        let Some(area) = source.metadata().get("area") else {
            return Ok(None);
        };
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let folder = path.parent().unwrap_or(Path::new(".")).to_owned();
        Ok(Some(Self {
            name: format!("{area}/{stem}"),
            folder,
            source,
        }))
    }

    /// The file.
    #[must_use]
    pub fn source(&self) -> &Arc<dyn WeightSource> {
        &self.source
    }

    /// The area the case belongs to.
    #[must_use]
    pub fn area(&self) -> &str {
        self.meta("area").unwrap_or_default()
    }

    /// A metadata entry.
    #[must_use]
    pub fn meta(&self, key: &str) -> Option<&str> {
        self.source.metadata().get(key).map(String::as_str)
    }

    /// Whether there is such a metadata entry.
    #[must_use]
    pub fn has_meta(&self, key: &str) -> bool {
        self.meta(key).is_some()
    }

    /// A metadata entry that holds JSON.
    #[must_use]
    pub fn json(&self, key: &str) -> Value {
        self.meta(key)
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or(Value::Null)
    }

    /// Names of the tensors that a metadata entry lists with commas.
    #[must_use]
    pub fn listed(&self, key: &str) -> Vec<&str> {
        let list = self.meta(key).unwrap_or_default();
        list.split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .collect()
    }

    /// A number in the metadata.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<f64> {
        self.meta(key)?.parse().ok()
    }

    /// Whether the case has a tensor of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.source.entries().contains_key(name)
    }

    /// A tensor as it stands in the file.
    ///
    /// # Errors
    /// When the case has no such tensor or its dtype has no Burn counterpart.
    pub fn data(&self, name: &str) -> Result<TensorData, String> {
        let entry = self
            .source
            .entries()
            .get(name)
            .ok_or_else(|| format!("no tensor `{name}`"))?;
        let dtype = dtype_of(&entry.tag).ok_or_else(|| format!("dtype {}", entry.tag))?;
        let bytes = self.source.read(name).map_err(|error| error.to_string())?;
        Ok(TensorData::from_bytes_vec(
            bytes.to_vec(),
            Shape::from(entry.shape.clone()),
            dtype,
        ))
    }

    /// A float tensor on `device` in the file's dtype, or in f32 where the device lacks it.
    ///
    /// # Errors
    /// As [`data`](Self::data), or when the rank is not `D`.
    pub fn tensor<const D: usize>(&self, name: &str, device: &Device) -> Result<Tensor<D>, String> {
        let data = self.data(name)?;
        if data.shape().len() != D {
            return Err(format!(
                "`{name}` has shape {:?}, expected {D} dimensions",
                data.shape()
            ));
        }
        let dtype = if device.supports_dtype(data.dtype()) {
            data.dtype()
        } else {
            DType::F32
        };
        Ok(Tensor::from_data(data, (device, dtype)))
    }

    /// The rank of a tensor.
    #[must_use]
    pub fn rank(&self, name: &str) -> usize {
        self.source
            .entries()
            .get(name)
            .map_or(0, |entry| entry.shape.len())
    }

    /// The last axis of a tensor.
    #[must_use]
    pub fn width(&self, name: &str) -> usize {
        let entry = self.source.entries().get(name);
        entry
            .and_then(|entry| entry.shape.last().copied())
            .unwrap_or(0)
    }

    /// A matrix over the file's bytes as they are packed.
    ///
    /// # Errors
    /// As [`data`](Self::data), or when no format has the tensor's tag.
    pub fn packed(&self, name: &str) -> Result<QuantizedTensor, String> {
        let entry = self
            .source
            .entries()
            .get(name)
            .ok_or_else(|| format!("no tensor `{name}`"))?;
        let &[d_output, d_input] = entry.shape.as_slice() else {
            return Err(format!(
                "`{name}` has shape {:?}, expected a matrix",
                entry.shape
            ));
        };
        let format = format_by_tag(&entry.tag).map_err(|error| error.to_string())?;
        let bytes = self.source.read(name).map_err(|error| error.to_string())?;
        QuantizedTensor::new(format, [d_output, d_input], Parts::values(bytes))
            .map_err(|error| error.to_string())
    }

    /// The tensors under `prefix`, keyed by what follows it.
    ///
    /// # Errors
    /// As [`data`](Self::data).
    pub fn group(&self, prefix: &str) -> Result<TensorGroup, String> {
        let tensors = self
            .source
            .entries()
            .keys()
            .filter_map(|name| Some((name, name.strip_prefix(prefix)?)))
            .map(|(name, suffix)| Ok((suffix.to_owned(), self.data(name)?)))
            .collect::<Result<BTreeMap<_, _>, String>>()?;
        Ok(TensorGroup::new(prefix.trim_end_matches('.'), tensors))
    }
}

pub(crate) fn dtype_of(tag: &str) -> Option<DType> {
    Some(match tag {
        "F64" => DType::F64,
        "F32" => DType::F32,
        "F16" => DType::F16,
        "BF16" => DType::BF16,
        "I64" => DType::I64,
        "I32" => DType::I32,
        "I16" => DType::I16,
        "I8" => DType::I8,
        "U8" | "BOOL" => DType::U8,
        _ => return None,
    })
}
