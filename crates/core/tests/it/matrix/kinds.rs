//! The table of kinds and their variants.

use std::sync::Arc;

use burn::tensor::TensorData;
use overglaze_patches::{
    LayerShape,
    kinds::set_weight::{Parameter, SetParameter},
};

use super::{
    keys::{self, Keys, Side, lora},
    kind_case::{
        KindCase, anywhere, configured, has_open_input, has_shift, is_affine, is_in_one_group,
        is_matrix, is_norm, is_pointwise, keys, made, rotates, row_part, row_ranges,
    },
};
use crate::numbers::{flex, wave};

/// The kind `name`.
pub(crate) fn kind(name: &str) -> &'static KindCase {
    let found = KINDS.iter().find(|kind| kind.name == name);
    found.expect("the tests name kinds of the table")
}

/// Every kind in every variant.
pub(crate) const KINDS: &[KindCase] = &[
    keys("lora", is_matrix, lora),
    keys("lora, flat", is_matrix, keys::flat_lora),
    keys("lora, 1x1", is_pointwise, keys::pointwise_lora),
    keys("lora, tucker", is_matrix, keys::tucker_lora),
    keys("lora, ranks differ", is_matrix, keys::chunked_lora),
    keys("lora, control", has_open_input, keys::control_lora),
    keys("lora, embedding", is_matrix, keys::embedding_lora),
    keys("lora, bias", is_affine, |shape| {
        let bias = keys::vector("lora_up.bias", shape.d_output());
        [lora(shape), bias].concat()
    }),
    keys("lora, sparse weight", is_matrix, |shape| {
        [lora(shape), keys::sparse_weight(shape)].concat()
    }),
    keys("lora, sparse bias", is_affine, |shape| {
        [lora(shape), keys::sparse_bias(shape)].concat()
    }),
    keys("lora, reshape_weight", is_matrix, |shape| {
        let dims: Vec<_> = shape.matrix().map(|size| size as i64).into();
        let stated = ("reshape_weight", TensorData::new(dims, [2]));
        [lora(shape), vec![stated]].concat()
    }),
    keys("lora, diff_b beside", is_affine, |shape| {
        let bias = keys::vector("diff_b", shape.d_output());
        [lora(shape), bias].concat()
    }),
    keys("loha, narrow", is_matrix, |shape| keys::loha(shape, 1)),
    keys("loha, wide", is_matrix, |shape| keys::loha(shape, 4)),
    keys("loha, tucker", is_matrix, keys::tucker_loha),
    keys("lokr, whole", is_matrix, |shape| {
        keys::lokr(shape, 4, [Side::Whole, Side::Whole])
    }),
    keys("lokr, flat", is_matrix, keys::flat_lokr),
    keys("lokr, whole and factors", is_matrix, |shape| {
        keys::lokr(shape, 4, [Side::Whole, Side::Factors])
    }),
    keys("lokr, factors and whole", is_matrix, |shape| {
        keys::lokr(shape, 4, [Side::Factors, Side::Whole])
    }),
    keys("lokr, factors", is_matrix, |shape| {
        keys::lokr(shape, 4, [Side::Factors, Side::Factors])
    }),
    keys("lokr, tucker", is_matrix, |shape| {
        keys::lokr(shape, 4, [Side::Whole, Side::Tucker])
    }),
    keys("lokr, unbalanced", is_matrix, |shape| {
        keys::lokr(shape, 8, [Side::Whole, Side::Factors])
    }),
    keys("lokr, sparse bias", is_affine, |shape| {
        [keys::flat_lokr(shape), keys::sparse_bias(shape)].concat()
    }),
    configured(
        "lokr, peft's scale",
        is_matrix,
        keys::flat_lokr,
        r#"{"peft_type": "LOKR", "r": 4, "alpha": 2}"#,
    ),
    keys("glora", is_matrix, keys::glora),
    keys("dora by output", is_matrix, |shape| {
        [lora(shape), keys::dora_scale(shape, 0)].concat()
    }),
    keys("dora by input", is_matrix, |shape| {
        [lora(shape), keys::dora_scale(shape, 1)].concat()
    }),
    keys("dora, peft", is_matrix, |shape| {
        let magnitude = keys::magnitude(shape, "lora_magnitude_vector");
        [lora(shape), magnitude].concat()
    }),
    keys("dora, one axis", is_matrix, |shape| {
        [lora(shape), keys::magnitude(shape, "dora_scale")].concat()
    }),
    keys("dora, bias", is_affine, |shape| {
        let bias = keys::vector("diff_b", shape.d_output());
        [lora(shape), keys::dora_scale(shape, 0), bias].concat()
    }),
    keys("dora over loha by output", is_matrix, |shape| {
        [keys::loha(shape, 2), keys::dora_scale(shape, 0)].concat()
    }),
    keys("dora over loha by input", is_matrix, |shape| {
        [keys::loha(shape, 2), keys::dora_scale(shape, 1)].concat()
    }),
    keys("dora over lokr by output", is_matrix, |shape| {
        [keys::flat_lokr(shape), keys::dora_scale(shape, 0)].concat()
    }),
    keys("dora over lokr by input", is_matrix, |shape| {
        [keys::flat_lokr(shape), keys::dora_scale(shape, 1)].concat()
    }),
    keys("dora over glora by output", is_matrix, |shape| {
        [keys::glora(shape), keys::dora_scale(shape, 0)].concat()
    }),
    keys("dora over glora by input", is_matrix, |shape| {
        [keys::glora(shape), keys::dora_scale(shape, 1)].concat()
    }),
    keys("ia3 on outputs", is_matrix, |shape| {
        keys::ia3(shape.d_output(), false)
    }),
    keys("ia3 on inputs", is_in_one_group, |shape| {
        keys::ia3(shape.d_input(), true)
    }),
    keys("ia3, peft, on outputs", is_affine, |shape| {
        keys::peft_ia3(&[shape.d_output(), 1])
    }),
    keys("ia3, peft, on inputs", is_in_one_group, |shape| {
        keys::peft_ia3(&[1, shape.d_input().max(2)])
    }),
    keys("ia3, peft, by size", is_affine, |shape| {
        keys::peft_ia3(&[1, shape.d_output(), 1, 1])
    }),
    configured(
        "ia3, peft, feed-forward",
        is_in_one_group,
        |shape| keys::peft_ia3(&[1, shape.d_input().max(2), 1, 1]),
        r#"{"peft_type": "IA3", "feedforward_modules": ["1"]}"#,
    ),
    keys("oft", rotates, |shape| keys::oft_blocks(shape, None)),
    keys("oft, limited", rotates, |shape| {
        let alpha = ("alpha", keys::number(0.02));
        [keys::oft_blocks(shape, None), vec![alpha]].concat()
    }),
    keys("oft, rescale", rotates, |shape| {
        [keys::oft_blocks(shape, None), keys::rescale(shape)].concat()
    }),
    keys("oft, early", rotates, keys::oft_diagonal),
    keys("boft", rotates, |shape| keys::oft_blocks(shape, Some(2))),
    keys("boft, rescale", rotates, |shape| {
        [keys::oft_blocks(shape, Some(2)), keys::rescale(shape)].concat()
    }),
    keys("boft, peft", rotates, keys::peft_boft),
    keys("oft, peft, old", rotates, keys::old_peft_oft),
    keys("oft, peft, new", rotates, |shape| {
        keys::new_peft_oft(shape.fan_in() / 4)
    }),
    configured(
        "oft, peft, new, exact",
        rotates,
        |shape| keys::new_peft_oft(shape.fan_in() / 4),
        r#"{"peft_type": "OFT", "peft_version": "0.18.0", "use_cayley_neumann": false}"#,
    ),
    keys("oft, peft, new, one block", rotates, |_| {
        keys::new_peft_oft(1)
    }),
    keys("full", anywhere, |shape| {
        vec![("diff", wave(shape.dims(), 32))]
    }),
    keys("full, bias alone", has_shift, |shape| {
        keys::vector("diff_b", shape.d_output())
    }),
    keys("full, both", has_shift, |shape| {
        let weight = vec![("diff", wave(shape.dims(), 32))];
        [weight, keys::vector("diff_b", shape.d_output())].concat()
    }),
    keys("full, sparse weight beside", anywhere, |shape| {
        let weight = vec![("diff", wave(shape.dims(), 32))];
        [weight, keys::sparse_weight(shape)].concat()
    }),
    keys("sparse weight alone", anywhere, keys::sparse_weight),
    keys("sparse bias alone", has_shift, keys::sparse_bias),
    keys("ia3, sparse bias beside", is_affine, |shape| {
        let scale = keys::ia3(shape.d_output(), false);
        [scale, keys::sparse_bias(shape)].concat()
    }),
    keys("norm", is_norm, |shape| {
        let scale = keys::vector("w_norm", shape.d_output());
        [scale, keys::vector("b_norm", shape.d_output())].concat()
    }),
    keys("norm, scale alone", is_norm, |shape| {
        keys::vector("w_norm", shape.d_output())
    }),
    keys("set_weight", anywhere, |shape| {
        vec![("set_weight", wave(shape.dims(), 33))]
    }),
    keys("scale of a norm", is_norm, |shape| {
        keys::vector("scale", shape.d_output())
    }),
    made("replaced bias", has_shift, |shape, dtype| {
        let value = wave(&[shape.d_output()], 34).convert_dtype(dtype);
        Arc::new(SetParameter::new(Parameter::Bias, value, &flex()).expect("it is a vector"))
    }),
    made("row ranges, ranks and a gap", is_matrix, |shape, dtype| {
        let part =
            |rows: [usize; 2], keys: fn(&LayerShape) -> Keys| row_part(shape, rows, keys, dtype);
        row_ranges(
            shape,
            vec![part([0, 1], lora), part([2, 4], keys::chunked_lora)],
        )
    }),
    made("row ranges, all kinds", is_matrix, |shape, dtype| {
        let part =
            |rows: [usize; 2], keys: fn(&LayerShape) -> Keys| row_part(shape, rows, keys, dtype);
        let parts = vec![
            part([0, 1], |shape| {
                [lora(shape), keys::dora_scale(shape, 0)].concat()
            }),
            part([1, 2], |shape| vec![("set_weight", wave(shape.dims(), 33))]),
            part([3, 4], keys::flat_lokr),
        ];
        row_ranges(shape, parts)
    }),
];
