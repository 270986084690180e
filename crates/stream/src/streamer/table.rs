//! The residency table: where every weight is, who leases it, who waits. Data only: no thread, no file.

use std::{cmp::Reverse, collections::VecDeque, mem, sync::Arc, thread::ThreadId};

use crate::{Plan, StreamError, StreamStats};

/// State of all weights of one streamer.
pub(super) struct Table<R> {
    entries: Vec<Entry<R>>,
    /// The weight asked for last; the worker loads what follows it.
    cursor: Option<usize>,
    /// Tickets of acquires that need room, oldest first.
    queue: VecDeque<u64>,
    next_ticket: u64,
    /// Threads inside an acquire that did not find its weight in place.
    waiting: Vec<ThreadId>,
    num_loading: usize,
    /// Grows whenever a load ends or a lease begins.
    progress: u64,
    pub(super) is_stopping: bool,
    pub(super) stats: StreamStats,
}

struct Entry<R> {
    place: Place<R>,
    /// The threads that acquired the current leases.
    owners: Vec<ThreadId>,
    /// Acquires under way for this weight.
    num_wanting: usize,
}

enum Place<R> {
    Absent,
    Loading,
    Here(Arc<R>),
    /// A load ahead of time failed; the next acquire is told.
    Failed(StreamError),
}

impl<R> Table<R> {
    pub(super) fn new(num_weights: usize) -> Self {
        let entry = || Entry {
            place: Place::Absent,
            owners: Vec::new(),
            num_wanting: 0,
        };
        Self {
            entries: (0..num_weights).map(|_| entry()).collect(),
            cursor: None,
            queue: VecDeque::new(),
            next_ticket: 0,
            waiting: Vec::new(),
            num_loading: 0,
            progress: 0,
            is_stopping: false,
            stats: StreamStats::default(),
        }
    }

    /// Leases the weight if it is in place.
    pub(super) fn lease(&mut self, index: usize, owner: ThreadId) -> Option<Arc<R>> {
        let entry = &mut self.entries[index];
        let Place::Here(resident) = &entry.place else {
            return None;
        };
        entry.owners.push(owner);
        self.progress += 1;
        Some(Arc::clone(resident))
    }

    pub(super) fn release(&mut self, index: usize, owner: ThreadId) {
        let owners = &mut self.entries[index].owners;
        if let Some(position) = owners.iter().position(|other| *other == owner) {
            owners.swap_remove(position);
        }
    }

    /// The error of a failed load ahead, once; the weight may then be tried again.
    pub(super) fn take_failure(&mut self, index: usize) -> Option<StreamError> {
        let place = &mut self.entries[index].place;
        match mem::replace(place, Place::Absent) {
            Place::Failed(error) => Some(error),
            other => {
                *place = other;
                None
            }
        }
    }

    pub(super) fn is_absent(&self, index: usize) -> bool {
        matches!(self.entries[index].place, Place::Absent)
    }

    pub(super) fn move_cursor(&mut self, index: usize) {
        self.cursor = Some(index);
    }

    pub(super) fn begin_load(&mut self, index: usize) {
        self.entries[index].place = Place::Loading;
        self.num_loading += 1;
    }

    pub(super) fn end_load(&mut self, index: usize, loaded: Result<Arc<R>, Option<StreamError>>) {
        self.num_loading -= 1;
        self.progress += 1;
        self.entries[index].place = match loaded {
            Ok(resident) => Place::Here(resident),
            Err(Some(error)) => Place::Failed(error),
            Err(None) => Place::Absent,
        };
    }

    pub(super) fn count_load(&mut self, num_bytes: u64) {
        self.stats.loads += 1;
        self.stats.bytes_loaded = self.stats.bytes_loaded.saturating_add(num_bytes);
    }

    /// Takes the weight out of its place, for the caller to drop outside the lock.
    pub(super) fn evict(&mut self, index: usize) -> Option<Arc<R>> {
        match mem::replace(&mut self.entries[index].place, Place::Absent) {
            Place::Here(resident) => {
                self.stats.evictions += 1;
                Some(resident)
            }
            other => {
                self.entries[index].place = other;
                None
            }
        }
    }

    /// Unleased weight to evict for one that is wanted now: streamed before resident, and of those
    /// the one whose next use is furthest away.
    pub(super) fn victim(&self, plan: &Plan) -> Option<usize> {
        self.evictable()
            .max_by_key(|index| (!plan.is_resident(*index), self.steps_ahead(*index)))
    }

    /// Unleased streamed weights needed later than `steps` from now, furthest first.
    pub(super) fn victims_beyond(&self, steps: usize, plan: &Plan) -> Vec<usize> {
        let mut victims: Vec<_> = self
            .evictable()
            .filter(|index| !plan.is_resident(*index) && self.steps_ahead(*index) > steps)
            .collect();
        victims.sort_by_key(|index| Reverse(self.steps_ahead(*index)));
        victims
    }

    /// The next weight to load ahead and how far it is: within the first `lookahead` weights after the
    /// cursor, in cyclic order, that are streamed or not yet in place.
    pub(super) fn next_ahead(&self, lookahead: usize, plan: &Plan) -> Option<(usize, usize)> {
        let cursor = self.cursor?;
        let num_weights = self.entries.len();
        (1..num_weights)
            .map(|steps| ((cursor + steps) % num_weights, steps))
            .filter(|(index, _)| {
                !plan.is_resident(*index) || !matches!(self.entries[*index].place, Place::Here(_))
            })
            .take(lookahead)
            .find(|(index, _)| self.is_absent(*index))
    }

    pub(super) fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether an acquire with this ticket may make room now.
    pub(super) fn is_turn(&self, ticket: Option<u64>, owner: ThreadId) -> bool {
        self.queue.front().is_none_or(|head| ticket == Some(*head))
            || self
                .entries
                .iter()
                .any(|entry| entry.owners.contains(&owner))
    }

    pub(super) fn enqueue(&mut self) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.queue.push_back(ticket);
        ticket
    }

    pub(super) fn dequeue(&mut self, ticket: u64) {
        self.queue.retain(|other| *other != ticket);
    }

    pub(super) fn begin_wait(&mut self, index: usize, owner: ThreadId) {
        self.entries[index].num_wanting += 1;
        self.waiting.push(owner);
        self.stats.waits += 1;
    }

    pub(super) fn end_wait(&mut self, index: usize, owner: ThreadId) {
        self.entries[index].num_wanting -= 1;
        self.stop_waiting(owner);
    }

    pub(super) fn stop_waiting(&mut self, owner: ThreadId) {
        if let Some(position) = self.waiting.iter().position(|other| *other == owner) {
            self.waiting.swap_remove(position);
        }
    }

    pub(super) fn progress(&self) -> u64 {
        self.progress
    }

    /// Whether no load is under way and every thread that holds a lease is waiting itself.
    pub(super) fn is_stuck(&self) -> bool {
        self.num_loading == 0
            && self.entries.iter().all(|entry| {
                let is_awaited = matches!(entry.place, Place::Here(_)) && entry.num_wanting > 0;
                !is_awaited
                    && entry
                        .owners
                        .iter()
                        .all(|owner| self.waiting.contains(owner))
            })
    }

    fn evictable(&self) -> impl Iterator<Item = usize> {
        let is_idle = |entry: &Entry<R>| {
            matches!(entry.place, Place::Here(_))
                && entry.owners.is_empty()
                && entry.num_wanting == 0
        };
        let entries = self.entries.iter().enumerate();
        entries.filter_map(move |(index, entry)| is_idle(entry).then_some(index))
    }

    /// Steps until the weight is used again; one that has just been used is a full cycle away.
    fn steps_ahead(&self, index: usize) -> usize {
        let num_weights = self.entries.len();
        match self.cursor {
            Some(cursor) if cursor != index => (index + num_weights - cursor) % num_weights,
            _ => num_weights,
        }
    }
}
