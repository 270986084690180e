//! The columns of a sweep: mount, sample, unmount, with the base as it was in between.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use overglaze_core::{MountReport, Mounting, Traffic, swap, unmount};

use crate::{
    CliError, Latents,
    args::LayingArgs,
    lora_arg,
    model_source::LoadedModel,
    sampling::{Sampled, Scene},
};

use super::{adapters::Adapter, report::LoraReport};

/// A LoRA's results.
#[derive(Clone, Debug)]
pub struct Column {
    /// What stands above it.
    pub label: String,
    /// Image tokens `[prompts, tokens, channels]`.
    pub latents: Latents,
    /// What became of the file's keys.
    pub mounted: MountReport,
    /// Its line of the table.
    pub report: LoraReport,
}

/// Samples `scene` with `adapter` mounted at `strength`, as `laying` says.
pub(super) fn sample_with(
    (adapter, strength, laying): (&Adapter, f32, &LayingArgs),
    label: String,
    model: &mut LoadedModel,
    scene: &Scene,
    bar: &ProgressBar,
) -> Result<Column, CliError> {
    let traffic = std::sync::Arc::clone(&model.flux.base.traffic);
    let network = &mut model.flux.transformer;
    let mounting = mounting(adapter, strength, laying);
    let (mounted, mount_us, moved_on) = timed(&traffic, || swap(network, &[], &[mounting]));
    let mounted = mounted?.pop().expect("one set in, one report out");
    let sampled = scene.sample(network, bar);
    let (unmounted, unmount_us, moved_off) = timed(&traffic, || unmount(network, &adapter.name));
    unmounted?;
    let Sampled {
        latents,
        seconds_per_image,
    } = sampled?;
    let report = LoraReport {
        name: label.clone(),
        strength,
        keys_applied: mounted.keys_applied(),
        keys_unmatched: mounted.keys_unmatched(),
        mount_us,
        unmount_us,
        seconds_per_image,
        base_bytes_moved: moved_on + moved_off,
        notes: adapter.notes.clone(),
    };
    Ok(Column {
        label,
        latents,
        mounted,
        report,
    })
}

/// `adapter` at `strength`, as `laying` says.
pub(super) fn mounting<'a>(
    adapter: &'a Adapter,
    strength: f32,
    laying: &LayingArgs,
) -> Mounting<'a> {
    let strengths = lora_arg::strengths(strength, &laying.block_strengths);
    Mounting::new(&adapter.name, &adapter.set, strengths).with_placement(laying.placement)
}

/// The result of `work`, its microseconds, and the base bytes that were written or moved meanwhile.
fn timed<T>(traffic: &Traffic, work: impl FnOnce() -> T) -> (T, f64, u64) {
    let bytes = || traffic.written_bytes() + traffic.moved_bytes();
    let (before, start) = (bytes(), Instant::now());
    let result = work();
    (result, microseconds(start.elapsed()), bytes() - before)
}

/// A time in microseconds, to a tenth.
pub(in crate::commands) fn microseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 10.0
}
