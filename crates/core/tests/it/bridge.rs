//! Unmodified Burn modules with our patches, through Burn's reparameterization hook.

use std::sync::Arc;

use burn::{
    module::{Module, Param},
    nn::{
        Linear, LinearConfig,
        conv::{Conv2d, Conv2dConfig},
    },
    tensor::{DType, Tensor},
};
use overglaze_core::{PatchReparam, PatchReparameterizer, PatchStack, PatchedLayer, PatchedLinear};
use overglaze_patches::Patch;

use crate::{
    numbers::{assert_close, bits, flex, lora, message, plain, tensor, values},
    test_patch::TestPatch,
};

const SHAPE: [usize; 2] = [6, 8];

#[derive(Module, Debug)]
struct Net {
    fc: Linear,
    head: Vec<Linear>,
    conv: Conv2d,
}

fn linear(dtype: DType) -> Linear {
    let mut linear = LinearConfig::new(SHAPE[1], SHAPE[0]).init(&flex());
    linear.weight = Param::from_tensor(tensor([SHAPE[1], SHAPE[0]], 1, &flex(), dtype));
    linear.bias = Some(Param::from_tensor(tensor([SHAPE[0]], 2, &flex(), dtype)));
    linear
}

fn net() -> Net {
    let mut conv = Conv2dConfig::new([2, 4], [3, 3]).init(&flex());
    conv.weight = Param::from_tensor(plain([4, 2, 3, 3], 5));
    conv.bias = Some(Param::from_tensor(plain([4], 6)));
    Net {
        fc: linear(DType::F32),
        head: vec![LinearConfig::new(6, 3).with_bias(false).init(&flex())],
        conv,
    }
}

fn stack(patches: Vec<(Arc<dyn Patch>, f32)>) -> PatchStack {
    let mut stack = PatchStack::default();
    for (index, (patch, strength)) in patches.into_iter().enumerate() {
        let added = stack.add(&format!("adapter {index}"), patch, strength);
        added.expect("the name is new");
    }
    stack
}

fn patches() -> Vec<(Arc<dyn Patch>, f32)> {
    vec![
        (lora(SHAPE, 2, 20), 0.7),
        (TestPatch::gain(0.5).shared(), -1.0),
        (TestPatch::new(Some(plain(SHAPE, 30)), None).shared(), 0.5),
    ]
}

#[test]
fn a_burn_layer_gives_what_the_wrapper_gives() {
    // f32: sums of eight products in another order. bf16: here the patched weight itself is rounded.
    for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::BF16, 0.1)] {
        let net = Net {
            fc: linear(dtype),
            ..net()
        };
        let mut wrapper = PatchedLinear::from(net.fc.clone());
        for (index, (patch, strength)) in patches().into_iter().enumerate() {
            wrapper
                .add_patch(&index.to_string(), patch, strength)
                .expect("it fits");
        }
        let mut reparameterizer = PatchReparameterizer::default();
        reparameterizer.insert("fc", stack(patches()));
        let patched = net.apply_reparameterization(&mut reparameterizer);
        assert!(reparameterizer.unused().is_empty());
        let input: Tensor<3> = tensor([2, 3, SHAPE[1]], 3, &flex(), dtype);
        let output = patched.fc.forward(input.clone());
        assert_eq!(output.dtype(), dtype);
        assert_close("bridge", &output, &wrapper.forward(input), tolerance);
    }
}

#[test]
fn the_base_stays_as_it_was() {
    let net = net();
    let input = plain([3, SHAPE[1]], 3);
    let before = [
        bits(&net.fc.weight.val()),
        bits(&net.fc.forward(input.clone())),
    ];
    let mut reparameterizer = PatchReparameterizer::default();
    reparameterizer.insert("fc", stack(patches()));
    let patched = net.clone().apply_reparameterization(&mut reparameterizer);
    assert!(
        patched
            .fc
            .weight
            .reparameterization::<PatchReparam>()
            .is_some()
    );
    assert_ne!(bits(&patched.fc.forward(input.clone())), before[1]);
    assert_eq!(
        bits(&patched.fc.weight.base()),
        before[0],
        "the stored weight is the base"
    );
    let bare = Net {
        fc: Linear {
            weight: Param::initialized(patched.fc.weight.id, patched.fc.weight.base()),
            bias: patched
                .fc
                .bias
                .map(|bias| Param::initialized(bias.id, bias.base())),
        },
        ..net.clone()
    };
    for removed in [net, bare] {
        let after = [
            bits(&removed.fc.weight.val()),
            bits(&removed.fc.forward(input.clone())),
        ];
        assert_eq!(after, before);
    }
}

#[test]
fn a_strength_of_zero_is_the_base() {
    let net = net();
    let input = plain([3, SHAPE[1]], 3);
    let before = bits(&net.fc.forward(input.clone()));
    let mut reparameterizer = PatchReparameterizer::default();
    reparameterizer.insert("fc", stack(vec![(lora(SHAPE, 2, 20), 0.0)]));
    let patched = net.apply_reparameterization(&mut reparameterizer);
    assert_eq!(bits(&patched.fc.forward(input)), before);
}

#[test]
fn a_layer_that_is_the_whole_module_has_the_empty_path() {
    let mut reparameterizer = PatchReparameterizer::default();
    reparameterizer.insert("", stack(patches()));
    let patched = linear(DType::F32).apply_reparameterization(&mut reparameterizer);
    assert!(reparameterizer.unused().is_empty());
    let input = plain([3, SHAPE[1]], 3);
    assert_ne!(
        bits(&patched.forward(input.clone())),
        bits(&linear(DType::F32).forward(input))
    );
}

#[test]
fn a_convolution_has_its_own_layout() {
    let input = plain([1, 2, 5, 5], 3);
    let delta = TestPatch::new(Some(plain([4, 18], 30)), Some(plain([4], 31)));
    let mut reparameterizer = PatchReparameterizer::default();
    reparameterizer.insert("conv", stack(vec![(delta.shared(), 0.5)]));
    let patched = net().apply_reparameterization(&mut reparameterizer);
    let mut expected = net().conv;
    expected.weight = expected
        .weight
        .map(|weight| weight + plain([4, 18], 30).mul_scalar(0.5).reshape([4, 2, 3, 3]));
    expected.bias = expected
        .bias
        .map(|bias| bias.map(|bias| bias + plain([4], 31).mul_scalar(0.5)));
    let expected = expected.forward(input.clone());
    assert_close("conv", &patched.conv.forward(input), &expected, 1e-5);
}

#[test]
fn what_found_no_parameter_is_listed() {
    let delta = |shape: [usize; 2]| TestPatch::new(Some(plain(shape, 30)), None).shared();
    let biased = TestPatch::new(Some(plain([3, 6], 30)), Some(plain([3], 31)));
    let mut reparameterizer = PatchReparameterizer::default();
    reparameterizer.insert("fc", stack(vec![(delta(SHAPE), 1.0)]));
    // The layer has no bias for the bias residual.
    reparameterizer.insert("head.0", stack(vec![(biased.shared(), 1.0)]));
    reparameterizer.insert("head.1", stack(vec![(delta([3, 6]), 1.0)]));
    reparameterizer.insert("conv", stack(vec![(delta([4, 17]), 1.0)]));
    assert_eq!(reparameterizer.unused(), ["conv", "fc", "head.0", "head.1"]);
    let patched = net().apply_reparameterization(&mut reparameterizer);
    assert_eq!(reparameterizer.unused(), ["conv", "head.0", "head.1"]);
    let weight = &patched.head[0].weight;
    let difference = values(&(weight.val() - weight.base()));
    assert!(
        difference.iter().any(|value| value.abs() > 0.1),
        "its weight residual is in place"
    );
    assert_eq!(
        bits(&patched.conv.weight.val()),
        bits(&net().conv.weight.val())
    );
}

#[test]
fn a_stack_takes_every_name_once_and_finite_strengths() {
    let mut stack = stack(vec![(lora(SHAPE, 2, 20), 1.0)]);
    assert_eq!(
        message(stack.add("adapter 0", lora(SHAPE, 2, 30), 1.0)),
        "an adapter called `adapter 0` is mounted already; unmount it first or choose another name"
    );
    assert_eq!(
        message(stack.add("other", lora(SHAPE, 2, 30), f32::NAN)),
        "the strength of adapter `other` is NaN, expected a finite number"
    );
    assert_eq!(stack.len(), 1);
}
