//! Flags of the commands that rewrite a model: `quantize`, `dequantize`, `convert`.

use std::path::PathBuf;

use burn::tensor::FloatDType;
use clap::{Args, ValueEnum};

use crate::examples;

/// Flags of `quantize`.
#[derive(Clone, Debug, Args)]
#[command(after_help = examples::QUANTIZE)]
pub struct QuantizeArgs {
    /// The model: a file of any readable kind, the index of a sharded one, or a folder; the embedded demo where it is
    /// left out.
    #[arg(value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// The format; a name that is none lists those that can be written.
    #[arg(long, value_name = "NAME")]
    pub format: String,
    /// Weights that stay as they are: names, in which * stands for any characters; may be repeated.
    #[arg(long, value_name = "PATTERN")]
    pub keep: Vec<String>,
    /// Weights that are packed although the built-in rules would leave them; may be repeated.
    #[arg(long, value_name = "PATTERN")]
    pub pack: Vec<String>,
    /// What weights become that stay unpacked and whose type the new file cannot hold.
    #[arg(long, value_name = "TYPE", default_value_t = FloatType::F32, value_enum)]
    pub dtype: FloatType,
    /// Say what would be packed, and write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// The new model, a .gguf or .safetensors file; it appears when it is whole.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

/// Flags of `dequantize`.
#[derive(Clone, Debug, Args)]
#[command(after_help = examples::DEQUANTIZE)]
pub struct DequantizeArgs {
    /// The model: a file of any readable kind, the index of a sharded one, or a folder.
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// The type of the decoded weights; f32 is exact.
    #[arg(long, value_name = "TYPE", default_value_t = FloatType::F32, value_enum)]
    pub dtype: FloatType,
    /// The new model, a .safetensors file; it appears when it is whole.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

/// Flags of `convert`.
#[derive(Clone, Debug, Args)]
#[command(after_help = examples::CONVERT)]
pub struct ConvertArgs {
    /// Files of any readable kind, or folders.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The type of weights that have to be decoded; f32 is exact.
    #[arg(long, value_name = "TYPE", default_value_t = FloatType::F32, value_enum)]
    pub dtype: FloatType,
    /// The new .safetensors file, which appears when it is whole; of several files, the folder they go into.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

/// A type of plain floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FloatType {
    /// 32 bits.
    F32,
    /// 16 bits, 10 of them mantissa.
    F16,
    /// 16 bits, 7 of them mantissa.
    Bf16,
}

impl From<FloatType> for FloatDType {
    fn from(dtype: FloatType) -> Self {
        match dtype {
            FloatType::F32 => Self::F32,
            FloatType::F16 => Self::F16,
            FloatType::Bf16 => Self::BF16,
        }
    }
}
