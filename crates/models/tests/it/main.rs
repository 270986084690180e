//! Tests of the public interface, one module a feature.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod beside;
mod catalogs;
mod conditioning;
mod config;
mod control;
mod families;
mod golden;
mod inputs;
mod names_and_rows;
mod naming;
mod nearest;
mod parity;
mod pixels;
mod sampler;
mod schedule;
mod streaming;
