//! Kinds keep f16 and bf16 tensors as they are and compute in f32.

use std::sync::Arc;

use burn::tensor::{DType, FloatDType};
use overglaze_patches::{LayerShape, Patch};

use crate::{
    fixtures::{cast, delta_on, device, load, wave},
    formulas::{Tensors, check},
};

#[test]
fn the_numbers_of_the_file_in_f32() {
    let kinds: [Tensors; 5] = [
        vec![
            ("lora_up.weight", wave(&[12, 2], 1)),
            ("lora_mid.weight", wave(&[2, 2, 1, 1], 7)),
            ("lora_down.weight", wave(&[2, 10], 2)),
        ],
        vec![
            ("hada_w1_a", wave(&[12, 2], 1)),
            ("hada_w1_b", wave(&[2, 10], 2)),
            ("hada_w2_a", wave(&[12, 2], 3)),
            ("hada_w2_b", wave(&[2, 10], 4)),
        ],
        vec![("lokr_w1", wave(&[3, 2], 1)), ("lokr_w2", wave(&[4, 5], 2))],
        vec![
            ("lokr_w1", wave(&[3, 2], 1)),
            ("lokr_w2_a", wave(&[4, 2], 2)),
            ("lokr_w2_b", wave(&[2, 5], 3)),
        ],
        vec![("diff", wave(&[12, 10], 1))],
    ];
    let layer = LayerShape::linear(12, 10);
    for tensors in kinds {
        for (dtype, float) in [
            (DType::F16, FloatDType::F16),
            (DType::BF16, FloatDType::BF16),
        ] {
            let rounded: Tensors = tensors
                .iter()
                .map(|(key, data)| (*key, cast(data.clone(), dtype)))
                .collect();
            // The same numbers in f32 must give the same residual.
            let wide: Tensors = rounded
                .iter()
                .map(|(key, data)| (*key, cast(data.clone(), DType::F32)))
                .collect();
            let expected = delta_on(load(&wide).expect("a patch").as_ref(), &layer);
            check(&rounded, &layer, &expected);
            let patch = load(&rounded).expect("a patch");
            let num_bytes: usize = rounded.iter().map(|(_, data)| data.as_bytes().len()).sum();
            assert_eq!(patch.num_bytes(), num_bytes);
            let copy: Arc<dyn Patch> = patch.to_device(&device(), float);
            assert_eq!(copy.num_bytes(), num_bytes);
        }
    }
}
