//! How many bytes of kept residuals a model may have: a policy, and the books that hold it.
//!
//! Under a budget kept residuals are counted in the streamer's ledger beside the weights, and take at most
//! half of what the budget leaves beside the largest layer: that layer always finds room, and the larger part
//! stays with the weights. A resident model keeps at most as many bytes as its own weights have, so that
//! patches never more than double it. Layers made by hand, without a loader, keep one residual each without a
//! limit. What finds no room is computed again by every forward pass.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use overglaze_stream::{Ledger, Reservation};

/// Where the bytes of kept residuals are counted; layers of one model share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct CacheRoom {
    limit: Arc<OnceLock<Arc<Limit>>>,
}

#[derive(Debug)]
struct Limit {
    max_bytes: u64,
    used_bytes: AtomicU64,
    ledger: Option<Arc<Ledger>>,
}

/// Bytes taken in a room, until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Place {
    limit: Option<Arc<Limit>>,
    num_bytes: u64,
    /// Held so that the budget counts the bytes.
    reservation: Option<Reservation>,
}

impl CacheRoom {
    /// Counts what is kept from now on in `ledger`, whose largest layer has `largest_bytes`.
    pub(crate) fn count_in(&self, ledger: Arc<Ledger>, largest_bytes: u64) {
        let max_bytes = ledger.budget_bytes().saturating_sub(largest_bytes) / 2;
        self.set(max_bytes, Some(ledger));
    }

    /// Keeps at most `max_bytes` from now on.
    pub(crate) fn limit_to(&self, max_bytes: u64) {
        self.set(max_bytes, None);
    }

    /// `None` when there is no room.
    pub(crate) fn take(&self, num_bytes: usize) -> Option<Place> {
        let num_bytes = num_bytes as u64;
        let Some(limit) = self.limit.get() else {
            return Some(Place::default());
        };
        let fits = |used: u64| {
            let used = used.checked_add(num_bytes)?;
            (used <= limit.max_bytes).then_some(used)
        };
        let order = Ordering::Relaxed;
        limit.used_bytes.fetch_update(order, order, fits).ok()?;
        // From here on, dropping the place gives the bytes back.
        let mut place = Place {
            limit: Some(Arc::clone(limit)),
            num_bytes,
            reservation: None,
        };
        if let Some(ledger) = &limit.ledger {
            place.reservation = Some(ledger.reserve(num_bytes).ok()?);
        }
        Some(place)
    }

    fn set(&self, max_bytes: u64, ledger: Option<Arc<Ledger>>) {
        self.limit.get_or_init(|| {
            Arc::new(Limit {
                max_bytes,
                used_bytes: AtomicU64::new(0),
                ledger,
            })
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(limit) = &self.limit {
            limit
                .used_bytes
                .fetch_sub(self.num_bytes, Ordering::Relaxed);
        }
    }
}
