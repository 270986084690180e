//! The kind keeps what every patch promises, on each of its layers, and refuses the others.

#[path = "../src/scaled_identity.rs"]
mod scaled_identity;

use burn::tensor::{Device, TensorData};
use overglaze_patches::{LayerShape, TensorGroup, conformance, registry};

#[test]
fn the_kind_keeps_its_promises() {
    let tensors = [("identity_gain".to_owned(), TensorData::from([0.5_f32]))];
    let group = TensorGroup::new("layer", tensors.into_iter().collect());
    let patch = registry::load(group, &Device::flex()).expect("the kind is registered");
    let fitting = [LayerShape::linear(6, 6), LayerShape::linear(1, 1)];
    let unfitting = [LayerShape::linear(6, 5), LayerShape::norm(6)];
    let answer = conformance::check(&patch, &fitting, &unfitting, &Device::flex());
    assert_eq!(answer, Ok(()));
}
