//! Progress bars on stderr: rate and time left, only where somebody looks.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, WeakProgressBar};

use crate::Console;

/// The bar that was drawn last.
static DRAWN: Mutex<Option<WeakProgressBar>> = Mutex::new(None);

/// Whether a bar stands on an unfinished line; it is not drawn again.
pub(crate) fn is_drawn() -> bool {
    let last = DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
    match last.as_ref().and_then(WeakProgressBar::upgrade) {
        Some(bar) if !bar.is_finished() => {
            bar.disable_steady_tick();
            true
        }
        _ => false,
    }
}

/// A bar over sampling steps.
pub(crate) fn steps(console: &Console, num_steps: u64) -> ProgressBar {
    bar(
        console,
        num_steps,
        "{msg:24!} {wide_bar} {pos}/{len} steps  {per_sec}  {eta} left",
    )
}

/// A bar over bytes.
pub(crate) fn bytes(console: &Console, num_bytes: u64) -> ProgressBar {
    bar(
        console,
        num_bytes,
        "{msg:24!} {wide_bar} {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left",
    )
}

fn bar(console: &Console, length: u64, template: &'static str) -> ProgressBar {
    let target = match console.has_progress() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let style = ProgressStyle::with_template(template).expect("the templates above are valid");
    let bar = ProgressBar::with_draw_target(Some(length), target).with_style(style);
    if console.has_progress() {
        bar.enable_steady_tick(Duration::from_millis(200));
        *DRAWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.downgrade());
    }
    bar
}
