//! What the threads of one streamer share: weights, pool, plan and the locked table.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::ThreadId,
    time::Duration,
};

use crate::{Ledger, Plan, SlotPool, StreamError, StreamStats, WeightSource, plan, slot::Booking};

use super::{Streamable, StreamerConfig, table::Table};

pub(super) struct Shared<S: Streamable> {
    source: Arc<dyn WeightSource>,
    weights: Vec<S>,
    sizes: Vec<u64>,
    plan: Plan,
    lookahead: usize,
    patience: Duration,
    pool: SlotPool,
    table: Mutex<Table<S::Resident>>,
}

impl<S: Streamable> Shared<S> {
    pub(super) fn new(
        source: Arc<dyn WeightSource>,
        weights: Vec<S>,
        config: &StreamerConfig,
        patience: Duration,
    ) -> Result<Self, StreamError> {
        let sizes: Vec<_> = weights.iter().map(Streamable::num_bytes).collect();
        check_each_fits(&weights, &sizes, config.budget_bytes)?;
        Ok(Self {
            plan: plan(&sizes, config.budget_bytes, config.lookahead),
            table: Mutex::new(Table::new(weights.len())),
            pool: if config.poison_released {
                SlotPool::poisoning(config.budget_bytes)
            } else {
                SlotPool::new(config.budget_bytes)
            },
            lookahead: config.lookahead,
            patience,
            source,
            weights,
            sizes,
        })
    }

    pub(super) fn weights(&self) -> &[S] {
        &self.weights
    }

    pub(super) fn num_bytes(&self, index: usize) -> u64 {
        self.sizes[index]
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(super) fn lookahead(&self) -> usize {
        self.lookahead
    }

    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    pub(super) fn pool(&self) -> &SlotPool {
        &self.pool
    }

    pub(super) fn ledger(&self) -> &Arc<Ledger> {
        self.pool.ledger()
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table<S::Resident>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads a weight marked as loading; takes no lock.
    pub(super) fn load(
        &self,
        index: usize,
        booking: Booking,
    ) -> Result<Arc<S::Resident>, StreamError> {
        let weight = &self.weights[index];
        let fill = || weight.load(&*self.source, booking.into_slot());
        match catch_unwind(AssertUnwindSafe(fill)) {
            Ok(Ok(resident)) => Ok(Arc::new(resident)),
            Ok(Err(error @ StreamError::Load { .. })) => Err(error),
            Ok(Err(error)) => Err(StreamError::load(weight.name(), error)),
            Err(payload) => Err(StreamError::LoadPanicked {
                layer: weight.name().to_owned(),
                message: panic_message(&*payload),
            }),
        }
    }

    pub(super) fn release(&self, index: usize, owner: ThreadId) {
        self.table().release(index, owner);
        self.ledger().signal().raise();
    }

    pub(super) fn stats(&self) -> StreamStats {
        let counted = self.table().stats;
        let ledger = self.ledger();
        StreamStats {
            live_slot_bytes: ledger.live_bytes(),
            peak_slot_bytes: ledger.peak_bytes(),
            budget_bytes: ledger.budget_bytes(),
            num_weights: self.weights.len(),
            resident_weights: self.plan.num_resident,
            model_bytes: self.plan.model_bytes,
            ..counted
        }
    }
}

fn check_each_fits<S: Streamable>(
    weights: &[S],
    sizes: &[u64],
    budget_bytes: u64,
) -> Result<(), StreamError> {
    match weights
        .iter()
        .zip(sizes)
        .find(|(_, size)| **size > budget_bytes)
    {
        Some((weight, needed_bytes)) => Err(StreamError::LayerOverBudget {
            layer: weight.name().to_owned(),
            needed_bytes: *needed_bytes,
            budget_bytes,
        }),
        None => Ok(()),
    }
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "no message".to_owned())
}
