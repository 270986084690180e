//! `xtask tidy`: the rules that rustc and clippy do not know.
//!
//! Each rule is a pure function from the text of the tree to findings, in a file of its own; only this file
//! asks git and cargo.

use std::fs;

use crate::{Failure, output, workspace};

mod cases;
mod edges;
mod layout;
mod manifests;
mod names;
mod rust_text;
mod words;

/// A file of the tree.
#[derive(Debug)]
struct TreeFile {
    /// Relative to the root, `/`-separated.
    path: String,
    /// Empty when the file is not UTF-8.
    text: String,
}

/// A broken rule: where and why.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    /// 1-based; `None` when the whole file is meant.
    line: Option<usize>,
    why: String,
}

/// Prints every finding of every rule.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if !arguments.is_empty() {
        return Err(Failure::Usage {
            text: "usage: cargo xtask tidy".into(),
        });
    }
    let files = tree()?;
    let rules = [
        layout::check,
        names::check,
        cases::check,
        manifests::check,
        words::check,
    ];
    let mut findings: Vec<_> = rules.iter().flat_map(|rule| rule(&files)).collect();
    findings.extend(edges::check(&workspace::metadata()?));
    if findings.is_empty() {
        output::say(format_args!("tidy: {} files, nothing found", files.len()));
        return Ok(());
    }
    findings.iter().for_each(output::say);
    Err(Failure::Untidy {
        num_findings: findings.len(),
    })
}

/// What git tracks or would track.
fn tree() -> Result<Vec<TreeFile>, Failure> {
    let list = [
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ];
    let paths = workspace::read(&mut workspace::program("git", list))?;
    let paths = String::from_utf8_lossy(&paths);
    let present = paths
        .split_terminator('\0')
        .filter(|path| workspace::root().join(path).is_file());
    present.map(read_file).collect()
}

fn read_file(path: &str) -> Result<TreeFile, Failure> {
    let absolute = workspace::root().join(path);
    let bytes = fs::read(&absolute).map_err(|source| Failure::Io {
        path: absolute,
        source,
    })?;
    Ok(TreeFile {
        path: path.into(),
        text: String::from_utf8(bytes).unwrap_or_default(),
    })
}

impl TreeFile {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The file name without its ending.
    fn stem(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        name.split('.').next().unwrap_or(name)
    }

    fn finding(&self, line: impl Into<Option<usize>>, why: impl Into<String>) -> Finding {
        Finding {
            path: self.path.clone(),
            line: line.into(),
            why: why.into(),
        }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.why),
            None => write!(f, "{}: {}", self.path, self.why),
        }
    }
}

#[cfg(test)]
fn tree_of(files: &[(&str, &str)]) -> Vec<TreeFile> {
    let file = |(path, text): &(&str, &str)| TreeFile {
        path: (*path).into(),
        text: (*text).into(),
    };
    files.iter().map(file).collect()
}

#[cfg(test)]
fn lines_of(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}
