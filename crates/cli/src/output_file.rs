//! Output files appear whole or not at all: written beside their place, then renamed.
//!
//! The file beside the place is made before the work starts, so that a place where nothing can be written is told
//! at once; it is gone when the command ends without a result.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use tempfile::{Builder, NamedTempFile};

use crate::{CliError, interrupt::Unfinished};

/// A place for an output, with the file that will be renamed to it.
#[derive(Debug)]
pub(crate) struct OutputFile {
    path: PathBuf,
    file: NamedTempFile,
    /// Dropped after the file, so that an interrupt finds it as long as it is there.
    _guard: Unfinished,
}

/// What an output holds; its name says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// A PNG picture.
    Picture,
    /// Latents as safetensors.
    Latents,
    /// A model as safetensors.
    Checkpoint,
    /// A model as safetensors or GGUF, whichever its name says.
    AnyCheckpoint,
}

impl Contents {
    fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::Picture => &["png"],
            Self::Latents | Self::Checkpoint => &["safetensors"],
            Self::AnyCheckpoint => &["safetensors", GGUF],
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::Picture => "the picture is a PNG file, so let the name end in .png",
            Self::Latents => "latents are a safetensors file, so let the name end in .safetensors",
            Self::Checkpoint => {
                "the model is a safetensors file, so let the name end in .safetensors"
            }
            Self::AnyCheckpoint => {
                "the model is a safetensors or GGUF file, so let the name end in .safetensors or .gguf"
            }
        }
    }
}

/// Refuses a path that cannot be that of a file with such `contents`; the folder must be there.
pub(crate) fn check(path: &Path, contents: Contents) -> Result<(), CliError> {
    let refuse = |why| CliError::OutputPath {
        path: path.to_owned(),
        why,
    };
    let mut extensions = contents.extensions().iter();
    if !extensions.any(|extension| has_extension(path, extension)) {
        return Err(refuse(contents.remedy()));
    }
    if path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(refuse("it is a folder; name a file in it"));
    }
    let name = path.file_name().unwrap_or_default();
    if name.len() > MAX_NAME_BYTES {
        return Err(refuse("its name is too long; file systems take 255 bytes"));
    }
    // Through a link the target is asked: what is no file, such as a device or a pipe, must not be replaced by one.
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(refuse("it is no regular file; name another one"));
    }
    if !folder(path).is_dir() {
        return Err(refuse("its folder does not exist; make the folder first"));
    }
    Ok(())
}

/// Whether the name says that the file is a GGUF file.
pub(crate) fn is_gguf(path: &Path) -> bool {
    has_extension(path, GGUF)
}

fn has_extension(path: &Path, extension: &str) -> bool {
    let found = path.extension().and_then(|found| found.to_str());
    found.is_some_and(|found| found.eq_ignore_ascii_case(extension))
}

const GGUF: &str = "gguf";

/// Bytes of a file's name at most, on every file system in common use.
const MAX_NAME_BYTES: usize = 255;

/// Whether a file of this name is an output that is not finished.
pub(crate) fn is_unfinished(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

/// The folder that a file is in.
pub(crate) fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

impl OutputFile {
    /// Makes the file beside `path`.
    pub(crate) fn create(path: &Path) -> Result<Self, CliError> {
        let mut builder = Builder::new();
        builder.prefix(PREFIX).suffix(SUFFIX);
        open_to_all(&mut builder);
        let create = || builder.tempfile_in(folder(path));
        // The cause names a file nobody has heard of; its kind says enough.
        let failed = |error: io::Error| failed(path, error.kind().into());
        let (file, guard) = Unfinished::create(create, NamedTempFile::path).map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            _guard: guard,
        })
    }

    /// The final path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes `contents` to the final path, replacing what is there.
    pub(crate) fn write(self, contents: &[u8]) -> Result<(), CliError> {
        let path = self.path.clone();
        self.fill(|file| {
            file.write_all(contents)
                .map_err(|error| failed(&path, error))
        })
    }

    /// Lets `write` fill the file, then puts it at the final path, replacing what is there.
    pub(crate) fn fill(
        self,
        write: impl FnOnce(&mut BufWriter<&File>) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let mut writer = BufWriter::with_capacity(BUFFER_BYTES, self.file.as_file());
        write(&mut writer)?;
        let written = writer.flush();
        drop(writer);
        written
            .and_then(|()| self.file.as_file().sync_all())
            .and_then(|()| Ok(self.file.persist(&self.path).map(drop)?))
            .and_then(|()| sync_folder(folder(&self.path)))
            .map_err(|error| failed(&self.path, error))
    }
}

fn failed(path: &Path, source: io::Error) -> CliError {
    CliError::Write {
        path: path.to_owned(),
        source,
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

/// Makes the new name last: on Unix it is an entry of the folder, which is written apart from the file.
#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Small tensors are gathered; larger ones go past the buffer.
const BUFFER_BYTES: usize = 1 << 20;

const PREFIX: &str = ".overglaze-";

const SUFFIX: &str = ".partial";
