//! One acquire, from asking for a weight to leasing it.

use std::{
    sync::Arc,
    thread::ThreadId,
    time::{Duration, Instant},
};

use crate::{StreamError, slot::Booking};

use super::{Streamable, shared::Shared, table::Table};

/// How long nothing may move before an acquire gives up. Long enough for bytes that a device thread still
/// holds to come back.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Leases the weight for `owner`, loading it or waiting for it where it is not in place.
pub(super) fn obtain<S: Streamable>(
    shared: &Shared<S>,
    index: usize,
    owner: ThreadId,
) -> Result<Arc<S::Resident>, StreamError> {
    let found = {
        let mut table = shared.table();
        table.move_cursor(index);
        let found = table.lease(index, owner);
        match found {
            Some(_) => table.stats.hits += 1,
            None => table.begin_wait(index, owner),
        }
        found
    };
    // The worker follows the cursor.
    shared.ledger().signal().raise();
    found.map_or_else(|| Visit::new(shared, index, owner).run(), Ok)
}

/// Removes its traces from the table when it ends, in whatever way.
struct Visit<'a, S: Streamable> {
    shared: &'a Shared<S>,
    index: usize,
    owner: ThreadId,
    started: Instant,
    ticket: Option<u64>,
    /// Since when nothing has moved, and the table's progress then.
    stuck: Option<(Instant, u64)>,
}

enum Step<R> {
    Done(Result<Arc<R>, StreamError>),
    Load(Booking),
    /// Dropping it makes room.
    Evicted(Option<Arc<R>>),
    Wait,
    WaitAtMost(Duration),
}

impl<'a, S: Streamable> Visit<'a, S> {
    fn new(shared: &'a Shared<S>, index: usize, owner: ThreadId) -> Self {
        Self {
            shared,
            index,
            owner,
            started: Instant::now(),
            ticket: None,
            stuck: None,
        }
    }

    fn run(mut self) -> Result<Arc<S::Resident>, StreamError> {
        let signal = self.shared.ledger().signal();
        loop {
            let seen = signal.generation();
            match self.next_step() {
                Step::Done(outcome) => return outcome,
                Step::Load(booking) => return self.load(booking),
                Step::Evicted(resident) => drop(resident),
                Step::Wait => signal.wait(seen),
                Step::WaitAtMost(limit) => signal.wait_at_most(seen, limit),
            }
        }
    }

    fn next_step(&mut self) -> Step<S::Resident> {
        let shared = self.shared;
        let mut table = shared.table();
        if let Some(resident) = table.lease(self.index, self.owner) {
            return Step::Done(Ok(resident));
        }
        if let Some(error) = table.take_failure(self.index) {
            return Step::Done(Err(error));
        }
        if !table.is_absent(self.index) {
            self.leave_queue(&mut table);
            return self.wait(&mut table);
        }
        if table.is_turn(self.ticket, self.owner) {
            if let Some(booking) = shared.pool().try_book(shared.num_bytes(self.index)) {
                self.leave_queue(&mut table);
                table.begin_load(self.index);
                return Step::Load(booking);
            }
            if let Some(victim) = table.victim(shared.plan()) {
                self.ticket.get_or_insert_with(|| table.enqueue());
                return Step::Evicted(table.evict(victim));
            }
        }
        self.ticket.get_or_insert_with(|| table.enqueue());
        self.wait(&mut table)
    }

    fn load(&self, booking: Booking) -> Result<Arc<S::Resident>, StreamError> {
        let loaded = self.shared.load(self.index, booking);
        let mut table = self.shared.table();
        table.end_load(
            self.index,
            loaded.as_ref().map(Arc::clone).map_err(|_| None),
        );
        if loaded.is_ok() {
            table.count_load(self.shared.num_bytes(self.index));
            table.lease(self.index, self.owner);
        }
        loaded
    }

    fn wait(&mut self, table: &mut Table<S::Resident>) -> Step<S::Resident> {
        if !table.is_stuck() {
            self.stuck = None;
            return Step::Wait;
        }
        let progress = table.progress();
        let since = match self.stuck {
            Some((since, then)) if then == progress => since,
            _ => Instant::now(),
        };
        self.stuck = Some((since, progress));
        let left = self.shared.patience().saturating_sub(since.elapsed());
        if !left.is_zero() {
            return Step::WaitAtMost(left);
        }
        // At once, so that of several stuck threads only one gives up.
        table.stop_waiting(self.owner);
        Step::Done(Err(self.budget_held()))
    }

    fn leave_queue(&mut self, table: &mut Table<S::Resident>) {
        if let Some(ticket) = self.ticket.take() {
            table.dequeue(ticket);
        }
    }

    fn budget_held(&self) -> StreamError {
        let ledger = self.shared.ledger();
        StreamError::BudgetHeld {
            layer: self.shared.weights()[self.index].name().to_owned(),
            needed_bytes: self.shared.num_bytes(self.index),
            live_bytes: ledger.live_bytes(),
            reserved_bytes: ledger.reserved_bytes(),
            budget_bytes: ledger.budget_bytes(),
        }
    }
}

impl<S: Streamable> Drop for Visit<'_, S> {
    fn drop(&mut self) {
        let shared = self.shared;
        let mut table = shared.table();
        self.leave_queue(&mut table);
        table.end_wait(self.index, self.owner);
        let stall_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        table.stats.stall_ns = table.stats.stall_ns.saturating_add(stall_ns);
        drop(table);
        shared.ledger().signal().raise();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{MemorySource, Slot, Streamer, StreamerConfig, WeightSource};

    struct Toy;

    impl Streamable for Toy {
        type Resident = Bytes;

        fn name(&self) -> &'static str {
            "toy"
        }

        fn num_bytes(&self) -> u64 {
            100
        }

        fn load(&self, _source: &dyn WeightSource, slot: Slot) -> Result<Bytes, StreamError> {
            Ok(slot.freeze())
        }
    }

    /// Room for one of two weights, and little patience: what cannot be set from outside.
    fn hasty(lookahead: usize) -> Arc<Streamer<Toy>> {
        let config = StreamerConfig {
            budget_bytes: 100,
            lookahead,
            poison_released: true,
        };
        let source = Arc::new(MemorySource::new("memory"));
        let patience = Duration::from_millis(20);
        Streamer::with_patience(source, vec![Toy, Toy], config, patience).unwrap()
    }

    #[test]
    fn two_leases_without_the_budget_for_both_end_in_an_error() {
        for lookahead in [0, 1] {
            let streamer = hasty(lookahead);
            let lease = streamer.acquire(streamer.slot_id(0)).unwrap();
            let error = streamer.acquire(streamer.slot_id(1)).unwrap_err();
            assert_eq!(
                error.to_string(),
                "the layer `toy` needs 100 bytes, but 100 in use and 0 reserved of a budget of 100 are \
                 not being released; drop a lease before acquiring the next, or raise the budget to \
                 hold both"
            );
            drop(lease);
            assert_eq!(streamer.acquire(streamer.slot_id(1)).unwrap().len(), 100);
        }
    }

    #[test]
    fn a_reservation_in_the_way_ends_in_an_error() {
        let streamer = hasty(1);
        let reservation = streamer.ledger().reserve(1).unwrap();
        let error = streamer.acquire(streamer.slot_id(0)).unwrap_err();
        let words = "0 in use and 1 reserved of a budget of 100";
        assert!(error.to_string().contains(words), "{error}");
        drop(reservation);
        assert_eq!(streamer.acquire(streamer.slot_id(0)).unwrap().len(), 100);
    }
}
