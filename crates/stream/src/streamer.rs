//! Streaming the weights of a model that runs layer after layer, cycle after cycle.
//!
//! A weight is *absent*, *loading*, *in place* or *failed*. [`Streamer::acquire`] hands out a [`Lease`] on a
//! weight in place, and loads it in the calling thread where the worker has not come to it. The worker
//! loads the next weights in cyclic order. Both make room by evicting the unleased weight whose next use
//! is furthest away; a leased weight is never evicted, and no lock is held while bytes are read.

mod shared;
mod table;
mod visit;
mod worker;

use std::{
    error::Error,
    fmt,
    marker::PhantomData,
    ops::Deref,
    sync::{Arc, MutexGuard},
    thread,
    time::Duration,
};

use crate::{Ledger, Plan, Slot, StreamError, StreamStats, WeightSource};

use self::{shared::Shared, visit::PATIENCE, worker::Worker};

/// A weight that can be made resident in a slot.
pub trait Streamable: Send + Sync + 'static {
    /// The form that computes; it keeps the slot's bytes alive as long as it uses them.
    type Resident: Send + Sync + 'static;

    /// Name of the layer, for messages.
    fn name(&self) -> &str;

    /// Slot bytes the resident form needs; asked once.
    fn num_bytes(&self) -> u64;

    /// Fills a slot of [`num_bytes`](Self::num_bytes) from the source.
    ///
    /// # Errors
    /// Whatever keeps the weight from being read; own errors go in through [`StreamError::load`].
    fn load(&self, source: &dyn WeightSource, slot: Slot) -> Result<Self::Resident, StreamError>;
}

impl StreamError {
    /// Error of a [`Streamable`]'s own decoding of `layer`.
    pub fn load(layer: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Load {
            layer: layer.into(),
            source: source.into(),
        }
    }
}

/// How a [`Streamer`] uses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamerConfig {
    /// Hard cap on bytes in slots; `u64::MAX` for none.
    pub budget_bytes: u64,
    /// Weights not yet in place that the worker loads ahead at most; 0 runs without a worker, and more
    /// weights stay resident.
    pub lookahead: usize,
    /// Overwrite released buffers with garbage, so that late readers show.
    pub poison_released: bool,
}

/// Position of a weight in the execution order of one [`Streamer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(usize);

/// Keeps the weights of one model within a budget.
///
/// # Waiting
/// Any number of threads may acquire in any order. Threads that hold at most one lease at a time cannot
/// block each other for good: whoever waits for room holds none, so every lease is dropped by a thread
/// that runs. Room is given in order of asking, except that a thread which already holds a lease goes
/// first. Holding two leases at once needs a budget for both. Where every thread that holds a lease is
/// itself waiting, or bytes are kept outside leases, nobody can make room: after five seconds without
/// progress one acquire ends with [`StreamError::BudgetHeld`].
///
/// A lease is held while its caller computes, for as long as that takes. So a thread with a lease must not
/// wait, in a join or on a channel, for another thread that acquires: to the streamer it looks busy.
///
/// Do not start forward passes from tasks of the thread pool (such as rayon's) that the computing itself
/// uses. While a pass waits there for its product, its thread may steal the task of another pass, which
/// then waits for room that the lease beneath it on the same stack holds; that acquire ends with
/// [`StreamError::BudgetHeld`] after the five seconds. Start passes from threads of their own.
pub struct Streamer<S: Streamable> {
    shared: Arc<Shared<S>>,
    // Dropping it stops and joins the thread.
    worker: Option<Worker<S>>,
}

impl<S: Streamable> Streamer<S> {
    /// Plans residency for `weights`, given in execution order. Loads and allocates nothing yet.
    ///
    /// Where the system gives no thread for loading ahead, every weight is loaded by the thread that
    /// acquires it.
    ///
    /// # Errors
    /// [`StreamError::LayerOverBudget`] where one weight alone exceeds the budget.
    pub fn new(
        source: Arc<dyn WeightSource>,
        weights: Vec<S>,
        config: StreamerConfig,
    ) -> Result<Arc<Self>, StreamError> {
        Self::with_patience(source, weights, config, PATIENCE)
    }

    /// As [`new`](Self::new), with the time after which an acquire that nobody can make room for gives up.
    fn with_patience(
        source: Arc<dyn WeightSource>,
        weights: Vec<S>,
        config: StreamerConfig,
        patience: Duration,
    ) -> Result<Arc<Self>, StreamError> {
        let starts_worker = config.lookahead > 0 && weights.len() > 1;
        let shared = Arc::new(Shared::new(source, weights, &config, patience)?);
        let worker = starts_worker
            .then(|| Worker::start(Arc::clone(&shared)))
            .flatten();
        Ok(Arc::new(Self { shared, worker }))
    }

    /// Id of the weight at this place of the execution order.
    ///
    /// # Panics
    /// Where there is no such weight.
    #[must_use]
    pub fn slot_id(&self, index: usize) -> SlotId {
        let num_weights = self.num_weights();
        assert!(
            index < num_weights,
            "weight {index} asked of a streamer with {num_weights}"
        );
        SlotId(index)
    }

    /// Number of weights.
    #[must_use]
    pub fn num_weights(&self) -> usize {
        self.shared.weights().len()
    }

    /// The weights as given, in execution order.
    #[must_use]
    pub fn weights(&self) -> &[S] {
        self.shared.weights()
    }

    /// Puts the weight in place and keeps it there until the lease is dropped; may wait.
    ///
    /// # Errors
    /// [`StreamError::Load`] or [`StreamError::LoadPanicked`] where the weight cannot be loaded, also
    /// ahead of time (a later acquire tries again), [`StreamError::BudgetHeld`] where nobody can make room
    /// (see the type's text), and [`StreamError::UnknownSlot`] for the id of a longer streamer.
    pub fn acquire(self: &Arc<Self>, id: SlotId) -> Result<Lease<S>, StreamError> {
        let SlotId(index) = id;
        let num_weights = self.num_weights();
        if index >= num_weights {
            return Err(StreamError::UnknownSlot { index, num_weights });
        }
        let owner = thread::current().id();
        Ok(Lease {
            resident: visit::obtain(&self.shared, index, owner)?,
            hold: Hold {
                shared: Arc::clone(&self.shared),
                index,
                owner,
                stays_on_thread: PhantomData,
            },
        })
    }

    /// What stays resident, and what passes through.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        self.shared.plan()
    }

    /// What has happened so far.
    #[must_use]
    pub fn stats(&self) -> StreamStats {
        self.shared.stats()
    }

    /// The books of the budget.
    #[must_use]
    pub fn ledger(&self) -> &Arc<Ledger> {
        self.shared.ledger()
    }
}

impl<S: Streamable> fmt::Debug for Streamer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streamer")
            .field("plan", self.plan())
            .field("has_worker", &self.worker.is_some())
            .finish_non_exhaustive()
    }
}

/// Keeps a weight in place while it lives.
///
/// It stays on the thread that acquired it, for waiting is judged by who holds what:
///
/// ```compile_fail,E0277
/// fn move_lease<S: overglaze_stream::Streamable>(lease: overglaze_stream::Lease<S>) {
///     std::thread::spawn(move || drop(lease));
/// }
/// ```
pub struct Lease<S: Streamable> {
    // Declared first, so dropped first: an unleased weight is held by the table alone.
    resident: Arc<S::Resident>,
    hold: Hold<S>,
}

impl<S: Streamable> Deref for Lease<S> {
    type Target = S::Resident;

    fn deref(&self) -> &S::Resident {
        &self.resident
    }
}

impl<S: Streamable> fmt::Debug for Lease<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("layer", &self.hold.shared.weights()[self.hold.index].name())
            .finish_non_exhaustive()
    }
}

/// The entry in the table that a lease stands for; dropped by the thread that owns it.
struct Hold<S: Streamable> {
    shared: Arc<Shared<S>>,
    index: usize,
    owner: thread::ThreadId,
    // As a guard of a lock is: shared between threads, never sent to another.
    stays_on_thread: PhantomData<MutexGuard<'static, ()>>,
}

impl<S: Streamable> Drop for Hold<S> {
    fn drop(&mut self) {
        self.shared.release(self.index, self.owner);
    }
}
