//! The books of one budget: live slots, reservations, and buffers kept for reuse.
//!
//! `live + reserved + idle <= budget` at every moment, counted in payload bytes: a buffer takes at most
//! 63 bytes more for its alignment. Idle buffers are given back to the allocator before anything is
//! refused because of them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    StreamError,
    signal::Signal,
    slot::{Buffer, MAX_SLOT_BYTES},
};

/// Live and peak bytes under one budget.
#[derive(Debug)]
pub struct Ledger {
    budget_bytes: u64,
    book: Mutex<Book>,
    signal: Signal,
}

impl Ledger {
    pub(crate) fn new(budget_bytes: u64) -> Self {
        Self {
            budget_bytes,
            book: Mutex::default(),
            signal: Signal::default(),
        }
    }

    /// The cap.
    #[must_use]
    pub fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// Bytes in slots that are in use.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.book().live_bytes
    }

    /// The most [`live_bytes`](Self::live_bytes) has been.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        self.book().peak_bytes
    }

    /// Bytes set aside by [`reserve`](Self::reserve).
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        self.book().reserved_bytes
    }

    /// Bytes that a new slot could have now.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.budget_bytes.saturating_sub(self.book().used_bytes())
    }

    /// Sets bytes aside for something that does not live in slots, until the reservation is dropped.
    ///
    /// # Errors
    /// [`StreamError::NoRoom`] where live slots and other reservations leave less than `num_bytes`.
    pub fn reserve(self: &Arc<Self>, num_bytes: u64) -> Result<Reservation, StreamError> {
        let mut book = self.book();
        if !book.has_room(num_bytes, self.budget_bytes) {
            drop(book);
            return Err(self.no_room(num_bytes));
        }
        book.reserved_bytes += num_bytes;
        let retired = book.retire_idle(self.budget_bytes);
        drop(book);
        drop(retired);
        Ok(Reservation {
            ledger: Arc::clone(self),
            num_bytes,
        })
    }

    /// Books a live buffer of exactly `num_bytes`. Neither allocates nor frees: other locks may be held.
    pub(crate) fn open(&self, num_bytes: u64) -> Option<Opened> {
        let mut book = self.book();
        if num_bytes > MAX_SLOT_BYTES || !book.has_room(num_bytes, self.budget_bytes) {
            return None;
        }
        let reused = book.take_idle(num_bytes);
        book.live_bytes += num_bytes;
        book.peak_bytes = book.peak_bytes.max(book.live_bytes);
        let retired = book.retire_idle(self.budget_bytes);
        Some(Opened { reused, retired })
    }

    /// Ends the booking of `num_bytes`; its buffer, if it came to that, stays for reuse.
    pub(crate) fn close(&self, num_bytes: u64, buffer: Buffer) {
        let mut book = self.book();
        book.live_bytes -= num_bytes;
        if buffer.num_bytes() > 0 {
            book.idle_bytes += num_bytes;
            book.idle.entry(num_bytes).or_default().push(buffer);
        }
        drop(book);
        self.signal.raise();
    }

    pub(crate) fn signal(&self) -> &Signal {
        &self.signal
    }

    pub(crate) fn no_room(&self, needed_bytes: u64) -> StreamError {
        let book = self.book();
        StreamError::NoRoom {
            needed_bytes,
            live_bytes: book.live_bytes,
            reserved_bytes: book.reserved_bytes,
            budget_bytes: self.budget_bytes,
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a booking finds among the idle buffers.
pub(crate) struct Opened {
    /// One of the size wanted.
    pub(crate) reused: Option<Buffer>,
    /// Those that no longer fit; dropping them frees their memory.
    pub(crate) retired: Vec<Buffer>,
}

/// Bytes set aside in a [`Ledger`] while this lives.
#[derive(Debug)]
pub struct Reservation {
    ledger: Arc<Ledger>,
    num_bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.ledger.book().reserved_bytes -= self.num_bytes;
        self.ledger.signal.raise();
    }
}

#[derive(Debug, Default)]
struct Book {
    live_bytes: u64,
    peak_bytes: u64,
    reserved_bytes: u64,
    idle_bytes: u64,
    idle: BTreeMap<u64, Vec<Buffer>>,
}

impl Book {
    fn used_bytes(&self) -> u64 {
        self.live_bytes + self.reserved_bytes
    }

    fn has_room(&self, num_bytes: u64, budget_bytes: u64) -> bool {
        self.used_bytes()
            .checked_add(num_bytes)
            .is_some_and(|total| total <= budget_bytes)
    }

    fn take_idle(&mut self, num_bytes: u64) -> Option<Buffer> {
        let buffer = self.idle.get_mut(&num_bytes)?.pop()?;
        self.idle_bytes -= num_bytes;
        Some(buffer)
    }

    /// Idle buffers that no longer fit beside what is used, for the caller to drop outside the lock.
    fn retire_idle(&mut self, budget_bytes: u64) -> Vec<Buffer> {
        let mut retired = Vec::new();
        while self.used_bytes().saturating_add(self.idle_bytes) > budget_bytes {
            let Some(mut shelf) = self.idle.last_entry() else {
                break;
            };
            match shelf.get_mut().pop() {
                Some(buffer) => {
                    self.idle_bytes -= buffer.num_bytes();
                    retired.push(buffer);
                }
                None => drop(shelf.remove()),
            }
        }
        retired
    }
}
