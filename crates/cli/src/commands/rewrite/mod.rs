//! `convert`, `dequantize` and, in its own file, `quantize`: the same weights in another file.

mod error;
pub(super) mod quantize;
mod writing;

use std::path::{Path, PathBuf};

use overglaze_core::FileRewrite;

use crate::{
    CliError, Console, Exit,
    args::{ConvertArgs, DequantizeArgs},
    output_file::Contents,
    tensor_file::open,
};

use super::JSON_VERSION;

pub use self::error::RewriteError;
use self::writing::{Place, Rewritten};

pub(super) fn run_dequantize(args: &DequantizeArgs, console: &Console) -> Result<Exit, CliError> {
    let place = Place::new(&args.output, &[args.model.as_path()], Contents::Checkpoint)?;
    let source = open(&args.model)?;
    let rewrite = FileRewrite::decoded(&*source, args.dtype.into());
    rewrite.check_readable()?;
    let rewritten = writing::safetensors(&rewrite, &*source, place, console)?;
    report(&[rewritten], console)
}

pub(super) fn run_convert(args: &ConvertArgs, console: &Console) -> Result<Exit, CliError> {
    let mut rewritten = Vec::new();
    for (file, output) in outputs(args)? {
        let place = Place::new(&output, &[file], Contents::Checkpoint)?;
        let source = open(file)?;
        let rewrite = FileRewrite::converted(&*source, args.dtype.into());
        rewritten.push(writing::safetensors(&rewrite, &*source, place, console)?);
    }
    report(&rewritten, console)
}

/// Every file with the one it becomes.
fn outputs(args: &ConvertArgs) -> Result<Vec<(&Path, PathBuf)>, CliError> {
    let files = args.files.iter().map(PathBuf::as_path);
    if !args.output.is_dir() {
        return match args.files.as_slice() {
            [only] => Ok(vec![(only, args.output.clone())]),
            _ => Err(CliError::OutputPath {
                path: args.output.clone(),
                why: "several files are converted, each to one of its own; make the folder first",
            }),
        };
    }
    let mut outputs: Vec<(&Path, PathBuf)> = Vec::new();
    for file in files {
        let mut name = PathBuf::from(file.file_name().unwrap_or(file.as_os_str()));
        name.set_extension("safetensors");
        let output = args.output.join(name);
        if outputs.iter().any(|(_, other)| *other == output) {
            return Err(CliError::OutputPath {
                path: output,
                why: "two of the files would get this name; convert them one by one",
            });
        }
        outputs.push((file, output));
    }
    Ok(outputs)
}

fn report(files: &[Rewritten], console: &Console) -> Result<Exit, CliError> {
    let document = serde_json::json!({"version": JSON_VERSION, "files": files});
    console.result(&document, || {
        let lines: Vec<_> = files.iter().map(Rewritten::text).collect();
        lines.join("\n")
    })?;
    Ok(Exit::Done)
}
