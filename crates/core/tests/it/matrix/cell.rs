//! One cell: a kind on a layer that it has a meaning on, over a base in every format.
//!
//! By sidecar it is what a merge computes; where the weights are changes no bit; strength 0, an unmount and a restore
//! give the base back bit for bit, and no byte of the base changes. A patch has an effect to be told from rounding.

use burn::tensor::{DType, Tensor};
use overglaze_core::{fingerprint::Fingerprint, merge, mount, restore, unmount};
use overglaze_patches::PatchSet;

use super::{
    kind_case::KindCase,
    kinds::KINDS,
    layers::{LayerCase, Runs, TESTED, layer},
    model::{FORMATS, Model},
};
use crate::{
    numbers::{assert_close, bits, flex, largest, roundoff},
    toy::patch_set,
};

#[test]
fn linear() {
    check_layer("linear");
}

#[test]
fn linear_without_bias() {
    check_layer("linear without bias");
}

#[test]
fn open_linear() {
    check_layer("open linear");
}

#[test]
fn conv1d() {
    check_layer("conv1d");
}

#[test]
fn strided_conv2d() {
    check_layer("strided conv2d");
}

#[test]
fn dilated_conv2d() {
    check_layer("dilated conv2d without bias");
}

#[test]
fn grouped_conv2d() {
    check_layer("grouped conv2d");
}

#[test]
fn pointwise_conv2d() {
    check_layer("1x1 conv2d");
}

#[test]
fn conv3d() {
    check_layer("conv3d");
}

#[test]
fn embedding() {
    check_layer("embedding");
}

#[test]
fn layer_norm() {
    check_layer("layer norm");
}

#[test]
fn group_norm() {
    check_layer("group norm");
}

#[test]
fn rms_norm() {
    check_layer("rms norm");
}

#[test]
fn diffusers_rms_norm() {
    check_layer("diffusers rms norm");
}

/// Every kind that has a meaning on the layer `name`.
fn check_layer(name: &str) {
    let layer = layer(name);
    for format in FORMATS {
        let mut cells = Cells::new(&layer, format);
        for kind in KINDS.iter().filter(|kind| (kind.fits)(&layer.shape)) {
            cells.check(&layer, kind);
        }
        cells.check_untouched();
    }
}

/// The cells of one layer over one format.
struct Cells {
    format: &'static str,
    /// In place and streamed.
    models: [Model; 2],
    /// The output without patches.
    output: Tensor<1>,
    /// Its bits.
    base: Vec<u32>,
    fingerprint: Fingerprint,
}

impl Cells {
    fn new(layer: &LayerCase, format: &'static str) -> Self {
        let models = [
            Model::resident(layer, format),
            Model::streamed(layer, format),
        ];
        let output = models[0].output();
        let cells = Self {
            format,
            base: bits(&output),
            output,
            fingerprint: models[0].fingerprint(),
            models,
        };
        cells.check_bare(&format!("{}, {format}", layer.name));
        cells
    }

    fn check(&mut self, layer: &LayerCase, kind: &KindCase) {
        let cell = format!("{} on {} in {}", kind.name, layer.name, self.format);
        let patch = kind.patch(&layer.shape, DType::F32);
        let set = patch_set(vec![(TESTED, patch)]);
        for strength in [1.0, 0.5] {
            self.check_strength(&format!("{cell} at {strength}"), &set, strength);
        }
        self.check_zero(&cell, &set);
    }

    fn check_strength(&mut self, cell: &str, set: &PatchSet, strength: f32) {
        let sidecar = self.sidecar_output(cell, set, strength);
        let [model, _] = &mut self.models;
        merge(model, &[("set", set, strength)]).unwrap_or_else(|error| panic!("{cell}: {error}"));
        let (merged, tolerance) = (model.output(), tolerance(model.layer(), &sidecar));
        assert_eq!(sidecar.dtype(), merged.dtype(), "{cell}");
        assert_close(cell, &sidecar, &merged, tolerance);
        // A sidecar without effect would not pass for the merged weight.
        let effect = largest(&(wide(merged) - wide(self.output.clone())));
        assert!(
            effect > tolerance,
            "{cell}: the patch changes the output by {effect} at most, less than the tolerance {tolerance}"
        );
        restore(model);
        assert_eq!(bits(&model.output()), self.base, "{cell}: not restored");
    }

    /// The output with the set by sidecar, the same wherever the weights are; once computed and once kept.
    fn sidecar_output(&mut self, cell: &str, set: &PatchSet, strength: f32) -> Tensor<1> {
        for model in &mut self.models {
            mount(model, "set", set, strength).unwrap_or_else(|error| panic!("{cell}: {error}"));
        }
        let [resident, streamed] = &self.models;
        let output = resident.output();
        let expected = bits(&output);
        assert_eq!(bits(&streamed.output()), expected, "{cell}, streamed");
        assert_eq!(bits(&resident.output()), expected, "{cell}, again");
        assert_eq!(bits(&streamed.output()), expected, "{cell}, streamed again");
        for model in &mut self.models {
            unmount(model, "set").expect("it is mounted");
        }
        self.check_bare(cell);
        output
    }

    fn check_zero(&mut self, cell: &str, set: &PatchSet) {
        for model in &mut self.models {
            mount(model, "set", set, 0.0).expect("it fits");
        }
        self.check_bare(&format!("{cell} at 0"));
        for model in &mut self.models {
            unmount(model, "set").expect("it is mounted");
        }
        let [resident, _] = &mut self.models;
        merge(resident, &[("set", set, 0.0)]).expect("it fits");
        assert_eq!(bits(&resident.output()), self.base, "{cell} merged at 0");
        restore(resident);
    }

    /// That the outputs are those without patches, bit for bit.
    fn check_bare(&self, cell: &str) {
        for model in &self.models {
            assert_eq!(bits(&model.output()), self.base, "{cell}: not the base");
        }
    }

    fn check_untouched(&self) {
        for model in &self.models {
            assert_eq!(model.fingerprint(), self.fingerprint);
            let streamer = model.base.streamer.as_ref();
            let has_streamed = streamer.is_none_or(|streamer| streamer.stats().evictions > 100);
            assert!(has_streamed, "weights have come and gone");
        }
    }
}

/// How far the output of the merged `layer` may be from the same set's by sidecar.
///
/// - Each merged weight is rounded once to the dtype it is kept in, u · |W'| at most. An output is a sum of such errors
///   times inputs of at most |x|, independent and of mean 0: by Hoeffding's inequality beyond 4 · u · ‖W'‖ · |x|, ‖W'‖
///   the norm of the output's weights, once in 1,500 at the very worst, and in fact never: most are far below their
///   bound. In f16 the rounding of a weight is 2⁻²⁵ at least.
/// - The f32 sums of n products, and of the ranks behind them, run in several lanes: 8 roundings of the sum of
///   absolute values.
/// - The shift is rounded once, and both outputs once to the output's dtype.
fn tolerance(layer: &dyn Runs, output: &Tensor<1>) -> f32 {
    let (weight, bias) = layer.effective_values(&flex()).expect("it is in place");
    let (old, _) = layer.base_values(&flex()).expect("it is in place");
    let (num_terms, input) = (layer.num_terms() as f32, layer.largest_input());
    let norm = match layer.num_terms() {
        1 => largest(&weight),
        _ => largest(&weight.clone().square().sum_dim(1).sqrt()),
    };
    let rounding = 4.0 * input * (roundoff(layer.base_dtype()) * norm + TINIEST * num_terms.sqrt());
    let sum = num_terms * input * (largest(&old) + largest(&weight));
    let sums = 8.0 * roundoff(DType::F32) * sum;
    let shift = bias.map_or(0.0, |bias| roundoff(layer.bias_dtype()) * largest(&bias));
    let outputs = 2.0 * roundoff(output.dtype()) * largest(output);
    rounding + sums + shift + outputs
}

fn wide(tensor: Tensor<1>) -> Tensor<1> {
    tensor.cast(DType::F32)
}

/// Half the smallest f16.
const TINIEST: f32 = 3.0e-8;
