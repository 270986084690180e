//! The thread that loads the next weights in cyclic order while one computes.
//!
//! It never takes room from a weight that is needed sooner, never a resident or leased one, and stands back
//! while an acquire waits for room. What fails is kept for the next acquire of that weight.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread::{self, JoinHandle},
};

use crate::slot::Booking;

use super::{Streamable, shared::Shared};

/// A running thread; stopped and joined on drop.
pub(super) struct Worker<S: Streamable> {
    shared: Arc<Shared<S>>,
    thread: Option<JoinHandle<()>>,
}

impl<S: Streamable> Worker<S> {
    /// Nothing where the system has no thread to give.
    pub(super) fn start(shared: Arc<Shared<S>>) -> Option<Self> {
        let run_shared = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("overglaze-stream".to_owned())
            .spawn(move || run(&run_shared))
            .ok()?;
        Some(Self {
            shared,
            thread: Some(thread),
        })
    }
}

impl<S: Streamable> Drop for Worker<S> {
    fn drop(&mut self) {
        self.shared.table().is_stopping = true;
        self.shared.ledger().signal().raise();
        if let Some(thread) = self.thread.take() {
            // A weight may own the streamer's last handle and be dropped by this very thread.
            if thread.thread().id() != thread::current().id() {
                // Loads catch their panics, so there is no outcome to look at.
                drop(thread.join());
            }
        }
    }
}

enum Step<R> {
    Load(usize, Booking),
    Evicted(Option<Arc<R>>),
    Wait,
    Stop,
}

fn run<S: Streamable>(shared: &Shared<S>) {
    let signal = shared.ledger().signal();
    loop {
        let seen = signal.generation();
        match next_step(shared) {
            Step::Load(index, booking) => load(shared, index, booking),
            // A resident form that panics when dropped must not end loading ahead.
            Step::Evicted(resident) => drop(catch_unwind(AssertUnwindSafe(|| drop(resident)))),
            Step::Wait => signal.wait(seen),
            Step::Stop => return,
        }
    }
}

fn next_step<S: Streamable>(shared: &Shared<S>) -> Step<S::Resident> {
    let mut table = shared.table();
    if table.is_stopping {
        return Step::Stop;
    }
    if table.has_queue() {
        return Step::Wait;
    }
    let plan = shared.plan();
    let Some((index, steps)) = table.next_ahead(shared.lookahead(), plan) else {
        return Step::Wait;
    };
    let needed_bytes = shared.num_bytes(index);
    if let Some(booking) = shared.pool().try_book(needed_bytes) {
        table.begin_load(index);
        return Step::Load(index, booking);
    }
    let victims = table.victims_beyond(steps, plan);
    let evictable_bytes = victims.iter().fold(0_u64, |total, victim| {
        total.saturating_add(shared.num_bytes(*victim))
    });
    let free_bytes = shared.ledger().free_bytes();
    match victims.first() {
        Some(victim) if free_bytes.saturating_add(evictable_bytes) >= needed_bytes => {
            Step::Evicted(table.evict(*victim))
        }
        _ => Step::Wait,
    }
}

fn load<S: Streamable>(shared: &Shared<S>, index: usize, booking: Booking) {
    let loaded = shared.load(index, booking);
    let mut table = shared.table();
    if loaded.is_ok() {
        table.count_load(shared.num_bytes(index));
        table.stats.loads_ahead += 1;
    }
    table.end_load(index, loaded.map_err(Some));
    drop(table);
    shared.ledger().signal().raise();
}
