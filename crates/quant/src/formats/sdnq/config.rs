//! What sdnq's `quantization_config.json` says of one layer.
//!
//! Settings hold for the whole model. `modules_quant_config` has others for some layers, and `modules_dtype_dict` other
//! types: under a type's name, or under `minimum_6bit` and the like, the layers that get it. sdnq saves both sorted by
//! key and takes the first that fits (`get_quant_kwargs` and `get_minimum_dtype` of sdnq 0.2.8).

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::QuantError;

use super::{number::Number, pattern::is_in};

/// The settings of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LayerConfig {
    /// Name of the type the values are packed into.
    pub(super) type_name: String,
    /// Values that are turned together if the layer's width allows; `None` where they are not turned.
    pub(super) turned_len: Option<usize>,
    pub(super) has_codebook: bool,
    pub(super) has_scale_codebook: bool,
    /// Whether matrices that can be are stored transposed.
    pub(super) has_integer_products: bool,
}

impl LayerConfig {
    /// Settings of a layer of which only the type is known.
    pub(super) fn of_type(type_name: &str) -> Self {
        Self {
            type_name: type_name.into(),
            turned_len: None,
            has_codebook: false,
            has_scale_codebook: false,
            has_integer_products: false,
        }
    }

    /// What `text` says of the weight `name`; `None` where the text is of another library.
    pub(super) fn new(
        format: &'static str,
        name: &str,
        text: &str,
    ) -> Result<Option<Self>, QuantError> {
        let bad = |found: String, expected: &str| QuantError::BadDescription {
            format,
            place: CONFIG.into(),
            found,
            expected: expected.into(),
        };
        let unreadable = |error: serde_json::Error| {
            bad(format!("is not understood ({error})"), "settings of sdnq")
        };
        let Method { quant_method } = serde_json::from_str(text).map_err(unreadable)?;
        let is_own = |method: &str| method == format || method == "sdnq_training";
        if !quant_method.as_deref().is_some_and(is_own) {
            return Ok(None);
        }
        let model: Model = serde_json::from_str(text).map_err(unreadable)?;
        let settings = model.settings_of(name);
        let type_name = model
            .type_of(name, settings.weights_dtype.as_deref().unwrap_or("int8"))
            .map_err(|key| {
                bad(
                    format!("has layers under `{key}`"),
                    "a type or a least number of bits",
                )
            })?;
        for dtype in [&settings.scale_dtype, &settings.zero_point_dtype] {
            let dtype = dtype.as_deref().unwrap_or("none");
            if !PLAIN_SCALES.contains(&dtype) {
                let found = format!("has scales of type `{dtype}`");
                return Err(bad(found, &format!("one of {PLAIN_SCALES:?}")));
            }
        }
        let turned_len = settings.hadamard_group_size.unwrap_or(256);
        let is_turned = settings.use_hadamard.unwrap_or(false);
        if is_turned && turned_len == 0 {
            return Err(bad(
                "has a `hadamard_group_size` of 0".into(),
                "a power of two",
            ));
        }
        Ok(Some(Self {
            type_name,
            turned_len: is_turned.then_some(turned_len),
            has_codebook: settings.use_codebook.unwrap_or(false),
            has_scale_codebook: settings.use_codebook_scale.unwrap_or(false),
            has_integer_products: settings.use_quantized_matmul.unwrap_or(false)
                && !is_in(name, model.modules_to_not_use_matmul.iter().flatten()),
        }))
    }
}

#[derive(Deserialize)]
struct Method {
    quant_method: Option<String>,
}

#[derive(Deserialize)]
struct Model {
    #[serde(flatten)]
    settings: Settings,
    modules_dtype_dict: Option<BTreeMap<String, Vec<String>>>,
    modules_quant_config: Option<BTreeMap<String, Settings>>,
    modules_to_not_use_matmul: Option<Vec<String>>,
}

#[derive(Clone, Default, Deserialize)]
struct Settings {
    weights_dtype: Option<String>,
    scale_dtype: Option<String>,
    zero_point_dtype: Option<String>,
    hadamard_group_size: Option<usize>,
    use_hadamard: Option<bool>,
    use_codebook: Option<bool>,
    use_codebook_scale: Option<bool>,
    use_quantized_matmul: Option<bool>,
}

impl Model {
    /// The settings of the weight `name`.
    fn settings_of(&self, name: &str) -> Settings {
        let own = self.modules_quant_config.iter().flatten();
        let mut own = own.filter(|(pattern, _)| is_in(name, [*pattern]));
        let all = &self.settings;
        let Some((_, own)) = own.next() else {
            return all.clone();
        };
        Settings {
            weights_dtype: own.weights_dtype.clone().or(all.weights_dtype.clone()),
            scale_dtype: own.scale_dtype.clone().or(all.scale_dtype.clone()),
            zero_point_dtype: own
                .zero_point_dtype
                .clone()
                .or(all.zero_point_dtype.clone()),
            hadamard_group_size: own.hadamard_group_size.or(all.hadamard_group_size),
            use_hadamard: own.use_hadamard.or(all.use_hadamard),
            use_codebook: own.use_codebook.or(all.use_codebook),
            use_codebook_scale: own.use_codebook_scale.or(all.use_codebook_scale),
            use_quantized_matmul: own.use_quantized_matmul.or(all.use_quantized_matmul),
        }
    }

    /// The type of the weight `name` where `usual` is the one of its settings, or the key that cannot be read.
    fn type_of(&self, name: &str, usual: &str) -> Result<String, String> {
        for (key, patterns) in self.modules_dtype_dict.iter().flatten() {
            if !is_in(name, patterns) {
                continue;
            }
            let key = key.to_lowercase();
            if !(key.starts_with("minimum") || key.ends_with("bit") || key.ends_with("bits")) {
                return Ok(key);
            }
            let (bits, is_unsigned) = least_bits(&key).ok_or(&key)?;
            if Number::from_name(usual).is_some_and(|usual| usual.bits() < bits) {
                let prefix = if is_unsigned || bits <= 4 {
                    "uint"
                } else {
                    "int"
                };
                return Ok(format!("{prefix}{bits}"));
            }
        }
        Ok(usual.into())
    }
}

/// The number of bits in `minimum_6bit`, `minimum-uint6-bits` or `6bit`, and whether it is one of unsigned numbers.
fn least_bits(key: &str) -> Option<(u32, bool)> {
    let is_dash = |character| character == '-' || character == '_';
    let key = key.strip_prefix("minimum").unwrap_or(key);
    let key = key.strip_prefix(is_dash).unwrap_or(key);
    let key = key.strip_suffix("bits").unwrap_or(key);
    let key = key.strip_suffix("bit").unwrap_or(key);
    let key = key.strip_suffix(is_dash).unwrap_or(key);
    let (bits, is_unsigned) = match key.strip_prefix("uint") {
        Some(bits) => (bits, true),
        None => (key.strip_prefix("int").unwrap_or(key), false),
    };
    Some((bits.parse().ok()?, is_unsigned))
}

/// The text that holds it.
pub(super) const CONFIG: &str = "quantization_config";

/// Types of scales whose tensors say themselves what they are.
const PLAIN_SCALES: [&str; 6] = [
    "none",
    "uint8",
    "int8",
    "float8_e4m3fn",
    "float8_e5m2",
    "fp8",
];
