//! What a linear layer takes: one to four axes, perhaps no rows, the right width, the right device.

use std::sync::Arc;

use burn::tensor::DType::{BF16, F32};
use overglaze_core::{Error, PatchedLayer, PatchedLinear};

use crate::{
    numbers::{assert_close, bits, flex, lora, message, ndarray, plain, tensor},
    paths::{SHAPE, burn_layer, burned, packed_with},
};

fn check_rank<const D: usize>(dims: [usize; D]) {
    let mut patched = burned([F32; 2], &flex());
    patched
        .add_patch("lora", lora(SHAPE, 2, 20), 0.5)
        .expect("it fits");
    let layers = [
        ("native", burned([F32; 2], &flex())),
        ("moved", burned([F32; 2], &ndarray())),
        ("cast", burned([BF16, F32], &flex())),
        ("packed", packed_with("bf16", &flex())),
        ("patched", patched),
    ];
    let mut expected_dims = dims;
    expected_dims[D - 1] = SHAPE[0];
    let num_rows = dims[..D - 1].iter().product::<usize>();
    for (path, layer) in layers {
        let name = format!("{path}, {dims:?}");
        let input = plain(dims, 3);
        let output = layer.forward(input.clone());
        assert_eq!(
            (output.dims(), output.dtype()),
            (expected_dims, F32),
            "{name}"
        );
        if num_rows > 0 {
            let rows = layer.forward(input.reshape([num_rows, SHAPE[1]]));
            // The number of rows may change the order of summation.
            assert_close(&name, &output.reshape([num_rows, SHAPE[0]]), &rows, 1e-5);
        }
    }
}

#[test]
fn inputs_have_one_to_four_axes_and_perhaps_no_rows() {
    check_rank([8]);
    check_rank([3, 8]);
    check_rank([2, 3, 8]);
    check_rank([2, 1, 3, 8]);
    check_rank([0, 8]);
    check_rank([2, 0, 8]);
    check_rank([2, 0, 3, 8]);
}

#[test]
fn an_input_of_another_width_is_refused() {
    let expected = "the input has 7 features, the layer takes 8";
    let mut patched = burned([F32; 2], &flex());
    patched
        .add_patch("lora", lora(SHAPE, 2, 20), 1.0)
        .expect("it fits");
    for layer in [
        burned([F32; 2], &flex()),
        packed_with("f32", &flex()),
        patched,
    ] {
        assert_eq!(message(layer.try_forward(plain([2, 7], 1))), expected);
        assert_eq!(message(layer.try_forward(plain([7], 1))), expected);
    }
}

#[test]
#[should_panic(expected = "the input has 7 features, the layer takes 8")]
fn forward_panics_with_the_error() {
    let _ = burned([F32; 2], &flex()).forward(plain([2, 7], 1));
}

#[test]
fn without_autocast_a_weight_elsewhere_is_an_error() {
    let (flex, nd) = (flex(), ndarray());
    let mut layer = burned([F32; 2], &flex);
    assert!(layer.is_autocast());
    layer.set_autocast(false);
    assert!(!layer.is_autocast());
    let native = layer.forward(tensor([3, 8], 3, &flex, F32));
    let error = layer.try_forward(tensor([3, 8], 3, &nd, F32));
    let Err(Error::AutocastOff { .. }) = &error else {
        panic!("{error:?}");
    };
    let expected = format!(
        "the weight is on {flex:?} and the input on {nd:?}, and autocast is off for this layer; \
         turn it on with `set_autocast(true)` or move one of them"
    );
    assert_eq!(message(error), expected);
    assert_eq!(layer.traffic().num_moves(), 0);
    layer.set_autocast(true);
    let moved = layer.forward(tensor([3, 8], 3, &nd, F32));
    assert_close("on again", &moved, &native, 1e-5);
}

#[test]
fn the_native_path_is_burns_own_layer_bit_for_bit() {
    let linear = burn_layer([F32; 2], &flex());
    let layer: PatchedLinear = linear.clone().into();
    for rows in [1, 5, 64] {
        let input = plain([rows, SHAPE[1]], 3);
        assert_eq!(
            bits(&layer.forward(input.clone())),
            bits(&linear.forward(input))
        );
    }
}

#[test]
fn the_counters_are_shared_by_the_clones() {
    let layer = burned([F32; 2], &ndarray());
    let clone = layer.clone();
    let _ = clone.forward(plain([1, 8], 3));
    assert!(Arc::ptr_eq(layer.traffic(), clone.traffic()));
    assert_eq!(layer.traffic().num_moves(), 2);
}
