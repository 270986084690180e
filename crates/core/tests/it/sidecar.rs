//! Patched output against a dense reference, on every kind of base, after `InvokeAI`'s custom-module tests.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use burn::{
    module::Param,
    nn::LinearConfig,
    tensor::{DType, Device, FloatDType, Tensor},
};
use overglaze_core::{PatchedLayer, PatchedLinear, Path, Weight};
use overglaze_patches::{LayerShape, Patch, PatchError};
use overglaze_quant::{Block, Parts, QuantFormat, QuantizedTensor, kernels::WeightRows};

use crate::{
    numbers::{
        assert_close, bits, flex, largest, lora, lora_delta, ndarray, packed, plain, roundoff,
        stored, tensor, values, wave,
    },
    test_patch::TestPatch,
};

/// As `InvokeAI`'s fixture: 32 in, 64 out.
const SHAPE: [usize; 2] = [64, 32];

/// Two sums of at most 32 products of numbers below 1, in f32.
const TOLERANCE: f32 = 1e-5;

fn over(weight: Weight) -> PatchedLinear {
    PatchedLinear::from_weights(weight, Some(plain([SHAPE[0]], 2)), flex())
}

fn burned(dtype: DType) -> PatchedLinear {
    let mut linear = LinearConfig::new(SHAPE[1], SHAPE[0]).init(&flex());
    linear.weight = Param::from_tensor(tensor(SHAPE, 1, &flex(), dtype).transpose());
    linear.bias = Some(Param::from_tensor(tensor([SHAPE[0]], 2, &flex(), dtype)));
    linear.into()
}

fn bases() -> Vec<(&'static str, PatchedLinear)> {
    vec![
        ("burn f32", burned(DType::F32)),
        ("burn bf16", burned(DType::BF16)),
        (
            "dense f16",
            over(Weight::Dense(tensor(SHAPE, 1, &flex(), DType::F16))),
        ),
        ("packed f32", over(packed("f32", SHAPE, 1))),
        ("packed bf16", over(packed("bf16", SHAPE, 1))),
        ("packed q8_0", over(packed("q8_0", SHAPE, 1))),
    ]
}

fn input() -> Tensor<2> {
    plain([5, SHAPE[1]], 3)
}

/// `x · (W + ΔW)ᵀ + b + Δb` of the base's own values.
fn reference(layer: &PatchedLinear, deltas: &[(f32, Tensor<2>, Tensor<1>)]) -> Tensor<2> {
    let (weight, bias) = layer.base_values(&flex()).expect("it is resident");
    let bias = bias.expect("it has a bias");
    let (weight, bias) = deltas.iter().fold((weight, bias), |(weight, bias), delta| {
        let (strength, weight_delta, bias_delta) = delta.clone();
        let weight = weight + weight_delta.mul_scalar(strength);
        (weight, bias + bias_delta.mul_scalar(strength))
    });
    input().matmul(weight.transpose()) + bias.unsqueeze()
}

#[test]
fn one_to_three_patches_equal_merged_weights() {
    let strengths = [0.7, 1.0, -0.5];
    for (name, base) in bases() {
        let (mut layer, mut deltas) = (base.clone(), Vec::new());
        for (index, strength) in strengths.into_iter().enumerate() {
            let (rank, seed) = (4 + index, 20 * (index + 1));
            let added =
                layer.add_patch(&format!("lora {index}"), lora(SHAPE, rank, seed), strength);
            added.expect("it fits");
            let (weight, bias) = lora_delta(SHAPE, rank, seed);
            deltas.push((strength, weight, bias));
            let output = layer.forward(input());
            let name = format!("{name}, {} patches", index + 1);
            assert_close(&name, &output, &reference(&layer, &deltas), TOLERANCE);
            let difference = values(&(output - base.forward(input())));
            assert!(
                difference.iter().any(|value| value.abs() > 0.1),
                "{name}: no effect"
            );
        }
    }
}

#[test]
fn small_numbers_agree_as_closely_as_invokeai_asks() {
    let scale = 0.05;
    let weight = plain(SHAPE, 1).mul_scalar(scale);
    let mut layer = PatchedLinear::from_weights(Weight::Dense(weight.clone()), None, flex());
    layer
        .add_patch("lora", lora(SHAPE, 4, 20), scale)
        .expect("it fits");
    let (delta, bias) = lora_delta(SHAPE, 4, 20);
    let merged = weight + delta.mul_scalar(scale);
    let expected = input().matmul(merged.transpose()) + bias.mul_scalar(scale).unsqueeze();
    // Outputs below 1: `InvokeAI`'s own bound.
    assert_close("sidecar", &layer.forward(input()), &expected, 1e-6);
}

#[test]
fn patches_of_zeros_change_nothing() {
    let zeros = TestPatch::new(
        Some(Tensor::zeros(SHAPE, &flex())),
        Some(Tensor::zeros([SHAPE[0]], &flex())),
    );
    for (name, base) in bases() {
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let input = input().cast(dtype);
            let plain = base.forward(input.clone());
            let mut layer = base.clone();
            layer
                .add_patch("zeros", zeros.shared(), 1.0)
                .expect("it fits");
            let output = layer.forward(input);
            assert_eq!(output.dtype(), dtype, "{name}");
            let is_burns =
                base.weight.is_some() && base.path(&flex(), dtype).ok() == Some(Path::Native);
            if is_burns {
                // Burn rounds the product and the sum with a bias below 1, the patched pass the sum.
                let rounding = 3.0 * roundoff(dtype) * (largest(&plain) + 1.0);
                assert_close(name, &output, &plain, rounding + TOLERANCE);
            } else {
                assert_eq!(values(&output), values(&plain), "{name}, {dtype:?}");
            }
        }
    }
}

#[test]
fn strength_zero_is_exactly_the_base() {
    for (name, base) in bases() {
        for dtype in [DType::F32, DType::BF16] {
            let input = input().cast(dtype);
            let mut layer = base.clone();
            layer
                .add_patch("lora", lora(SHAPE, 4, 20), 0.0)
                .expect("it fits");
            assert_eq!(layer.num_patches(), 1);
            let expected = bits(&base.forward(input.clone()));
            assert_eq!(bits(&layer.forward(input)), expected, "{name}");
        }
    }
}

#[test]
fn a_patch_that_needs_values_is_shown_the_decoded_ones() {
    for (name, base) in bases() {
        let patch = TestPatch::gain(0.5);
        let mut layer = base.clone();
        layer
            .add_patch("gain", patch.shared(), 2.0)
            .expect("it fits");
        let (weight, bias) = base.base_values(&flex()).expect("it is resident");
        let bias = bias.expect("it has a bias");
        // W + 2 · 0.5 · W
        let doubled = weight.clone().mul_scalar(2.0).transpose();
        let expected = input().matmul(doubled) + bias.unsqueeze();
        assert_close(name, &layer.forward(input()), &expected, 2.0 * TOLERANCE);
        assert_eq!(patch.uses.seen(), [values(&weight)], "{name}");
    }
}

#[test]
fn a_patch_that_needs_values_follows_the_input() {
    let patch = TestPatch::gain(1.0);
    let mut layer = burned(DType::F32);
    let input = tensor([5, SHAPE[1]], 3, &ndarray(), DType::F32);
    let plain = layer.forward(input.clone());
    layer
        .add_patch("gain", patch.shared(), -1.0)
        .expect("it fits");
    layer
        .add_patch("lora", lora(SHAPE, 4, 20), 1.0)
        .expect("it fits");
    let output = layer.forward(input);
    assert_eq!(output.device(), ndarray());
    let (delta, bias) = lora_delta(SHAPE, 4, 20);
    let base_bias = values(&plain_bias());
    let expected = self::input().matmul(delta.transpose()) + (bias + plain_bias()).unsqueeze();
    assert_close("W − W + ΔW", &output, &expected, TOLERANCE);
    assert!(base_bias.iter().any(|value| *value != 0.0));
    assert_ne!(values(&plain), values(&output));
}

fn plain_bias() -> Tensor<1> {
    plain([SHAPE[0]], 2)
}

#[test]
fn a_patch_without_a_sidecar_goes_through_its_residual() {
    let delta = plain(SHAPE, 30);
    let (silent, biased) = (
        TestPatch::new(Some(delta.clone()), None),
        TestPatch::new(None, Some(plain([SHAPE[0]], 31))),
    );
    let mut layer = over(packed("f32", SHAPE, 1));
    layer
        .add_patch("weight", silent.shared(), 0.5)
        .expect("it fits");
    layer
        .add_patch("bias", biased.shared(), -2.0)
        .expect("it fits");
    layer
        .add_patch("lora", lora(SHAPE, 4, 20), 1.0)
        .expect("it fits");
    let (lora_weight, lora_bias) = lora_delta(SHAPE, 4, 20);
    let zeros = (
        Tensor::zeros([SHAPE[0]], &flex()),
        Tensor::zeros(SHAPE, &flex()),
    );
    let deltas = [
        (0.5, delta, zeros.0),
        (-2.0, zeros.1, plain([SHAPE[0]], 31)),
        (1.0, lora_weight, lora_bias),
    ];
    for _ in 0..2 {
        let output = layer.forward(input());
        assert_close(
            "residuals",
            &output,
            &reference(&layer, &deltas),
            2.0 * TOLERANCE,
        );
        assert_eq!(
            [silent.uses.num_deltas(), biased.uses.num_deltas()],
            [1; 2],
            "the residual is kept"
        );
    }
}

#[test]
fn the_order_of_patches_does_not_matter() {
    let patches = || {
        [
            ("gain", TestPatch::gain(0.3).shared(), 0.5),
            ("lora", lora(SHAPE, 4, 20), 0.7),
            (
                "delta",
                TestPatch::new(Some(plain(SHAPE, 30)), None).shared(),
                1.0,
            ),
        ]
    };
    let (mut forth, mut back) = (burned(DType::F32), burned(DType::F32));
    for (name, patch, strength) in patches() {
        forth.add_patch(name, patch, strength).expect("it fits");
    }
    for (name, patch, strength) in patches().into_iter().rev() {
        back.add_patch(name, patch, strength).expect("it fits");
    }
    let expected = forth.forward(input());
    assert_close("back", &back.forward(input()), &expected, TOLERANCE);
}

/// Plain f32 that counts the rows it decodes; the products decode too.
#[derive(Debug)]
struct Counted;

static NUM_ROWS: AtomicUsize = AtomicUsize::new(0);

impl QuantFormat for Counted {
    fn name(&self) -> &'static str {
        "counted"
    }

    fn block(&self) -> Option<Block> {
        Some(Block { len: 1, bytes: 4 })
    }

    fn decode_rows(&self, rows: &WeightRows<'_>, values: &mut [f32]) {
        NUM_ROWS.fetch_add(rows.rows().len(), Ordering::SeqCst);
        let blocks = rows.blocks(Block { len: 1, bytes: 4 });
        for (value, block) in values.iter_mut().zip(blocks.as_chunks().0) {
            *value = f32::from_le_bytes(*block);
        }
    }
}

#[test]
fn a_forward_pass_decodes_the_base_for_its_patches_once() {
    let bytes = stored(&wave(&SHAPE, 1), "F32");
    let weight = QuantizedTensor::new(&Counted, SHAPE, Parts::values(bytes)).expect("it fits");
    let mut layer = over(Weight::Packed(weight));
    let rows_of_a_pass = |layer: &PatchedLinear| {
        NUM_ROWS.store(0, Ordering::SeqCst);
        let _ = layer.forward(input());
        NUM_ROWS.load(Ordering::SeqCst)
    };
    let product = rows_of_a_pass(&layer);
    assert!(product > 0);
    layer
        .add_patch("lora", lora(SHAPE, 4, 20), 1.0)
        .expect("it fits");
    assert_eq!(rows_of_a_pass(&layer), product, "a sidecar needs no values");
    for name in ["a", "b", "c"] {
        let patch = Arc::new(TestPatch::gain(0.1));
        layer.add_patch(name, patch, 1.0).expect("it fits");
        assert_eq!(rows_of_a_pass(&layer), product + SHAPE[0]);
    }
    let dense = layer.base_values(&flex()).expect("it is resident").0;
    assert_eq!(
        values(&dense),
        values(&plain(SHAPE, 1).cast(FloatDType::F32))
    );
}

#[test]
fn in_narrow_dtypes_a_patch_changes_the_output_by_its_residual() {
    let (delta, bias) = lora_delta(SHAPE, 4, 20);
    for (name, base) in bases() {
        for dtype in [DType::BF16, DType::F16] {
            let input = input().cast(dtype);
            let mut layer = base.clone();
            layer
                .add_patch("lora", lora(SHAPE, 4, 20), 1.0)
                .expect("it fits");
            let wide = input.clone().cast(DType::F32);
            let residual =
                wide.clone().matmul(delta.clone().transpose()) + bias.clone().unsqueeze();
            // The same product in f32, and one rounding of the sum.
            let expected = base.forward(wide) + residual;
            let tolerance = roundoff(dtype) * largest(&expected) + TOLERANCE;
            assert_close(name, &layer.forward(input), &expected, tolerance);
        }
    }
}

/// A patch that breaks its promise: a sidecar for one row of input, and none for more.
#[derive(Debug)]
struct OneRow;

impl Patch for OneRow {
    fn kind(&self) -> &str {
        "one row"
    }

    fn check(&self, _: &LayerShape) -> Result<(), PatchError> {
        Ok(())
    }

    fn sidecar_linear(&self, input: Tensor<2>) -> Option<Tensor<2>> {
        (input.dims()[0] == 1).then_some(input)
    }

    fn to_device(&self, _: &Device, _: FloatDType) -> Arc<dyn Patch> {
        Arc::new(Self)
    }

    fn num_bytes(&self) -> usize {
        0
    }
}

#[test]
#[should_panic(expected = "has one on every input of its layer")]
fn a_sidecar_that_is_gone_on_the_real_input_is_never_left_out() {
    let mut layer = PatchedLinear::from_weights(Weight::Dense(plain([3, 3], 1)), None, flex());
    let added = layer.add_patch("one row", Arc::new(OneRow), 1.0);
    added.expect("it fits every layer");
    let _ = layer.forward(plain::<2>([2, 3], 2));
}
