//! Ctrl-C: unfinished files are removed, then the process ends with 130.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
    sync::{Mutex, PoisonError},
};

use crate::CliError;

/// Files that must not outlive an interrupted process.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Catches Ctrl-C, termination and hang-up for the rest of the process.
pub(crate) fn install() -> Result<(), CliError> {
    ctrlc::set_handler(|| {
        // The lock is kept: from here on nobody may start or finish a file.
        let unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
        for path in unfinished.iter() {
            drop(fs::remove_file(path));
        }
        process::exit(INTERRUPTED);
    })
    .map_err(|source| CliError::Signal { source })
}

/// Makes a file with `create`, finishes it with `finish`, and has it removed where the process is
/// interrupted in between.
pub(crate) fn guarded<F, T, E>(
    create: impl FnOnce() -> Result<F, E>,
    path_of: impl FnOnce(&F) -> &Path,
    finish: impl FnOnce(F) -> Result<T, E>,
) -> Result<T, E> {
    let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    let file = create()?;
    let path = path_of(&file).to_owned();
    unfinished.push(path.clone());
    drop(unfinished);
    let finished = finish(file);
    let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    unfinished.retain(|kept| *kept != path);
    finished
}

/// 128 + SIGINT, as shells expect.
const INTERRUPTED: i32 = 130;
