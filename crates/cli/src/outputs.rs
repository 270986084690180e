//! The files a command writes, and the refusal to write over one it reads.

use std::{
    fs,
    path::{Path, PathBuf},
};

use overglaze_core::adapter_file;

use crate::{
    CliError,
    args::SceneArgs,
    key_list,
    output_file::{self, Contents, OutputFile},
};

/// Where the results go; looked at, and begun, before the work starts.
#[derive(Debug)]
pub(crate) struct Outputs {
    pub(crate) picture: OutputFile,
    pub(crate) latents: Option<OutputFile>,
}

impl Outputs {
    /// Places for the picture and what `scene` saves; `adapters` are read besides what `scene` names.
    pub(crate) fn plan(
        picture: &Path,
        scene: &SceneArgs,
        adapters: &[&Path],
    ) -> Result<Self, CliError> {
        let latents = scene.save_latents.as_deref();
        output_file::check(picture, Contents::Picture)?;
        if let Some(latents) = latents {
            output_file::check(latents, Contents::Latents)?;
            refuse_same(latents, picture)?;
        }
        let documents = [
            &scene.config,
            &scene.prompts_file,
            &scene.conditioning,
            &scene.noise,
        ];
        let documents = documents.into_iter().flatten().map(PathBuf::as_path);
        let weights = scene.model.as_deref().into_iter();
        let inputs = inputs(documents, weights.chain(adapters.iter().copied()));
        for output in [Some(picture), latents].into_iter().flatten() {
            refuse_inputs(output, &inputs)?;
        }
        Ok(Self {
            picture: OutputFile::create(picture)?,
            latents: latents.map(OutputFile::create).transpose()?,
        })
    }
}

fn refuse_same(output: &Path, other: &Path) -> Result<(), CliError> {
    if is_same(output, other) {
        return Err(CliError::SameFile {
            output: output.to_owned(),
            other: other.to_owned(),
        });
    }
    Ok(())
}

/// Refuses an output that is one of the files that are read.
pub(crate) fn refuse_inputs(output: &Path, inputs: &[PathBuf]) -> Result<(), CliError> {
    // What is not there yet is no input.
    if !output.exists() {
        return Ok(());
    }
    let mut inputs = inputs.iter();
    inputs.try_for_each(|input| refuse_same(output, input))
}

/// Every file that is read: `documents`, and those behind models and adapters at the paths `weights`.
pub(crate) fn inputs<'a>(
    documents: impl Iterator<Item = &'a Path>,
    weights: impl Iterator<Item = &'a Path>,
) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = documents.map(Path::to_path_buf).collect();
    for path in weights {
        files.push(path.to_path_buf());
        // An index names files beside it.
        let is_json = path.extension().is_some_and(|found| found == "json");
        let is_index = is_json && !key_list::is_list(path);
        let folder = if is_index {
            output_file::folder(path)
        } else {
            path
        };
        let is_adapter = adapter_file::is_peft_folder(path);
        push_weights(folder, if is_adapter { 0 } else { MAX_DEPTH }, &mut files);
    }
    files
}

/// Files of weights and their documents in a folder and the folders in it.
fn push_weights(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    // A folder that cannot be read is told by who reads it.
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        if path.is_dir() {
            if depth > 0 {
                push_weights(&path, depth - 1, files);
            }
            continue;
        }
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        if ["safetensors", "json"].contains(&extension.to_lowercase().as_str()) {
            files.push(path);
        }
    }
}

/// Whether two paths lead to one file.
fn is_same(a: &Path, b: &Path) -> bool {
    let place = |path: &Path| path.canonicalize().ok().or_else(|| planned(path));
    match (place(a), place(b)) {
        (Some(x), Some(y)) => x == y || is_same_inode(a, b),
        _ => false,
    }
}

/// The absolute path of a file that is not there yet.
fn planned(path: &Path) -> Option<PathBuf> {
    let folder = output_file::folder(path).canonicalize().ok()?;
    Some(folder.join(path.file_name()?))
}

#[cfg(unix)]
fn is_same_inode(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let inode = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    matches!((inode(a), inode(b)), (Ok(a), Ok(b)) if a == b)
}

#[cfg(not(unix))]
fn is_same_inode(_: &Path, _: &Path) -> bool {
    false
}

/// A pipeline's transformer and a folder's PEFT adapters are one folder down.
const MAX_DEPTH: usize = 1;
