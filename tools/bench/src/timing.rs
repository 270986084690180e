//! Medians of runs taken in turns.

use std::time::{Duration, Instant};

/// What is measured: one run, told which turn it is.
pub(crate) type Run<'a> = Box<dyn FnMut(usize) + 'a>;

/// Runs every candidate `repetitions` times, one after the other in each repetition, and gives each one's
/// median. The first repetition warms up and does not count.
///
/// Neighbours are in different turns: where they rotate through the same memory, none finds warm what the one
/// before it read.
pub(crate) fn medians(candidates: &mut [Run<'_>], repetitions: usize) -> Vec<Duration> {
    in_turns(candidates, repetitions)
        .into_iter()
        .map(median)
        .collect()
}

/// The times of every candidate, one a repetition, as [`medians`] takes them.
pub(crate) fn in_turns(candidates: &mut [Run<'_>], repetitions: usize) -> Vec<Vec<Duration>> {
    let mut times = vec![Vec::with_capacity(repetitions); candidates.len()];
    for repetition in 0..=repetitions {
        for (index, (run, times)) in candidates.iter_mut().zip(&mut times).enumerate() {
            let start = Instant::now();
            run(repetition + index);
            if repetition > 0 {
                times.push(start.elapsed());
            }
        }
    }
    times
}

/// The median over the repetitions of `times` over `reference`, both of the same repetition: a machine that
/// gets slower for a while slows both.
pub(crate) fn median_ratio(times: &[Duration], reference: &[Duration]) -> f64 {
    let pairs = times.iter().zip(reference);
    let mut ratios: Vec<_> = pairs
        .map(|(time, reference)| time.as_secs_f64() / reference.as_secs_f64())
        .collect();
    ratios.sort_unstable_by(f64::total_cmp);
    ratios.get(ratios.len() / 2).copied().unwrap_or_default()
}

/// The median of `times`; zero when there are none.
pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
