//! A counted wake-up call, shared by everything that can make room or finish a load.
//!
//! A waiter reads the [generation](Signal::generation), looks at the state, and sleeps only while the
//! generation is still the one it read. So no wake-up is lost, and whoever raises the signal needs no
//! other lock: a slot may be released anywhere, also while the streamer's table is locked.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

#[derive(Debug, Default)]
pub(crate) struct Signal {
    generation: Mutex<u64>,
    raised: Condvar,
}

impl Signal {
    pub(crate) fn generation(&self) -> u64 {
        *self.lock()
    }

    pub(crate) fn raise(&self) {
        let mut generation = self.lock();
        *generation = generation.wrapping_add(1);
        drop(generation);
        self.raised.notify_all();
    }

    /// Sleeps until the generation is no longer `seen`.
    pub(crate) fn wait(&self, seen: u64) {
        drop(
            self.raised
                .wait_while(self.lock(), |generation| *generation == seen)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    /// Sleeps until the generation is no longer `seen`, or `limit` is over.
    pub(crate) fn wait_at_most(&self, seen: u64, limit: Duration) {
        drop(
            self.raised
                .wait_timeout_while(self.lock(), limit, |generation| *generation == seen)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.generation
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
