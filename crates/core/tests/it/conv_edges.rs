//! Inputs and layers at the edges of what a convolution can be.

use burn::{nn::conv::Conv2dConfig, tensor::DType};
use overglaze_core::{LoaderConfig, PatchedConv2d, PatchedLayer};
use overglaze_stream::{MemorySource, WeightSource};

use crate::{
    convs::{TOLERANCE, burn_2d, load, mount_on, resident, source, whole},
    numbers::{assert_close, flex, message, packed, plain, rounded, stored, values, wave},
};

#[test]
fn edges_of_the_input() {
    let config = whole();
    for layer in [
        resident(&config, "BF16"),
        burn_2d(&config, DType::F32).into(),
    ] {
        for mounted in [false, true] {
            let mut layer = layer.clone();
            if mounted {
                mount_on(&mut layer);
            }
            let empty = layer.forward(plain([0, 32, 7, 5], 3));
            assert_eq!(empty.dims(), [0, 6, 7, 5]);
            let single = layer.forward(plain([1, 32, 1, 1], 3));
            assert_eq!(single.dims(), [1, 6, 1, 1]);
            let two = layer.forward(plain([1, 32, 1, 1], 3).repeat_dim(0, 2));
            assert_close("batch", &two.slice_dim(0, 1..2), &single, TOLERANCE);
            let channels = "the input has 31 channels, the layer takes 32";
            assert_eq!(
                message(layer.try_forward(plain([1, 31, 7, 5], 3))),
                channels
            );
        }
    }
    let unpadded = PatchedConv2d::from(burn_2d(
        &Conv2dConfig::new([4, 6], [3, 3]).with_dilation([2, 1]),
        DType::F32,
    ));
    let small = "the input's axes are [4, 3] with padding, the kernel reaches over [5, 3]; give a larger \
                 input";
    assert_eq!(message(unpadded.try_forward(plain([1, 4, 4, 3], 3))), small);
    assert_eq!(
        unpadded.forward(plain([1, 4, 5, 3], 3)).dims(),
        [1, 6, 1, 1]
    );
}

#[test]
fn layers_that_cannot_be_computed_are_refused() {
    let source = || source(&whole(), "F32");
    let resident = || LoaderConfig::resident(flex());
    let cannot = |config: Conv2dConfig| message(load(source(), &config, resident()).map(drop));
    for (config, expected) in [
        (
            whole().with_stride([0, 1]),
            "a convolution with a weight [6, 32, 3, 2], stride [0, 1], dilation [1, 1] and 1 groups \
             cannot run; expected a stride and a dilation of 1 or more",
        ),
        (
            whole().with_groups(4),
            "a convolution with a weight [6, 8, 3, 2], stride [1, 1], dilation [1, 1] and 4 groups cannot \
             run; expected a number of groups that divides the output channels",
        ),
        (
            whole().with_groups(0),
            "a convolution with a weight [6, 0, 3, 2], stride [1, 1], dilation [1, 1] and 0 groups cannot \
             run; expected no axis of size 0",
        ),
        (
            Conv2dConfig::new([32, 6], [3, 3]),
            "conv.safetensors: tensor `conv.weight` has shape [6, 32, 3, 2], expected [6, 32, 3, 3]",
        ),
        (
            Conv2dConfig::new([32, 0], [3, 2]),
            "a convolution with a weight [0, 32, 3, 2], stride [1, 1], dilation [1, 1] and 1 groups cannot \
             run; expected no axis of size 0",
        ),
    ] {
        assert_eq!(cannot(config), expected);
    }
    let weight = packed("f32", [6, 191], 1);
    let wrong = PatchedConv2d::from_weights(weight, None, &whole(), flex());
    assert_eq!(
        message(wrong),
        "the weight has shape [6, 191], the layer needs [6, 192]"
    );
    let mut without_bias = MemorySource::new("conv.safetensors");
    let weight = source().read("conv.weight").expect("it is there");
    without_bias
        .insert("conv.weight", "F32", vec![6, 32, 3, 2], weight)
        .expect("the size is right");
    assert_eq!(
        message(load(without_bias, &whole(), resident()).map(drop)),
        "conv.safetensors: tensor `conv.bias` is missing; the nearest name in it is `conv.weight`"
    );
}

#[test]
fn stored_values_are_told_as_a_matrix() {
    let layer = resident(&whole(), "BF16");
    let (weight, bias) = layer.base_values(&flex()).expect("it is there");
    assert_eq!(weight.dims(), [6, 192]);
    assert_eq!(values(&weight), values(&rounded([6, 192], 1, DType::BF16)));
    assert_eq!(values(&bias.expect("it has one")), values(&plain([6], 2)));
    assert_eq!(layer.base_formats(), ["bf16", "f32"]);
    let mut bytes = Vec::new();
    let visited = layer.visit_base_bytes(&mut |part| bytes.push(part.to_vec()));
    visited.expect("it is there");
    assert_eq!(bytes[0], stored(&wave(&[6, 192], 1), "BF16"));
    assert_eq!(bytes.len(), 2);
}
