//! Tests of the public API, one module per feature.

mod adapter_files;
mod bridge;
mod drop_in;
mod fingerprints;
mod inputs;
mod layouts;
mod loading;
mod merging;
mod messages;
mod module_files;
mod mounting;
mod names;
mod norms;
mod numbers;
mod patches;
mod paths;
mod sidecar;
mod streaming;
mod test_patch;
mod toy;
mod traffic;
