//! Running the built binary, and making small safetensors files for it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use safetensors::{Dtype, tensor::TensorView};

/// What a run left.
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The JSON document on stdout.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("no JSON: {error}\n{}\n{}", self.stdout, self.stderr))
    }
}

/// Runs the binary in `folder`.
pub(crate) fn overglaze(folder: &Path, arguments: &[&str]) -> Run {
    let output = command(folder, arguments)
        .output()
        .expect("the binary starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is text");
    Run {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// Runs the binary in `folder` with arguments without blanks in them.
pub(crate) fn overglaze_line(folder: &Path, line: &str) -> Run {
    overglaze(folder, &line.split_whitespace().collect::<Vec<_>>())
}

pub(crate) fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_overglaze"));
    command.current_dir(folder).args(arguments);
    command
}

/// A file of the demo.
pub(crate) fn demo_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("demo")
        .join(name)
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("test paths are text")
}

/// Writes f32 tensors.
pub(crate) fn write_tensors(path: &Path, tensors: &[(&str, &[usize], Vec<f32>)]) {
    let bytes: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(_, _, values)| {
            values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect()
        })
        .collect();
    let views = tensors.iter().zip(&bytes).map(|((name, shape, _), bytes)| {
        (
            *name,
            TensorView::new(Dtype::F32, shape.to_vec(), bytes).expect("shapes fit"),
        )
    });
    fs::write(
        path,
        safetensors::serialize(views, None).expect("it serializes"),
    )
    .expect("it writes");
}

/// Files in a folder, by name.
pub(crate) fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("it lists").file_name();
    let mut names: Vec<String> = entries
        .map(|entry| name(entry).to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
