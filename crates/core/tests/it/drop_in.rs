//! The wrapper in the place of Burn's layer: same names, same parameters, shared both ways.

use burn::{
    module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId},
    nn::{Linear, LinearConfig},
    tensor::{DType, Tensor},
};
use overglaze_core::{PatchedLayer, PatchedLinear};

use crate::{
    numbers::{assert_close, bits, flex, lora, message, packed, plain, tensor},
    toy::{Toy, lora_adapter},
};

const SHAPE: [usize; 2] = [6, 8];

#[derive(Module, Debug)]
struct Plain {
    fc: Linear,
    head: Linear,
}

#[derive(Module, Debug)]
struct Patched {
    fc: PatchedLinear,
    head: PatchedLinear,
}

fn linear(seed: usize) -> Linear {
    let mut linear = LinearConfig::new(SHAPE[1], SHAPE[0]).init(&flex());
    linear.weight = Param::from_tensor(plain([SHAPE[1], SHAPE[0]], seed));
    linear.bias = Some(Param::from_tensor(plain([SHAPE[0]], seed + 1)));
    linear
}

fn unbiased() -> Linear {
    LinearConfig::new(SHAPE[1], SHAPE[0])
        .with_bias(false)
        .init(&flex())
}

fn models() -> (Plain, Patched) {
    let plain = Plain {
        fc: linear(1),
        head: unbiased(),
    };
    let patched = Patched {
        fc: plain.fc.clone().into(),
        head: plain.head.clone().into(),
    };
    (plain, patched)
}

/// Path, identity and shape of every parameter.
#[derive(Default)]
struct Census {
    path: Vec<String>,
    found: Vec<(String, ParamId, Vec<usize>)>,
}

impl ModuleVisitor for Census {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let shape = param.lazy_shape().to_vec();
        self.found.push((self.path.join("."), param.id, shape));
    }
}

pub(crate) fn census(module: &impl Module) -> Vec<(String, ParamId, Vec<usize>)> {
    let mut census = Census::default();
    module.visit(&mut census);
    census.found
}

#[test]
fn a_visitor_sees_what_burns_layer_has() {
    let (plain, patched) = models();
    let expected = census(&plain);
    let paths: Vec<_> = expected.iter().map(|(path, ..)| path.as_str()).collect();
    assert_eq!(paths, ["fc.weight", "fc.bias", "head.weight"]);
    assert_eq!(census(&patched), expected);
    assert_eq!(patched.num_params(), plain.num_params());
    assert_eq!(patched.num_params(), 48 + 6 + 48);
}

struct Tripled;

impl ModuleMapper for Tripled {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| tensor.mul_scalar(3.0))
    }
}

#[test]
fn weights_edited_through_a_mapper_take_effect() {
    let (_, patched) = models();
    let input = plain([3, SHAPE[1]], 5);
    let mut before = patched.clone();
    let mut after = patched.map(&mut Tripled);
    let expected = before.fc.forward(input.clone()).mul_scalar(3.0);
    assert_close("bare", &after.fc.forward(input.clone()), &expected, 1e-5);
    for model in [&mut before, &mut after] {
        model
            .fc
            .add_patch("lora", lora(SHAPE, 2, 20), 1.0)
            .expect("it fits");
    }
    let residual = before.fc.forward(input.clone()) - expected.clone().div_scalar(3.0);
    assert_close(
        "patched",
        &after.fc.forward(input),
        &(expected + residual),
        1e-5,
    );
}

#[test]
fn records_go_both_ways() {
    let (plain_model, patched) = models();
    let input = plain([3, SHAPE[1]], 5);
    let expected = [
        bits(&plain_model.fc.forward(input.clone())),
        bits(&plain_model.head.forward(input.clone())),
    ];
    let blank = || Plain {
        fc: linear(7),
        head: unbiased(),
    };
    let into_patched = Patched {
        fc: blank().fc.into(),
        head: blank().head.into(),
    };
    assert_ne!(bits(&into_patched.fc.forward(input.clone())), expected[0]);
    let loaded = into_patched.load_record(plain_model.into_record());
    let outputs = |model: &Patched| {
        let (fc, head) = (&model.fc, &model.head);
        [
            bits(&fc.forward(input.clone())),
            bits(&head.forward(input.clone())),
        ]
    };
    assert_eq!(outputs(&loaded), expected, "Burn's record");
    let back = blank().load_record(patched.clone().into_record());
    assert_eq!(bits(&back.fc.forward(input.clone())), expected[0], "ours");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("model");
    patched.save_file(&file).expect("the folder is writable");
    let from_file = Patched {
        fc: linear(7).into(),
        head: unbiased().into(),
    };
    assert_eq!(outputs(&from_file.load_file(&file)), expected, "a file");
}

#[test]
fn parameters_are_shared_both_ways() {
    for linear in [linear(1), unbiased()] {
        let ids = census(&linear);
        let layer = PatchedLinear::from(linear);
        assert_eq!(layer.has_bias(), ids.len() == 2);
        assert_eq!([layer.d_output(), layer.d_input()], SHAPE);
        let inner = layer.into_inner().expect("nothing is mounted");
        assert_eq!(census(&inner), ids);
    }
}

#[test]
fn a_lazy_layer_stays_lazy() {
    let layer = PatchedLinear::from(unbiased());
    assert_eq!(layer.weight_shape(), SHAPE);
    let inner = layer.into_inner().expect("nothing is mounted");
    assert!(!inner.weight.is_initialized());
}

#[test]
fn into_inner_refuses_while_something_is_laid_over() {
    let mut layer = PatchedLinear::from(linear(1));
    layer
        .add_patch("lora", lora(SHAPE, 2, 20), 0.0)
        .expect("it fits");
    let mounted = "patches are mounted on this layer; unmount them before `into_inner`";
    assert_eq!(message(layer.clone().into_inner()), mounted);
    layer.clear_patches();
    let mut toy = Toy::new(vec![("fc", layer)]);
    let set = lora_adapter(&[("fc", SHAPE, 20)]);
    overglaze_core::merge(&mut toy, &[("lora", &set, 1.0)]).expect("it fits");
    let merged = "an adapter is merged into this layer; restore the base before `into_inner`";
    assert_eq!(message(toy.layers[0].clone().into_inner()), merged);
    overglaze_core::restore(&mut toy);
    assert!(toy.layers[0].clone().into_inner().is_ok());
    let packed = PatchedLinear::from_weights(packed("f32", SHAPE, 1), None, flex());
    let packed_message =
        "the layer's weight is packed or streamed, so there is no Burn layer to hand back";
    assert_eq!(message(packed.into_inner()), packed_message);
}

#[test]
fn a_clone_shares_weights_and_has_its_own_patches() {
    let layer = PatchedLinear::from(linear(1));
    let input = plain([3, SHAPE[1]], 5);
    let base = bits(&layer.forward(input.clone()));
    let mut tenants = [layer.clone(), layer.clone()];
    for (index, tenant) in tenants.iter_mut().enumerate() {
        let patch = lora(SHAPE, 2, 20 + 10 * index);
        tenant.add_patch("lora", patch, 1.0).expect("it fits");
        assert_eq!(census(tenant), census(&layer));
    }
    let outputs = tenants
        .each_ref()
        .map(|tenant| bits(&tenant.forward(input.clone())));
    assert_ne!(outputs[0], outputs[1]);
    assert_eq!(layer.num_patches(), 0);
    assert_eq!(bits(&layer.forward(input.clone())), base);
    assert!(tenants[0].remove_patch("lora"));
    assert_eq!(bits(&tenants[0].forward(input.clone())), base);
    assert_eq!(bits(&tenants[1].forward(input)), outputs[1]);
}

#[test]
fn moving_the_module_moves_the_weight() {
    let layer = PatchedLinear::from(linear(1));
    let nd = crate::numbers::ndarray();
    let expected = layer.forward(plain([3, SHAPE[1]], 5));
    let moved = layer.to_device(&nd);
    let output = moved.forward(tensor([3, SHAPE[1]], 5, &nd, DType::F32));
    assert_close("moved", &output, &expected, 1e-5);
    assert_eq!(moved.traffic().num_moves(), 0);
    assert_eq!(moved.device(), nd);
}

#[test]
fn a_layer_without_its_weight_answers_errors() {
    let mut layer = PatchedLinear::from(linear(1));
    layer.weight = None;
    assert_eq!(layer.weight_shape(), SHAPE, "it is remembered");
    assert_eq!(layer.device(), flex());
    layer
        .add_patch("lora", lora(SHAPE, 2, 20), 0.0)
        .expect("it fits what was there");
    let input = plain([3, SHAPE[1]], 5);
    let no_weight =
        "the layer has no weight: its field `weight` was set to `None`; put the parameter back";
    for strength in [0.0, 1.0] {
        let found = layer.reweight_patch("lora", strength);
        assert!(found.expect("it is finite"));
        assert_eq!(message(layer.try_forward(input.clone())), no_weight);
    }
    layer.clear_patches();
    assert_eq!(message(layer.path(&flex(), DType::F32)), no_weight);
    assert_eq!(message(layer.base_values(&flex())), no_weight);
    assert_eq!(message(layer.visit_base_bytes(&mut |_| ())), no_weight);
    assert_eq!(message(layer.clone().into_inner()), no_weight);
    let mut toy = Toy::new(vec![("fc", layer)]);
    let set = lora_adapter(&[("fc", SHAPE, 20)]);
    let merged = overglaze_core::merge(&mut toy, &[("lora", &set, 1.0)]);
    assert_eq!(message(merged), no_weight);
}
