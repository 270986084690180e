//! Kinds on layers they have no meaning on, and two replacements of one parameter: refused when they are mounted,
//! naming the layer and the kind.

use burn::tensor::DType;
use overglaze_core::{Error, mount};

use super::{
    kind_case::KindCase,
    kinds::{KINDS, kind},
    layers::{LayerCase, TESTED, layers},
    model::{FORMATS, Model},
};
use crate::{
    numbers::{bits, message},
    toy::patch_set,
};

#[test]
fn a_kind_without_a_meaning_on_a_layer_is_refused_at_mount() {
    let mut num_refused = 0;
    for layer in layers() {
        let mut model = Model::resident(&layer, "F32");
        let base = bits(&model.output());
        for kind in KINDS.iter().filter(|kind| !(kind.fits)(&layer.shape)) {
            check_refusal(&mut model, &layer, kind);
            num_refused += 1;
        }
        assert_eq!(bits(&model.output()), base, "{}", layer.name);
    }
    assert!(num_refused > 100, "{num_refused}");
}

fn check_refusal(model: &mut Model, layer: &LayerCase, kind: &KindCase) {
    let case = format!("{} on {}", kind.name, layer.name);
    let patch = kind.patch(&layer.shape, DType::F32);
    let name = patch.kind().to_owned();
    let refused = mount(model, "set", &patch_set(vec![(TESTED, patch)]), 1.0);
    assert!(refused.is_err(), "{case}: it is mounted");
    let message = message(refused);
    // Row ranges are refused for one of their parts.
    let names_kind = name.split('+').any(|name| message.contains(name));
    let names_layer = message.contains(&format!("`{TESTED}`"));
    assert!(names_kind && names_layer, "{case}: {message}");
    assert_eq!(model.layer().num_patches(), 0, "{case}");
}

#[test]
fn the_messages_say_why() {
    for (kind, layer, why) in [
        (
            "lora",
            "group norm",
            "a lora patch has no meaning on a norm",
        ),
        ("oft", "layer norm", "a oft patch has no meaning on a norm"),
        (
            "norm",
            "linear",
            "a norm patch has no meaning on a linear layer",
        ),
        (
            "full, bias alone",
            "embedding",
            "a full patch has no meaning on an embedding",
        ),
        ("lora, 1x1", "strided conv2d", "[16, 32, 3, 3]"),
    ] {
        let (kind, layer) = (self::kind(kind), super::layers::layer(layer));
        let mut model = Model::resident(&layer, "F32");
        let patch = kind.patch(&layer.shape, DType::F32);
        let refused = mount(&mut model, "set", &patch_set(vec![(TESTED, patch)]), 1.0);
        let message = message(refused);
        assert!(message.contains(why), "{message}");
    }
}

#[test]
fn two_replacements_of_one_parameter_are_refused_on_every_layer() {
    for layer in layers() {
        for format in FORMATS {
            let replacing = ["set_weight", "scale of a norm", "replaced bias"].map(kind);
            for kind in replacing.iter().filter(|kind| (kind.fits)(&layer.shape)) {
                let set = || patch_set(vec![(TESTED, kind.patch(&layer.shape, DType::F32))]);
                let mut model = Model::streamed(&layer, format);
                mount(&mut model, "first", &set(), 1.0).expect("it fits");
                let before = bits(&model.output());
                let refused = mount(&mut model, "second", &set(), 1.0);
                let is_refused = matches!(
                    &refused,
                    Err(Error::TwoReplacements { layer, first, second, .. })
                        if layer == TESTED && first == "first" && second == "second"
                );
                assert!(is_refused, "{}, {format}: {refused:?}", layer.name);
                assert_eq!(bits(&model.output()), before);
            }
        }
    }
}
