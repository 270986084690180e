//! Finding and running the cases.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use burn::tensor::Device;

use crate::{Case, Comparison, areas};

/// What became of one case.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// `area/name`.
    pub case: String,
    /// Area.
    pub area: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of one case.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Ran; the comparison says whether it passed.
    Ran(Comparison),
    /// Ran and went wrong.
    Failed(String),
    /// Nothing here can run it yet.
    Unsupported(String),
}

impl CaseResult {
    /// Whether the case passed.
    #[must_use]
    pub fn is_passed(&self) -> bool {
        matches!(&self.outcome, Outcome::Ran(comparison) if comparison.of_tolerance <= 1.0)
    }

    /// Why the case did not pass.
    #[must_use]
    pub fn why(&self) -> String {
        match &self.outcome {
            Outcome::Ran(comparison) => format!(
                "error {:.1e} of the largest value, {:.1} times the tolerance",
                comparison.relative_error, comparison.of_tolerance
            ),
            Outcome::Failed(why) => why.clone(),
            Outcome::Unsupported(why) => format!("unsupported: {why}"),
        }
    }
}

/// Runs every case under `folder` whose `area/name` contains `filter`, in name order.
///
/// # Errors
/// When the folder cannot be read or holds no such case.
pub fn run_all(folder: &Path, filter: &str, device: &Device) -> Result<Vec<CaseResult>, String> {
    let mut files = Vec::new();
    collect_files(folder, &mut files)?;
    files.sort();
    let mut results = Vec::new();
    for file in files {
        match Case::open(&file) {
            Ok(Some(case)) if case.name.contains(filter) => results.push(run(&case, device)),
            Ok(_) => {}
            Err(why) => return Err(why),
        }
    }
    if results.is_empty() {
        return Err(format!("{}: no case matches `{filter}`", folder.display()));
    }
    Ok(results)
}

fn run(case: &Case, device: &Device) -> CaseResult {
    // A panic in one case is that case's failure; the others still run.
    let outcome = catch_unwind(AssertUnwindSafe(|| areas::run(case, device)))
        .unwrap_or_else(|_| Outcome::Failed("panicked".into()));
    CaseResult {
        case: case.name.clone(),
        area: case.area().into(),
        outcome,
    }
}

fn collect_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in entries {
        let path = entry
            .map_err(|error| format!("{}: {error}", folder.display()))?
            .path();
        if path.is_dir() {
            collect_files(&path, files)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "safetensors")
        {
            files.push(path);
        }
    }
    Ok(())
}
