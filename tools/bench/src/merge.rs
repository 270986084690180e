//! Merging one adapter of rank 16 into 500 layers of `[3072, 3072]` bf16: seconds, and the process's peak
//! resident bytes. Beside it `InvokeAI`'s 27 s for the same, measured for the golden data on two cores.
//!
//! The layers share one buffer of weights; every merged weight has bytes of its own. Getting 9.4 GB from the system
//! for the first time may take long, so the merge is done twice.

use std::{fs, io, time::Instant};

use overglaze_core::{Error, merge, restore};
use serde::Serialize;

use crate::swap::{Model, NUM_LAYERS, RANK, adapter};

/// Measures and writes one line.
///
/// # Errors
/// Where `output` cannot be written, or the model cannot be built.
pub(crate) fn run(output: &mut dyn io::Write) -> io::Result<()> {
    let figure = figure().map_err(io::Error::other)?;
    writeln!(output, "{}", serde_json::to_string(&figure)?)
}

#[derive(Serialize)]
struct Figure {
    bench: &'static str,
    layers: usize,
    rank: usize,
    merge_s: f64,
    restore_s: f64,
    /// The same once more, when the memory of the first merge is free again.
    again_s: f64,
    written_bytes: u64,
    /// `None` where the system does not tell.
    peak_resident_bytes: Option<u64>,
    invokeai_s: f64,
}

fn figure() -> Result<Figure, Error> {
    let mut model = Model::new()?;
    let set = adapter(model.device())?;
    let start = Instant::now();
    merge(&mut model, &[("merged", &set, 1.0)])?;
    let merge_s = start.elapsed().as_secs_f64();
    let start = Instant::now();
    restore(&mut model);
    let restore_s = start.elapsed().as_secs_f64();
    let written_bytes = model.traffic().written_bytes();
    let start = Instant::now();
    merge(&mut model, &[("merged", &set, 1.0)])?;
    let again_s = start.elapsed().as_secs_f64();
    Ok(Figure {
        bench: "merge",
        layers: NUM_LAYERS,
        rank: RANK,
        merge_s,
        restore_s,
        again_s,
        written_bytes,
        peak_resident_bytes: peak_resident_bytes(),
        invokeai_s: 27.0,
    })
}

/// The most memory the process has had resident, as Linux counts it.
fn peak_resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}
