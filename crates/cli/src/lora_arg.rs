//! How adapters are laid over a model: `FILE[:STRENGTH]` as `--lora` takes it, `PATTERN=FACTOR` as
//! `--block-strength` does, and the values of `--placement`.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use overglaze_core::{Error, Placement, Strengths};

use crate::CliError;

/// An adapter and its strength.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraArg {
    /// File or PEFT folder.
    pub path: PathBuf,
    /// Factor on its residual.
    pub strength: f32,
}

/// A factor on the strength of every LoRA, on some layers.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockStrength {
    /// Layer names, with `*` for any characters.
    pub pattern: String,
    /// Factor.
    pub factor: f32,
}

/// A LoRA's strengths: `strength`, and on the layers of `blocks` as many times that as they say; where several
/// match, the last counts.
#[must_use]
pub fn strengths(strength: f32, blocks: &[BlockStrength]) -> Strengths {
    let uniform = Strengths::uniform(strength);
    blocks.iter().fold(uniform, |strengths, block| {
        strengths.with_pattern(&block.pattern, strength * block.factor)
    })
}

/// Reads `sidecar`, `direct` or `auto`.
pub(crate) fn placement() -> impl TypedValueParser<Value = Placement> {
    PossibleValuesParser::new(["sidecar", "direct", "auto"]).map(|text| match text.as_str() {
        "direct" => Placement::Direct,
        "auto" => Placement::Automatic,
        _ => Placement::Sidecar,
    })
}

/// What is wrong with laying an adapter, in terms of the flags.
pub(crate) fn not_laid(error: Error) -> CliError {
    match error {
        Error::MergeStreamed { layer } => CliError::DirectStreamed { layer },
        error => error.into(),
    }
}

impl FromStr for BlockStrength {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "expected PATTERN=FACTOR, such as 'double_blocks.0.*=0.5'";
        let (pattern, factor) = text.rsplit_once('=').ok_or(EXPECTED)?;
        let factor = factor
            .parse()
            .ok()
            .filter(|factor: &f32| factor.is_finite());
        match (pattern, factor) {
            ("", _) | (_, None) => Err(EXPECTED.into()),
            (pattern, Some(factor)) => Ok(Self {
                pattern: pattern.into(),
                factor,
            }),
        }
    }
}

impl fmt::Display for BlockStrength {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}={}", self.pattern, self.factor)
    }
}

impl FromStr for LoraArg {
    type Err = String;

    /// What follows the last colon is a strength when it is a number and the path without it is there, or
    /// the whole is not.
    fn from_str(text: &str) -> Result<Self, String> {
        let whole = Self {
            path: text.into(),
            strength: 1.0,
        };
        let Some((path, number)) = text.rsplit_once(':') else {
            return Ok(whole);
        };
        let Ok(strength) = number.parse::<f32>() else {
            return Ok(whole);
        };
        if !strength.is_finite() {
            return Err(format!("the strength {number} is not a finite number"));
        }
        if strength == 0.0 && number.parse::<f64>() != Ok(0.0) {
            return Err(format!(
                "the strength {number} is too small to be told from 0"
            ));
        }
        match Path::new(path).exists() || !Path::new(text).exists() {
            true => Ok(Self {
                path: path.into(),
                strength,
            }),
            false => Ok(whole),
        }
    }
}
