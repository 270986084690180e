//! Output files appear whole or not at all: written beside their place, then renamed.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use tempfile::{Builder, NamedTempFile};

use crate::{CliError, interrupt};

/// A place for an output that has been looked at before the work starts.
#[derive(Clone, Debug)]
pub(crate) struct OutputFile {
    path: PathBuf,
    folder: PathBuf,
}

impl OutputFile {
    /// A place for a file with `extension`; the folder must be there.
    pub(crate) fn plan(path: &Path, extension: &str) -> Result<Self, CliError> {
        let refuse = |why| CliError::OutputPath {
            path: path.to_owned(),
            why,
        };
        let found = path.extension().and_then(|found| found.to_str());
        if !found.is_some_and(|found| found.eq_ignore_ascii_case(extension)) {
            return Err(refuse(match extension {
                "png" => "the picture is a PNG file, so let the name end in .png",
                _ => "latents are a safetensors file, so let the name end in .safetensors",
            }));
        }
        if path.is_dir() {
            return Err(refuse("it is a folder; name a file in it"));
        }
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        if !folder.is_dir() {
            return Err(refuse("its folder does not exist; make the folder first"));
        }
        Ok(Self {
            path: path.to_owned(),
            folder,
        })
    }

    /// The final path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes `contents` to the final path, replacing what is there.
    pub(crate) fn write(&self, contents: &[u8]) -> Result<(), CliError> {
        interrupt::guarded(
            || self.create(),
            |file| file.path(),
            |mut file| {
                file.write_all(contents)?;
                file.as_file().sync_all()?;
                file.persist(&self.path)?;
                Ok(())
            },
        )
        .map_err(|source: std::io::Error| CliError::Write {
            path: self.path.clone(),
            source,
        })
    }

    fn create(&self) -> Result<NamedTempFile, std::io::Error> {
        let mut builder = Builder::new();
        builder.prefix(".overglaze-").suffix(".partial");
        open_to_all(&mut builder);
        builder.tempfile_in(&self.folder)
    }
}

/// Outputs are no secrets: what the umask allows, not the owner alone.
#[cfg(unix)]
fn open_to_all(builder: &mut Builder<'_, '_>) {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt};
    builder.permissions(Permissions::from_mode(0o666));
}

#[cfg(not(unix))]
fn open_to_all(_: &mut Builder<'_, '_>) {}
