//! Tests of the public API: sources, slots, plans and the streamer.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod failures;
mod malformed;
mod memory;
mod opening;
mod planning;
mod residency;
mod sharded;
mod slots;
mod sniffing;
mod tenants;
mod toy;
mod written;
