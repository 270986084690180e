//! Slots: exclusively owned, 64-byte aligned buffers under a budget.
//!
//! A slot is filled through [`Slot::as_mut_slice`] and then [frozen](Slot::freeze) into shared
//! [`Bytes`]. When the last clone drops, the buffer goes back to its pool for reuse and the ledger is
//! told. Nothing is allocated before a slot is taken, and idle buffers count against the budget too.

use std::{fmt, mem, sync::Arc};

use bytes::Bytes;

use crate::{Ledger, StreamError};

/// Alignment of every slot in bytes: a cache line, and enough for every vector load.
const ALIGNMENT: usize = 64;

/// What one vector can hold beside its alignment, so that a slot of any size booked can be made.
pub(crate) const MAX_SLOT_BYTES: u64 = (isize::MAX as usize - ALIGNMENT) as u64;

/// What a released buffer is overwritten with by a [poisoning](SlotPool::poisoning) pool.
const POISON: u8 = 0xA5;

/// Hands out slots whose live bytes never exceed a budget.
#[derive(Clone, Debug)]
pub struct SlotPool {
    ledger: Arc<Ledger>,
    release: Release,
}

impl SlotPool {
    /// Pool with a hard cap on live bytes; use `u64::MAX` for none.
    #[must_use]
    pub fn new(budget_bytes: u64) -> Self {
        Self {
            ledger: Arc::new(Ledger::new(budget_bytes)),
            release: Release::AsIs,
        }
    }

    /// Pool that overwrites every released buffer with garbage, to show who reads one too late.
    #[must_use]
    pub fn poisoning(budget_bytes: u64) -> Self {
        Self {
            release: Release::Poisoned,
            ..Self::new(budget_bytes)
        }
    }

    /// A slot of exactly `num_bytes`; its content is unspecified.
    ///
    /// # Errors
    /// [`StreamError::NoRoom`] where the budget has less left.
    pub fn take(&self, num_bytes: u64) -> Result<Slot, StreamError> {
        self.try_book(num_bytes)
            .map(Booking::into_slot)
            .ok_or_else(|| self.ledger.no_room(num_bytes))
    }

    /// The books of this pool.
    #[must_use]
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Books a slot, which costs no time; making it may.
    pub(crate) fn try_book(&self, num_bytes: u64) -> Option<Booking> {
        let opened = self.ledger.open(num_bytes)?;
        Some(Booking {
            slot: Slot {
                num_bytes,
                buffer: opened.reused.unwrap_or_default(),
                ledger: Arc::clone(&self.ledger),
                release: self.release,
            },
            retired: opened.retired,
        })
    }
}

/// A slot that counts as live and has its memory only where an idle buffer was at hand.
///
/// Booked under a lock, made after it: allocating and freeing gigabytes takes the system a while.
pub(crate) struct Booking {
    slot: Slot,
    retired: Vec<Buffer>,
}

impl Booking {
    pub(crate) fn into_slot(self) -> Slot {
        let Self { mut slot, retired } = self;
        drop(retired);
        if slot.buffer.num_bytes() != slot.num_bytes {
            let len = usize::try_from(slot.num_bytes);
            slot.buffer = Buffer::new(len.expect("the ledger books no more than a vector holds"));
        }
        slot
    }
}

/// A buffer of a [`SlotPool`], owned by whoever holds this.
pub struct Slot {
    num_bytes: u64,
    // Empty until the booking has become a slot.
    buffer: Buffer,
    ledger: Arc<Ledger>,
    release: Release,
}

impl Slot {
    /// Size.
    #[must_use]
    pub fn num_bytes(&self) -> u64 {
        self.num_bytes
    }

    /// The whole slot, for filling; aligned to 64 bytes.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.buffer.as_mut_slice()
    }

    /// Shares the content read-only; the buffer returns to its pool with the last clone.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Slot {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_slice()
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("num_bytes", &self.num_bytes())
            .finish_non_exhaustive()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut buffer = mem::take(&mut self.buffer);
        if self.release == Release::Poisoned {
            buffer.as_mut_slice().fill(POISON);
        }
        self.ledger.close(self.num_bytes, buffer);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Release {
    AsIs,
    Poisoned,
}

/// Memory of a slot: a vector with room for alignment, so that no unsafe code is needed.
#[derive(Default)]
pub(crate) struct Buffer {
    memory: Vec<u8>,
    offset: usize,
    len: usize,
}

impl Buffer {
    pub(crate) fn new(len: usize) -> Self {
        if len == 0 {
            return Self::default();
        }
        let memory = vec![0; len + (ALIGNMENT - 1)];
        Self {
            // The vector is never resized, so the offset stays right.
            offset: memory.as_ptr().align_offset(ALIGNMENT),
            memory,
            len,
        }
    }

    pub(crate) fn num_bytes(&self) -> u64 {
        self.len as u64
    }

    fn as_slice(&self) -> &[u8] {
        &self.memory[self.offset..self.offset + self.len]
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.memory[self.offset..self.offset + self.len]
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}
