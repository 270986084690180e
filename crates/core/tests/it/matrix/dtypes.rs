//! Dtypes of input, base and patch in every combination: all is computed in f32, and what comes out is rounded once.

use std::sync::Arc;

use burn::tensor::DType;
use overglaze_core::{mount, unmount};
use overglaze_patches::Patch;

use super::{
    kind_case::KindCase,
    kinds::kind,
    layers::{LayerCase, TESTED, layers},
    model::{FORMATS, Model},
};
use crate::{
    numbers::{assert_close, bits, largest, roundoff},
    toy::patch_set,
};

const DTYPES: [DType; 3] = [DType::F32, DType::BF16, DType::F16];

/// A kind for every layer that has factors where the layer is a matrix.
fn kind_for(layer: &LayerCase) -> &'static KindCase {
    let names = ["lora, diff_b beside", "lora", "norm"];
    let mut kinds = names.into_iter().map(kind);
    let fitting = kinds.find(|kind| (kind.fits)(&layer.shape));
    fitting.expect("one of them fits every layer")
}

#[test]
fn an_input_of_another_dtype_changes_the_last_rounding_and_nothing_else() {
    for layer in layers() {
        let patch = kind_for(&layer).patch(&layer.shape, DType::F32);
        for format in FORMATS {
            let mut model = Model::resident(&layer, format);
            check_inputs(&format!("{}, {format}", layer.name), &model);
            let set = patch_set(vec![(TESTED, Arc::clone(&patch))]);
            mount(&mut model, "set", &set, 0.7).expect("it fits");
            check_inputs(&format!("{}, {format}, patched", layer.name), &model);
        }
    }
}

fn check_inputs(case: &str, model: &Model) {
    for dtype in DTYPES {
        let expected = model.layer().run(dtype, DType::F32);
        let found = model.layer().run(dtype, dtype);
        let expected = expected.cast(found.dtype());
        assert!(largest(&expected) > 0.0, "{case}");
        assert_eq!(bits(&found), bits(&expected), "{case}, {dtype:?}");
    }
}

#[test]
fn a_patch_of_another_dtype_is_rounded_once_and_computed_in_f32() {
    for layer in layers() {
        let kind = kind_for(&layer);
        let mut model = Model::resident(&layer, "F32");
        for dtype in [DType::BF16, DType::F16] {
            let case = format!("{}, {dtype:?}", layer.name);
            let output = |model: &mut Model, patch: Arc<dyn Patch>| {
                let set = patch_set(vec![(TESTED, patch)]);
                mount(model, "set", &set, 1.0).expect("it fits");
                let output = model.output();
                unmount(model, "set").expect("it is mounted");
                output
            };
            let found = output(&mut model, kind.patch(&layer.shape, dtype));
            let expected = output(&mut model, kind.patch(&layer.shape, DType::F32));
            assert_ne!(bits(&found), bits(&expected), "{case}");
            // Both factors and the input's products are off by a rounding each, and the sum over the rank and
            // over the inputs averages them.
            let num_terms = model.layer().num_terms() as f32;
            let tolerance = 8.0 * roundoff(dtype) * num_terms.sqrt() * largest(&expected).max(1.0);
            assert_close(&case, &found, &expected, tolerance);
        }
    }
}

#[test]
fn the_base_is_kept_as_it_is_stored() {
    for layer in layers().iter().filter(|layer| layer.shape.is_matrix()) {
        for format in FORMATS {
            let model = Model::resident(layer, format);
            let [weight, _] = model.layer().base_formats();
            assert!(weight.eq_ignore_ascii_case(format), "{weight}, {format}");
        }
    }
}
