//! `quantization_config.json`: what SDNQ says of a model's weights.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::QuantError;

/// The settings that decoding depends on.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Config {
    quant_method: Option<String>,
    pub(super) weights_dtype: Option<String>,
    pub(super) use_codebook: Option<bool>,
    pub(super) use_codebook_scale: Option<bool>,
    pub(super) use_hadamard: Option<bool>,
    pub(super) hadamard_group_size: Option<i64>,
    /// Types of single modules: type to patterns of names.
    modules_dtype_dict: BTreeMap<String, Vec<String>>,
    /// Settings of single modules: pattern of names to settings.
    modules_quant_config: BTreeMap<String, Self>,
}

impl Config {
    /// Reads the JSON `text`; `None` where it is of another library.
    pub(super) fn read(format: &'static str, text: &str) -> Result<Option<Self>, QuantError> {
        let config: Self =
            serde_json::from_str(text).map_err(|error| QuantError::BadDescription {
                format,
                place: super::settings::CONFIG.into(),
                found: format!("cannot be read ({error})"),
                expected: "SDNQ's settings".into(),
            })?;
        Ok((config.quant_method.as_deref() == Some(format)).then_some(config))
    }

    /// The settings of the tensor `name`.
    pub(super) fn of(&self, name: &str) -> Self {
        let mut own = self.clone();
        let mut single = self.modules_quant_config.iter();
        if let Some((_, single)) = single.find(|(pattern, _)| names(pattern, name)) {
            let single = single.clone();
            own.weights_dtype = single.weights_dtype.or(own.weights_dtype);
            own.use_codebook = single.use_codebook.or(own.use_codebook);
            own.use_codebook_scale = single.use_codebook_scale.or(own.use_codebook_scale);
            own.use_hadamard = single.use_hadamard.or(own.use_hadamard);
            own.hadamard_group_size = single.hadamard_group_size.or(own.hadamard_group_size);
        }
        let mut types = self.modules_dtype_dict.iter();
        let is_named = |patterns: &[String]| patterns.iter().any(|pattern| names(pattern, name));
        if let Some((dtype, _)) = types.find(|(dtype, patterns)| {
            // `minimum_6bit` tells a width and no type.
            !dtype.starts_with("minimum") && is_named(patterns)
        }) {
            own.weights_dtype = Some(dtype.clone());
        }
        own
    }
}

/// Whether `pattern` means the tensor `name`: its whole name, one step of it, its beginning after a leading dot, or anything
/// for `*`.
fn names(pattern: &str, name: &str) -> bool {
    if let Some(start) = pattern.strip_prefix('.') {
        return name.starts_with(start);
    }
    let is_step = || name.split('.').any(|step| step == pattern);
    name == pattern || is_step() || (pattern.contains('*') && begins_like(pattern, name))
}

/// Whether `name` begins with something that `pattern` matches, in which `*` stands for any characters.
///
/// What stands between two stars is taken where it comes first: no later place could match more of what follows. Trying
/// every place would take a time that grows with a power of the name's length, as many as there are stars.
fn begins_like(pattern: &str, name: &str) -> bool {
    let mut pieces = pattern.split('*');
    let start = pieces.next().unwrap_or_default();
    let after = name.strip_prefix(start);
    let rest = after.and_then(|after| {
        pieces.try_fold(after, |rest, piece| {
            rest.split_once(piece).map(|(_, rest)| rest)
        })
    });
    rest.is_some()
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn patterns_match_beginnings() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("a*c", "abcd", true),
            ("a*c", "abd", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("*.norm*", "x.norm.weight", true),
            ("x*é", "xaé", true),
            ("ab*b", "ab", false),
        ] {
            assert_eq!(names(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        let (pattern, name) = ("*a".repeat(1000) + "*b", "a".repeat(5000));
        assert!(!names(&pattern, &name));
    }
}
