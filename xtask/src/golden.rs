//! `xtask golden`: makes the cases of `cases/` again.
//!
//! `cases/make` generates every case by running the peers (Python, see `cases/README.md`), marks which
//! outputs are ours, and this file copies those that `cases/SELECTION` names. With `--from DIR` the cases
//! were generated before and are only copied.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{Failure, output, workspace};

/// Generates unless `--from` says where the cases are, then copies the selected ones.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let cases = workspace::root().join("cases");
    let selection = cases.join("SELECTION");
    let text = fs::read_to_string(&selection).map_err(|source| Failure::Io {
        path: selection,
        source,
    })?;
    let prefixes = prefixes(&text);
    let generated = match arguments {
        [] => generate(&areas(&prefixes))?,
        [flag, folder] if flag == "--from" => PathBuf::from(folder),
        _ => {
            return Err(Failure::Usage {
                text: "usage: cargo xtask golden [--from DIR]".into(),
            });
        }
    };
    let changed = copy_selected(&prefixes, &generated, &cases)?;
    output::say(format_args!(
        "{changed} case file(s) new or changed; `git diff --stat` shows them"
    ));
    Ok(())
}

/// The salt of the committed cases: another one draws other values.
const SALT: &str = "1";

fn generate(areas: &[&str]) -> Result<PathBuf, Failure> {
    let folder = workspace::target_directory()?.join("golden");
    // `-B`: no bytecode beside the scripts.
    let python = |script: &str| workspace::program("python3", ["-B", script]);
    let mut make = python("cases/make/make_golden.py");
    make.arg("--out")
        .arg(&folder)
        .args(["--salt", SALT, "--only"])
        .args(areas);
    workspace::run(&mut make)?;
    workspace::run(python("cases/make/expect.py").arg(&folder))?;
    Ok(folder)
}

/// The first folder of each prefix, once.
fn areas<'a>(prefixes: &[&'a str]) -> Vec<&'a str> {
    let mut areas: Vec<_> = prefixes
        .iter()
        .filter_map(|prefix| prefix.split('/').next())
        .collect();
    areas.dedup();
    areas
}

fn prefixes(selection: &str) -> Vec<&str> {
    let lines = selection.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
}

/// Copies what starts with a prefix and differs; gives how many files that were.
fn copy_selected(prefixes: &[&str], from: &Path, to: &Path) -> Result<usize, Failure> {
    let files = files_below(from, "")?;
    let mut changed = 0;
    for prefix in prefixes {
        let mut selected = files
            .iter()
            .filter(|path| path.starts_with(prefix))
            .peekable();
        if selected.peek().is_none() {
            return Err(Failure::NoCase {
                prefix: (*prefix).into(),
                folder: from.into(),
            });
        }
        for path in selected {
            changed += usize::from(copy_if_different(&from.join(path), &to.join(path))?);
        }
    }
    Ok(changed)
}

fn copy_if_different(from: &Path, to: &Path) -> Result<bool, Failure> {
    let failed = |path: &Path, source| Failure::Io {
        path: path.into(),
        source,
    };
    let bytes = fs::read(from).map_err(|source| failed(from, source))?;
    if fs::read(to).is_ok_and(|old| old == bytes) {
        return Ok(false);
    }
    let folder = to.parent().expect("a case lies in a folder");
    fs::create_dir_all(folder).map_err(|source| failed(folder, source))?;
    fs::write(to, bytes).map_err(|source| failed(to, source))?;
    Ok(true)
}

/// Paths below `folder`, relative to it, `/`-separated and sorted.
fn files_below(folder: &Path, prefix: &str) -> Result<Vec<String>, Failure> {
    let entries = folder.read_dir().map_err(|source| Failure::Io {
        path: folder.into(),
        source,
    })?;
    let mut files = Vec::new();
    for entry in entries.flatten() {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            files.extend(files_below(&entry.path(), &format!("{name}/"))?);
        } else {
            files.push(name);
        }
    }
    files.sort_unstable();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_is_lines_without_comments() {
        assert_eq!(
            prefixes("# why\nflux/\n\n  layers/linear_ \n"),
            ["flux/", "layers/linear_"]
        );
    }

    #[test]
    fn each_area_is_generated_once() {
        assert_eq!(
            areas(&["flux/", "patches/a", "patches/b"]),
            ["flux", "patches"]
        );
    }

    #[test]
    fn only_selected_and_different_files_are_copied() {
        let folder = std::env::temp_dir().join(format!("xtask-golden-{}", std::process::id()));
        let (from, to) = (folder.join("from"), folder.join("to"));
        fs::create_dir_all(from.join("layers")).unwrap();
        fs::write(from.join("layers/linear_a"), "a").unwrap();
        fs::write(from.join("layers/conv_a"), "b").unwrap();
        assert_eq!(copy_selected(&["layers/linear_"], &from, &to).unwrap(), 1);
        assert_eq!(copy_selected(&["layers/linear_"], &from, &to).unwrap(), 0);
        assert_eq!(files_below(&to, "").unwrap(), ["layers/linear_a"]);
        let missing = copy_selected(&["flux/"], &from, &to)
            .unwrap_err()
            .to_string();
        assert!(missing.contains("no file starts with `flux/`"), "{missing}");
        fs::remove_dir_all(folder).unwrap();
    }
}
