//! How strongly an adapter is laid over each layer: one number, and other ones for layers by pattern.
//!
//! A pattern is compared with a layer's whole path and with every alias that stands for all of its rows, with dots or
//! with underscores for them; `*` stands for any characters, dots included. Where several patterns match one layer, the last one counts. As
//! text: `1.0,double_blocks.0.*=0.5,*.img_attn.*=0`, a number for all layers (1 when it is left out) and
//! `pattern=number`.

use std::{collections::HashMap, fmt, str::FromStr};

use overglaze_patches::TargetName;

use crate::{Error, LayerLimits, LayerShapes, LayerTree, stack::check_strength};

/// The strengths of one adapter by layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Strengths {
    default: f32,
    patterns: Vec<(String, f32)>,
}

impl Strengths {
    /// The same strength on every layer.
    #[must_use]
    pub fn uniform(strength: f32) -> Self {
        Self {
            default: strength,
            patterns: Vec::new(),
        }
    }

    /// Another strength on the layers that `pattern` matches, whatever earlier patterns say.
    #[must_use]
    pub fn with_pattern(mut self, pattern: &str, strength: f32) -> Self {
        self.patterns.push((pattern.into(), strength));
        self
    }

    /// Patterns and their strengths; the last that matches counts.
    #[must_use]
    pub fn patterns(&self) -> &[(String, f32)] {
        &self.patterns
    }

    /// The strengths of the adapter `name` on the layers of `tree`.
    ///
    /// # Errors
    /// [`Error::BadStrength`], or [`Error::PatternUnmatched`] for a pattern that matches no layer.
    pub(crate) fn resolve(
        &self,
        tree: &impl LayerTree,
        name: &str,
    ) -> Result<ResolvedStrengths, Error> {
        let mut shapes = HashMap::new();
        tree.visit_layers(&mut |path, layer| {
            shapes.insert(path.to_owned(), layer.layer_shape());
        });
        let layers = LayerShapes {
            names: tree.names(),
            shape: &|path| shapes.get(path).cloned(),
            limits: &|_| LayerLimits::default(),
        };
        self.resolve_in(layers, name)
    }

    /// As [`resolve`](Self::resolve), on the layers of a model that is not loaded.
    pub(crate) fn resolve_in(
        &self,
        layers: LayerShapes<'_>,
        name: &str,
    ) -> Result<ResolvedStrengths, Error> {
        let strengths = self.patterns.iter().map(|(_, strength)| strength);
        strengths
            .chain([&self.default])
            .try_for_each(|strength| check_strength(name, *strength))?;
        let mut by_layer = HashMap::new();
        let known = match self.patterns.as_slice() {
            [] => Vec::new(),
            _ => names_of_layers(layers),
        };
        for (pattern, strength) in &self.patterns {
            let is_meant =
                |name: &str| matches(pattern, name) || matches(pattern, &name.replace('.', "_"));
            let matching = known.iter().filter(|(name, _)| is_meant(name));
            let layers: Vec<_> = matching.map(|(_, layer)| layer).collect();
            if layers.is_empty() {
                return Err(Error::PatternUnmatched {
                    pattern: pattern.clone(),
                    nearest: nearest(pattern, &known),
                });
            }
            by_layer.extend(layers.into_iter().map(|layer| (layer.clone(), *strength)));
        }
        Ok(ResolvedStrengths {
            default: self.default,
            by_layer,
        })
    }
}

impl From<f32> for Strengths {
    fn from(strength: f32) -> Self {
        Self::uniform(strength)
    }
}

impl From<&Self> for Strengths {
    fn from(strengths: &Self) -> Self {
        strengths.clone()
    }
}

impl FromStr for Strengths {
    type Err = Error;

    /// # Errors
    /// [`Error::StrengthSyntax`] naming the part that is wrong.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut default = None;
        let mut patterns = Vec::new();
        for part in text.split(',').map(str::trim) {
            let wrong = |why| Error::StrengthSyntax {
                part: part.into(),
                why,
            };
            let (pattern, number) = match part.rsplit_once('=') {
                Some((pattern, number)) => (Some(pattern.trim()), number.trim()),
                None => (None, part),
            };
            let strength = number
                .parse()
                .ok()
                .filter(|number: &f32| number.is_finite());
            let strength = strength.ok_or_else(|| wrong("expected a finite number"))?;
            match pattern {
                Some("") => return Err(wrong("expected a pattern of layer names before the `=`")),
                Some(pattern) => patterns.push((pattern.to_owned(), strength)),
                None if default.is_some() => {
                    return Err(wrong("there is a number for all layers before it already"));
                }
                None => default = Some(strength),
            }
        }
        Ok(Self {
            default: default.unwrap_or(1.0),
            patterns,
        })
    }
}

impl fmt::Display for Strengths {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.default)?;
        let mut patterns = self.patterns.iter();
        patterns.try_for_each(|(pattern, strength)| write!(formatter, ",{pattern}={strength}"))
    }
}

/// [`Strengths`] whose patterns have been looked up in a model.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedStrengths {
    default: f32,
    by_layer: HashMap<String, f32>,
}

impl ResolvedStrengths {
    /// The strength on the layer `path`.
    pub(crate) fn at(&self, path: &str) -> f32 {
        self.by_layer.get(path).copied().unwrap_or(self.default)
    }
}

/// Every name that stands for all rows of a layer, with the layer's path.
fn names_of_layers(layers: LayerShapes<'_>) -> Vec<(String, String)> {
    let mut known = Vec::new();
    for name in layers.names.names() {
        let pieces = layers.names.resolve(&TargetName::Dotted(name.into()));
        for piece in pieces.unwrap_or_default() {
            let rows = (layers.shape)(&piece.layer).map(|shape| shape.d_output());
            if rows == Some(piece.layer_rows.len()) {
                known.push((name.to_owned(), piece.layer.clone()));
            }
        }
    }
    known
}

/// Whether `pattern`, in which `*` stands for any characters, is the whole of `name`.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(name) = name.strip_prefix(start) else {
        return false;
    };
    let mut name = name;
    let mut pieces: Vec<_> = rest.split('*').collect();
    let end = pieces.pop().unwrap_or_default();
    for piece in pieces {
        match name.find(piece) {
            Some(index) => name = &name[index + piece.len()..],
            None => return false,
        }
    }
    name.ends_with(end)
}

/// The pattern nearest to `pattern` that matches a layer: as many parts of its name as the pattern spells out, with
/// `*` for those around them.
fn nearest(pattern: &str, known: &[(String, String)]) -> String {
    let spelled = pattern.trim_matches(['*', '.']).to_lowercase();
    let spelled = ["weight", "bias"].iter().fold(&*spelled, |spelled, tail| {
        let layer = spelled.strip_suffix(tail);
        layer
            .and_then(|layer| layer.strip_suffix('.'))
            .unwrap_or(spelled)
    });
    let num_parts = spelled.split('.').count();
    let candidates = known.iter().flat_map(|(name, _)| {
        let parts: Vec<_> = name.split('.').collect();
        let length = num_parts.min(parts.len());
        let last = parts.len() - length;
        let window = |start: usize| {
            let before = if start == 0 { "" } else { "*." };
            let after = if start == last { "" } else { ".*" };
            let window = parts[start..start + length].join(".");
            let likeness = strsim::normalized_levenshtein(spelled, &window.to_lowercase());
            (likeness, format!("{before}{window}{after}"))
        };
        (0..=last).map(window).collect::<Vec<_>>()
    });
    let best = candidates.max_by(|(a, first), (b, second)| a.total_cmp(b).then(second.cmp(first)));
    best.map(|(_, pattern)| pattern).unwrap_or_default()
}
