//! Every case of the project on both CPU backends: all must pass, and a snapshot shows which one moved.

use std::path::Path;

use burn::tensor::Device;
use overglaze_parity::{Report, run_all};

fn check(area: &str, device_name: &str, device: &Device) {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases");
    let results = run_all(&cases, &format!("{area}/"), device).expect("the project has cases");
    insta::assert_snapshot!(format!("{area}-{device_name}"), Report::snapshot(&results));
    let report = Report::new(&results);
    assert!(report.is_green(), "{}", report.to_table());
}

fn flex() -> Device {
    Device::flex()
}

#[expect(
    deprecated,
    reason = "Burn prefers Flex; ndarray is still one of our backends"
)]
fn ndarray() -> Device {
    Device::ndarray()
}

#[test]
fn layers_on_flex() {
    check("layers", "flex", &flex());
}

#[test]
fn layers_on_ndarray() {
    check("layers", "ndarray", &ndarray());
}

#[test]
fn patches_on_flex() {
    check("patches", "flex", &flex());
}

#[test]
fn patches_on_ndarray() {
    check("patches", "ndarray", &ndarray());
}

#[test]
fn flux_on_flex() {
    check("flux", "flex", &flex());
}

#[test]
fn flux_on_ndarray() {
    check("flux", "ndarray", &ndarray());
}

#[test]
fn quant_gguf_on_flex() {
    check("quant_gguf", "flex", &flex());
}

#[test]
fn quant_gguf_on_ndarray() {
    check("quant_gguf", "ndarray", &ndarray());
}

#[test]
fn quant_bnb_on_flex() {
    check("quant_bnb", "flex", &flex());
}

#[test]
fn quant_bnb_on_ndarray() {
    check("quant_bnb", "ndarray", &ndarray());
}

#[test]
fn quant_fp8_on_flex() {
    check("quant_fp8", "flex", &flex());
}

#[test]
fn quant_fp8_on_ndarray() {
    check("quant_fp8", "ndarray", &ndarray());
}

#[test]
fn quant_sdnq_on_flex() {
    check("quant_sdnq", "flex", &flex());
}

#[test]
fn quant_sdnq_on_ndarray() {
    check("quant_sdnq", "ndarray", &ndarray());
}

#[test]
fn quant_conv_on_flex() {
    check("quant_conv", "flex", &flex());
}

#[test]
fn quant_conv_on_ndarray() {
    check("quant_conv", "ndarray", &ndarray());
}

#[test]
fn stacked_on_flex() {
    check("stacked", "flex", &flex());
}

#[test]
fn stacked_on_ndarray() {
    check("stacked", "ndarray", &ndarray());
}
