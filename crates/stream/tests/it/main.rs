//! Tests of the public API: sources, slots, plans and the streamer.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod failures;
mod gguf;
mod gguf_bytes;
mod gguf_malformed;
mod gguf_mutations;
mod gguf_sink;
mod gguf_split;
mod malformed;
mod memory;
mod mutations;
mod opening;
mod pickle;
mod pickle_errors;
mod pickle_folders;
mod pickle_mutations;
mod pickled;
mod planning;
mod random;
mod residency;
mod sharded;
mod sharded_pickles;
mod sink;
mod slots;
mod sniffing;
mod special_files;
mod tenants;
mod thread_heap;
mod toy;
mod written;
