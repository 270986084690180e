//! Writing a rewritten model, with a bar, and what is said of it afterwards.

use std::{
    fs::File,
    io::BufWriter,
    path::{Path, PathBuf},
    time::Instant,
};

use overglaze_core::{FileRewrite, Outcome};
use overglaze_stream::WeightSource;
use serde::Serialize;

use crate::{
    CliError, Console,
    output_file::{self, Contents, OutputFile},
    outputs, progress, shown,
};

/// Where a new model goes; begun before the work starts.
pub(super) struct Place(OutputFile);

/// What was written.
#[derive(Serialize)]
pub(super) struct Rewritten {
    model: String,
    output: PathBuf,
    weights: usize,
    weights_packed: usize,
    weights_decoded: usize,
    bytes_before: u64,
    bytes: u64,
    seconds: f64,
}

impl Place {
    /// A place at `output`, which is none of the files behind `inputs`.
    pub(super) fn new(
        output: &Path,
        inputs: &[&Path],
        contents: Contents,
    ) -> Result<Self, CliError> {
        output_file::check(output, contents)?;
        let inputs = outputs::inputs([].into_iter(), inputs.iter().copied());
        outputs::refuse_inputs(output, &inputs)?;
        OutputFile::create(output).map(Self)
    }

    fn label(&self) -> String {
        self.0.path().display().to_string()
    }
}

/// Writes `rewrite` of `source` as safetensors; the metadata go over.
pub(super) fn safetensors(
    rewrite: &FileRewrite<'_>,
    source: &dyn WeightSource,
    place: Place,
    console: &Console,
) -> Result<Rewritten, CliError> {
    let layout = rewrite.safetensors_layout(place.label())?;
    let bytes = layout.data_bytes();
    write(
        rewrite,
        source,
        (place, bytes),
        console,
        |file, progress| rewrite.write_safetensors(layout, file, progress).map(drop),
    )
}

/// Writes `rewrite` of `source` as GGUF; the metadata go over.
pub(super) fn gguf(
    rewrite: &FileRewrite<'_>,
    source: &dyn WeightSource,
    place: Place,
    console: &Console,
) -> Result<Rewritten, CliError> {
    let values = super::quantize::gguf_values(source);
    let layout = rewrite.gguf_layout(place.label(), values)?;
    let bytes = layout.data_bytes();
    write(
        rewrite,
        source,
        (place, bytes),
        console,
        |file, progress| rewrite.write_gguf(layout, file, progress).map(drop),
    )
}

fn write(
    rewrite: &FileRewrite<'_>,
    source: &dyn WeightSource,
    (place, bytes): (Place, u64),
    console: &Console,
    fill: impl FnOnce(&mut BufWriter<&File>, &mut dyn FnMut(u64)) -> Result<(), overglaze_core::Error>,
) -> Result<Rewritten, CliError> {
    console.file_notes(source.notes());
    let start = Instant::now();
    let bar = progress::bytes(console, bytes);
    bar.set_message("writing");
    let output = place.0.path().to_owned();
    place.0.fill(|file| {
        fill(file, &mut |written| bar.set_position(written))?;
        bar.set_message("writing to disk");
        Ok(())
    })?;
    bar.finish_and_clear();
    let weights = rewrite.weights().values();
    let count = |is_wanted: fn(&Outcome) -> bool| {
        let outcomes = weights.clone().map(|weight| &weight.outcome);
        outcomes.filter(|outcome| is_wanted(outcome)).count()
    };
    Ok(Rewritten {
        model: source.label(),
        output,
        weights: rewrite.weights().len(),
        weights_packed: count(|outcome| matches!(outcome, Outcome::Packed(_))),
        weights_decoded: count(|outcome| matches!(outcome, Outcome::Decoded(_))),
        bytes_before: weights.clone().map(|weight| weight.stored.num_bytes).sum(),
        bytes,
        seconds: start.elapsed().as_secs_f64(),
    })
}

impl Rewritten {
    pub(super) fn text(&self) -> String {
        let changed = match (self.weights_packed, self.weights_decoded) {
            (0, 0) => "all copied bit for bit".to_owned(),
            (packed, 0) => format!("{packed} packed"),
            (0, decoded) => format!("{decoded} decoded"),
            (packed, decoded) => format!("{packed} packed, {decoded} decoded"),
        };
        let size = |bytes: u64| bytes as f64 / 1e9;
        format!(
            "{}: {} weights, {changed}; {:.3} GB became {:.3} GB in {:.1} s\nmodel: {}",
            shown::message(&self.model),
            self.weights,
            size(self.bytes_before),
            size(self.bytes),
            self.seconds,
            shown::message(&self.output.to_string_lossy())
        )
    }
}
