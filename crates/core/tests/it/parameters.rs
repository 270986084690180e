//! Bare parameters with patches.

use std::sync::Arc;

use burn::{
    module::{Module, Param},
    tensor::DType,
};
use overglaze_core::{
    LayerLoader, LoaderConfig, PatchedLayer, PatchedParameter, merge, mount, restore, unmount,
};
use overglaze_stream::MemorySource;

use crate::{
    numbers::{
        assert_close, bits, flex, lora, message, plain, rounded, roundoff, stored, tensor, wave,
    },
    single::Single,
    test_patch::TestPatch,
    toy::patch_set,
};

const DIMS: [usize; 3] = [2, 3, 4];

/// One sum of three numbers below 2, in f32.
const TOLERANCE: f32 = 1e-6;

#[test]
fn patches_are_added() {
    for dtype in [DType::F32, DType::BF16] {
        let base = tensor::<3>(DIMS, 1, &flex(), dtype);
        let mut parameter = PatchedParameter::from(Param::from_tensor(base.clone()));
        assert_eq!(parameter.num_params(), 24);
        assert_eq!(bits(&parameter.value()), bits(&base));
        let dense = TestPatch::new(Some(plain([2, 12], 20)), None);
        for (name, patch, strength) in [
            ("dense", dense.shared(), -0.5),
            ("gain", TestPatch::gain(0.5).shared(), 0.5),
        ] {
            parameter.add_patch(name, patch, strength).expect("it fits");
        }
        let found = parameter.value();
        assert_eq!((found.dims(), found.dtype()), (DIMS, dtype));
        let expected = rounded(DIMS, 1, dtype).mul_scalar(1.25)
            - plain([2, 12], 20).reshape(DIMS).mul_scalar(0.5);
        assert_close("sum", &found, &expected, TOLERANCE + 2.0 * roundoff(dtype));
        let refused = "patches are mounted on this layer; unmount them before `into_inner`";
        assert_eq!(message(parameter.clone().into_inner()), refused);
        parameter.clear_patches();
        assert_eq!(bits(&parameter.value()), bits(&base));
        parameter.into_inner().expect("nothing is mounted");
    }
}

#[test]
fn merging_equals_mounting_and_is_undone_exactly() {
    for dtype in [DType::F32, DType::BF16] {
        let base = Param::from_tensor(tensor::<3>(DIMS, 1, &flex(), dtype));
        let mut model = Single::new(PatchedParameter::from(base));
        let before = bits(&model.layer.value());
        let dense = TestPatch::new(Some(plain([2, 12], 20)), None);
        let set = patch_set(vec![("layer", dense.shared())]);
        mount(&mut model, "set", &set, 0.5).expect("it fits");
        let mounted = bits(&model.layer.value());
        unmount(&mut model, "set").expect("it is there");
        merge(&mut model, &[("set", &set, 0.5)]).expect("it fits");
        // Both round the same f32 sum once.
        assert_eq!(bits(&model.layer.value()), mounted);
        assert_ne!(mounted, before);
        restore(&mut model);
        assert_eq!(bits(&model.layer.value()), before);
    }
}

#[test]
fn what_has_no_meaning_is_refused() {
    let mut parameter = PatchedParameter::from(Param::from_tensor(plain(DIMS, 1)));
    let factors = parameter.add_patch("lora", lora([2, 12], 2, 20), 1.0);
    assert_eq!(
        message(factors),
        "a lora patch has no meaning on a parameter: its factors are for a weight matrix"
    );
    let bias = TestPatch::new(None, Some(plain([2], 5)));
    let found = message(parameter.add_patch("bias", bias.shared(), 1.0));
    assert!(found.contains("has no meaning on a parameter"), "{found}");
    let set = patch_set(vec![("layer", bias.shared())]);
    let found = message(mount(&mut Single::new(parameter), "set", &set, 1.0));
    assert!(found.contains("has no meaning on a parameter"), "{found}");
}

#[test]
fn a_source_has_them_in_any_rank() {
    let mut source = MemorySource::new("model.safetensors");
    let bytes = stored(&wave(&DIMS, 1), "BF16");
    source
        .insert("modulation", "BF16", DIMS.to_vec(), bytes)
        .expect("the size is right");
    let mut loader = LayerLoader::new(Arc::new(source), LoaderConfig::resident(flex()));
    let parameter = loader.parameter::<3>("modulation").expect("it is there");
    assert_eq!(parameter.base_formats(), ["bf16", ""]);
    assert_eq!(
        bits(&parameter.value()),
        bits(&rounded(DIMS, 1, DType::BF16))
    );
    assert_eq!(
        message(loader.parameter::<2>("modulation")),
        "model.safetensors: tensor `modulation` has shape [2, 3, 4], expected 2 axes"
    );
}
