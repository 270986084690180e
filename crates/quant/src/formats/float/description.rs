//! What a file of `ComfyUI` says of a weight and its scale: JSON such as `{"format": "float8_e4m3fn"}`, in the tensor
//! `X.comfy_quant` or, under `layers`, in the file's text `_quantization_metadata` (`QUANTIZATION.md` of `ComfyUI`).

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{QuantError, TensorFile};

/// How a weight is kept.
#[derive(Debug, Deserialize)]
pub(super) struct Description {
    /// `ComfyUI`'s name for it.
    format: String,
    /// Whether rows have been rotated.
    #[serde(default, rename = "convrot")]
    is_rotated: bool,
}

/// A description, and where it stands.
#[derive(Debug)]
pub(super) struct Described {
    place: String,
    description: Description,
}

impl Described {
    /// What `file` says of the weight whose tensors' names begin with `module`; `None` where it says nothing.
    pub(super) fn find(
        format: &'static str,
        module: &str,
        file: &dyn TensorFile,
    ) -> Result<Option<Self>, QuantError> {
        let place = format!("{module}comfy_quant");
        if let Some(head) = file.head(&place) {
            if head.tag != "U8" || head.shape.len() != 1 || head.shape[0] > MAX_BYTES {
                let found = format!("is of type `{}` and shape {:?}", head.tag, head.shape);
                return Err(bad(format, place, found, JSON));
            }
            let text = file.read(&place).map_err(|source| QuantError::Read {
                format,
                tensor: place.clone(),
                source,
            })?;
            return match serde_json::from_slice(&text) {
                Ok(description) => Ok(Some(Self { place, description })),
                Err(error) => Err(unreadable(format, place, &error)),
            };
        }
        let Some(text) = file.text(METADATA) else {
            return Ok(None);
        };
        let place = METADATA.to_owned();
        let metadata: Metadata = serde_json::from_str(text)
            .map_err(|error| unreadable(format, METADATA.into(), &error))?;
        let mut layers = metadata.layers;
        let description = layers.remove(module.strip_suffix('.').unwrap_or(module));
        Ok(description.map(|description| Self { place, description }))
    }

    /// The container's word for the type of the values, which are stored as `tag`.
    ///
    /// # Errors
    /// Where this describes what is not one of `types`, pairs of that word and `ComfyUI`'s.
    pub(super) fn tag(
        &self,
        format: &'static str,
        tag: &str,
        types: &[(&'static str, &'static str)],
    ) -> Result<&'static str, QuantError> {
        let name = self.description.format.as_str();
        let is_meant = |(own, comfy): &&(&str, &str)| *comfy == name && [own, "U8"].contains(&tag);
        let Some((own, _)) = types.iter().find(is_meant) else {
            let found = format!("names the format `{name}` for values stored as `{tag}`");
            let names: Vec<_> = types
                .iter()
                .map(|(_, comfy)| format!("`{comfy}`"))
                .collect();
            let expected = format!("one of {} for values of that type", names.join(", "));
            return Err(bad(format, self.place.clone(), found, &expected));
        };
        if self.description.is_rotated {
            let found = "says that rows are rotated".into();
            return Err(bad(format, self.place.clone(), found, "plain rows"));
        }
        Ok(own)
    }
}

#[derive(Deserialize)]
struct Metadata {
    layers: BTreeMap<String, Description>,
}

fn unreadable(format: &'static str, place: String, error: &serde_json::Error) -> QuantError {
    bad(format, place, format!("cannot be read ({error})"), JSON)
}

fn bad(format: &'static str, place: String, found: String, expected: &str) -> QuantError {
    QuantError::BadDescription {
        format,
        place,
        found,
        expected: expected.into(),
    }
}

/// The text that describes all layers.
const METADATA: &str = "_quantization_metadata";

const JSON: &str = "JSON that names a `format`";

/// The longest description that is read.
const MAX_BYTES: usize = 1 << 16;
