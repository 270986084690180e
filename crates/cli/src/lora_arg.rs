//! `FILE[:STRENGTH]` as `--lora` takes it.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

/// An adapter and its strength.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraArg {
    /// File or PEFT folder.
    pub path: PathBuf,
    /// Factor on its residual.
    pub strength: f32,
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
        match Path::new(path).exists() || !Path::new(text).exists() {
            true => Ok(Self {
                path: path.into(),
                strength,
            }),
            false => Ok(whole),
        }
    }
}
