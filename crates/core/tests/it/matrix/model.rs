//! A model of three layers of one case, so that streaming has something to put out: the one under test between
//! two others.

use std::sync::Arc;

use burn::tensor::{DType, Tensor};
use overglaze_core::{
    BaseWeights, LayerLoader, LayerTree, LoaderConfig, NameTable, PatchedLayer,
    fingerprint::{Fingerprint, fingerprint},
};
use overglaze_stream::{MemorySource, WeightSource};

use super::layers::{LayerCase, Runs, TESTED};
use crate::numbers::{flex, stored, wave};

const PATHS: [&str; 3] = ["blocks.0", TESTED, "blocks.2"];

/// Type tags of the bases.
pub(crate) const FORMATS: [&str; 4] = ["F32", "BF16", "F16", "Q8_0"];

pub(crate) struct Model {
    layers: [Box<dyn Runs>; 3],
    names: NameTable,
    pub(crate) base: BaseWeights,
}

impl Model {
    /// Everything in place.
    pub(crate) fn resident(case: &LayerCase, tag: &str) -> Self {
        Self::load(case, tag, LoaderConfig::resident(flex()))
    }

    /// With room for the largest layer and one more; slots that are given back are filled with garbage.
    pub(crate) fn streamed(case: &LayerCase, tag: &str) -> Self {
        let source = source(case, tag);
        let bytes = |name: String| {
            let entry = source.entries().get(&name);
            entry.map_or(0, |entry| entry.num_bytes.next_multiple_of(64))
        };
        let layer = bytes(format!("{TESTED}.weight")) + bytes(format!("{TESTED}.bias"));
        Self::under_budget(case, tag, 2 * layer)
    }

    pub(crate) fn under_budget(case: &LayerCase, tag: &str, budget_bytes: u64) -> Self {
        let config = LoaderConfig {
            poison_released: true,
            ..LoaderConfig::streamed(flex(), budget_bytes)
        };
        Self::load(case, tag, config)
    }

    fn load(case: &LayerCase, tag: &str, config: LoaderConfig) -> Self {
        let mut loader = LayerLoader::new(Arc::new(source(case, tag)), config);
        let mut names = NameTable::default();
        let layers = PATHS.map(|path| {
            let layer = (case.load)(&mut loader, path).expect("the source has it");
            let added = names.add_layer(path, layer.weight_shape()[0]);
            added.expect("the paths are distinct");
            layer
        });
        Self {
            layers,
            names,
            base: loader.finish().expect("every layer fits the budget"),
        }
    }

    /// The layer under test.
    pub(crate) fn layer(&self) -> &dyn Runs {
        &*self.layers[1]
    }

    /// The tested layer's output; of a streamed model, in a pass through all of its layers.
    pub(crate) fn output(&self) -> Tensor<1> {
        let [first, tested, last] = &self.layers;
        let run = |layer: &dyn Runs| layer.run(DType::F32, DType::F32);
        if self.base.streamer.is_none() {
            return run(&**tested);
        }
        drop(run(&**first));
        let output = run(&**tested);
        drop(run(&**last));
        output
    }

    /// The hash of the base's bytes.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        fingerprint(self, &mut |_| ()).expect("every layer can be read")
    }
}

impl LayerTree for Model {
    fn visit_layers(&self, visitor: &mut dyn FnMut(&str, &dyn PatchedLayer)) {
        for (path, layer) in PATHS.iter().zip(&self.layers) {
            visitor(path, &**layer);
        }
    }

    fn visit_layers_mut(&mut self, visitor: &mut dyn FnMut(&str, &mut dyn PatchedLayer)) {
        for (path, layer) in PATHS.iter().zip(&mut self.layers) {
            visitor(path, &mut **layer);
        }
    }

    fn names(&self) -> &NameTable {
        &self.names
    }
}

/// Weights of the type `tag`; biases too, in f32 beside packed weights.
fn source(case: &LayerCase, tag: &str) -> MemorySource {
    let mut source = MemorySource::new("matrix.safetensors");
    let bias_tag = if tag == "Q8_0" { "F32" } else { tag };
    for (index, path) in PATHS.iter().enumerate() {
        let weight = wave(case.shape.dims(), 10 * index + 100);
        let bias = wave(&case.shape.dims()[..1], 10 * index + 101);
        let tensors = [("weight", tag, weight), ("bias", bias_tag, bias)];
        for (name, tag, data) in tensors.into_iter().take(1 + usize::from(case.has_bias)) {
            let (name, shape) = (format!("{path}.{name}"), data.shape().to_vec());
            let inserted = source.insert(name, tag, shape, stored(&data, tag));
            inserted.expect("the bytes are of that shape");
        }
    }
    source
}
