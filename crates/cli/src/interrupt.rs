//! Ctrl-C: unfinished files are removed and the bar's line is ended, then the process ends with 130.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process,
    sync::{Mutex, PoisonError},
};

use crate::{CliError, progress};

/// Files that must not outlive an interrupted process.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Catches Ctrl-C, termination and hang-up for the rest of the process.
pub(crate) fn install() -> Result<(), CliError> {
    ctrlc::set_handler(|| {
        // The lock is kept: from here on nobody may start or give up a file.
        let unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
        for path in unfinished.iter() {
            drop(fs::remove_file(path));
        }
        if progress::is_drawn() {
            drop(writeln!(io::stderr()));
        }
        process::exit(INTERRUPTED);
    })
    .map_err(|source| CliError::Signal { source })
}

/// A file that an interrupt removes, for as long as this is there.
#[derive(Debug)]
pub(crate) struct Unfinished(PathBuf);

impl Unfinished {
    /// Makes a file with `create`, with no interrupt between its making and its entry in the list.
    pub(crate) fn create<F, E>(
        create: impl FnOnce() -> Result<F, E>,
        path_of: impl FnOnce(&F) -> &Path,
    ) -> Result<(F, Self), E> {
        let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
        let file = create()?;
        let path = path_of(&file).to_owned();
        unfinished.push(path.clone());
        Ok((file, Self(path)))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
        unfinished.retain(|kept| *kept != self.0);
    }
}

/// 128 + SIGINT, as shells expect.
const INTERRUPTED: i32 = 130;
