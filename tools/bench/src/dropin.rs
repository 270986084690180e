//! An unpatched `PatchedLinear` over a Burn layer beside that layer, `[rows, 3072] · [3072, 3072]` f32 on the
//! same kernel: what the wrapper costs.

use std::io;

use burn::{
    nn::LinearConfig,
    tensor::{Device, Tensor},
};
use overglaze_core::PatchedLinear;
use serde::Serialize;

use crate::timing::{Run, medians};

/// Measures and writes one line per number of rows.
///
/// # Errors
/// Where `output` cannot be written.
pub(crate) fn run(output: &mut dyn io::Write) -> io::Result<()> {
    let device = Device::flex();
    let linear = LinearConfig::new(WIDTH, WIDTH).init(&device);
    let patched = PatchedLinear::from(linear.clone());
    for (rows, repetitions) in [(1, 401), (1024, 41)] {
        let input = Tensor::<2>::ones([rows, WIDTH], &device);
        let mut candidates: [Run<'_>; 2] = [
            Box::new(|_| drop(linear.forward(input.clone()))),
            Box::new(|_| drop(patched.forward(input.clone()))),
        ];
        let times = medians(&mut candidates, repetitions);
        let [burn, patched] = [times[0], times[1]].map(|time| time.as_secs_f64() * 1e3);
        let figure = Figure {
            bench: "dropin",
            rows,
            burn_ms: burn,
            patched_ms: patched,
            over: patched / burn - 1.0,
        };
        writeln!(output, "{}", serde_json::to_string(&figure)?)?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Figure {
    bench: &'static str,
    rows: usize,
    burn_ms: f64,
    patched_ms: f64,
    over: f64,
}

const WIDTH: usize = 3072;
