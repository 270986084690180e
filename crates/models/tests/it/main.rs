//! Tests of the public interface, one module a feature.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod beside;
mod conditioning;
mod config;
mod golden;
mod inputs;
mod naming;
mod nearest;
mod parity;
mod pixels;
mod sampler;
mod schedule;
mod streaming;
