//! Setting bytes of the budget aside: evicts unleased weights, and holds loads ahead back meanwhile.

use crate::{StreamError, ledger::Reservation};

use super::{Streamable, shared::Shared};

/// Reserves, evicting where it must; waits for loads under way, never for leases.
pub(super) fn reserve<S: Streamable>(
    shared: &Shared<S>,
    num_bytes: u64,
) -> Result<Reservation, StreamError> {
    let ledger = shared.ledger();
    let needed_bytes = num_bytes.checked_add(shared.largest_bytes());
    let left_bytes = ledger.budget_bytes() - ledger.reserved_bytes();
    if needed_bytes.is_none_or(|needed_bytes| needed_bytes > left_bytes) {
        return Err(ledger.no_room(num_bytes));
    }
    let _queued = Queued::new(shared);
    loop {
        let seen = ledger.signal().generation();
        let refused = match ledger.reserve(num_bytes) {
            Ok(reservation) => return Ok(reservation),
            Err(error) => error,
        };
        let (evicted, is_loading) = {
            let mut table = shared.table();
            let victim = table.victim(shared.plan());
            let evicted = victim.and_then(|victim| table.evict(victim));
            (evicted, table.is_loading())
        };
        match evicted {
            Some(resident) => drop(resident),
            None if is_loading => ledger.signal().wait(seen),
            None => return Err(refused),
        }
    }
}

/// A ticket that is taken back in whatever way the call ends.
struct Queued<'a, S: Streamable> {
    shared: &'a Shared<S>,
    ticket: u64,
}

impl<'a, S: Streamable> Queued<'a, S> {
    fn new(shared: &'a Shared<S>) -> Self {
        let ticket = shared.table().enqueue();
        Self { shared, ticket }
    }
}

impl<S: Streamable> Drop for Queued<'_, S> {
    fn drop(&mut self) {
        self.shared.table().dequeue(self.ticket);
        self.shared.ledger().signal().raise();
    }
}
