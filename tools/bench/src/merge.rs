//! Merging one adapter of rank 16 into 500 layers of `[3072, 3072]` bf16: seconds, and the process's peak
//! resident bytes.
//!
//! The layers share one buffer of weights; every merged weight has bytes of its own. A virtual machine may take long
//! to hand out 9.4 GB for the first time, so as many bytes are first filled twice by the same threads: the second
//! time is what the memory traffic alone costs.

use std::{fs, hint::black_box, io, time::Instant};

use overglaze_core::{Error, merge, restore};
use rayon::prelude::{IntoParallelIterator, ParallelIterator};
use serde::Serialize;

use crate::swap::{Model, NUM_LAYERS, RANK, WIDTH, adapter};

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
    first_fill_s: f64,
    fill_s: f64,
    merge_s: f64,
    /// What the merge's threads spent, all together: computing, and in the kernel, which hands out memory. `None`
    /// where the system does not tell.
    merge_cpu_s: Option<CpuSeconds>,
    restore_s: f64,
    written_bytes: u64,
    /// `None` where the system does not tell.
    peak_resident_bytes: Option<u64>,
    /// What `InvokeAI` took for the same on another machine with two cores; not measured here.
    invokeai_elsewhere_s: f64,
}

fn figure() -> Result<Figure, Error> {
    let mut model = Model::new()?;
    let set = adapter(NUM_LAYERS, model.device())?;
    let [first_fill_s, fill_s] = [(); 2].map(|()| fill());
    let (start, cpu_before) = (Instant::now(), CpuSeconds::so_far());
    merge(&mut model, &[("merged", &set, 1.0)])?;
    let merge_s = start.elapsed().as_secs_f64();
    let merge_cpu_s = CpuSeconds::so_far().zip(cpu_before);
    let start = Instant::now();
    restore(&mut model);
    let restore_s = start.elapsed().as_secs_f64();
    let written_bytes = model.traffic().written_bytes();
    Ok(Figure {
        bench: "merge",
        layers: NUM_LAYERS,
        rank: RANK,
        first_fill_s,
        fill_s,
        merge_s,
        merge_cpu_s: merge_cpu_s.map(|(after, before)| after.since(before)),
        restore_s,
        written_bytes,
        peak_resident_bytes: peak_resident_bytes(),
        invokeai_elsewhere_s: 27.0,
    })
}

/// Seconds for filling as many bytes as the merge writes.
fn fill() -> f64 {
    let start = Instant::now();
    let layer = |_| {
        let mut bytes = Vec::with_capacity(WIDTH * WIDTH * 2);
        bytes.resize(WIDTH * WIDTH * 2, 1_u8);
        bytes
    };
    let filled: Vec<_> = (0..NUM_LAYERS).into_par_iter().map(layer).collect();
    let seconds = start.elapsed().as_secs_f64();
    black_box(filled);
    seconds
}

/// Processor time of the process, in seconds.
#[derive(Clone, Copy, Serialize)]
struct CpuSeconds {
    user: f64,
    kernel: f64,
}

impl CpuSeconds {
    /// Since the process began, as Linux counts it, in steps of 10 ms.
    fn so_far() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // Behind the name, which may have spaces; the process's times are fields 14 and 15 of all.
        let fields = stat.rsplit_once(')')?.1;
        let mut times = fields.split_whitespace().skip(11);
        let mut seconds = || Some(times.next()?.parse::<f64>().ok()? / 100.0);
        Some(Self {
            user: seconds()?,
            kernel: seconds()?,
        })
    }

    fn since(self, before: Self) -> Self {
        Self {
            user: self.user - before.user,
            kernel: self.kernel - before.kernel,
        }
    }
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
