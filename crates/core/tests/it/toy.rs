//! A model of linear layers by name, the smallest there can be, and sources and adapters for it.

use std::sync::Arc;

use burn::{
    module::Module,
    tensor::{Tensor, TensorData},
};
use overglaze_core::{
    BaseWeights, Error, LayerLoader, LayerTree, LoaderConfig, NameTable, PatchedLayer,
    PatchedLinear, Piece,
};
use overglaze_patches::{Component, Patch, PatchEntry, PatchSet, TargetName};
use overglaze_stream::{MemorySource, WeightSource};

use crate::numbers::{flex, stored, values, wave};

/// Linear layers that run one after another, or all on the same input.
#[derive(Module, Debug)]
pub(crate) struct Toy {
    pub(crate) layers: Vec<PatchedLinear>,
    #[module(skip)]
    paths: Vec<String>,
    #[module(skip)]
    names: Arc<NameTable>,
}

impl Toy {
    /// A model of these layers.
    pub(crate) fn new(layers: Vec<(&str, PatchedLinear)>) -> Self {
        let mut names = NameTable::default();
        for (path, layer) in &layers {
            let added = names.add_layer(path, layer.d_output());
            added.expect("the paths of the tests are distinct");
        }
        let (paths, layers) = layers.into_iter().unzip::<_, _, Vec<_>, _>();
        Self {
            layers,
            paths: paths.into_iter().map(String::from).collect(),
            names: Arc::new(names),
        }
    }

    /// The layers `paths` of `source`.
    pub(crate) fn load(
        source: Arc<dyn WeightSource>,
        paths: &[&str],
        config: LoaderConfig,
    ) -> Result<(Self, BaseWeights), Error> {
        let mut loader = LayerLoader::new(source, config);
        let layers = paths.iter().map(|path| Ok((*path, loader.linear(path)?)));
        let toy = Self::new(layers.collect::<Result<_, Error>>()?);
        Ok((toy, loader.finish()?))
    }

    pub(crate) fn with_alias(mut self, alias: &str, pieces: Vec<Piece>) -> Self {
        let added = Arc::make_mut(&mut self.names).add_alias(alias, pieces);
        added.expect("the aliases of the tests are distinct");
        self
    }

    /// Every layer's output for the same input, one after another.
    pub(crate) fn outputs(&self, input: &Tensor<2>) -> Vec<f32> {
        let outputs = self.layers.iter().map(|layer| layer.forward(input.clone()));
        outputs.flat_map(|output| values(&output)).collect()
    }

    /// The bits of [`outputs`](Self::outputs), for exact comparisons.
    pub(crate) fn output_bits(&self, input: &Tensor<2>) -> Vec<u32> {
        self.outputs(input).into_iter().map(f32::to_bits).collect()
    }

    /// The layers one after another, with a hyperbolic tangent between.
    pub(crate) fn chain(&self, input: Tensor<2>) -> Tensor<2> {
        let step = |input, layer: &PatchedLinear| layer.forward(input).tanh();
        self.layers.iter().fold(input, step)
    }
}

impl LayerTree for Toy {
    fn visit_layers(&self, visitor: &mut dyn FnMut(&str, &dyn PatchedLayer)) {
        for (path, layer) in self.paths.iter().zip(&self.layers) {
            visitor(path, layer);
        }
    }

    fn visit_layers_mut(&mut self, visitor: &mut dyn FnMut(&str, &mut dyn PatchedLayer)) {
        for (path, layer) in self.paths.iter().zip(&mut self.layers) {
            visitor(path, layer);
        }
    }

    fn names(&self) -> &NameTable {
        &self.names
    }
}

/// A piece of an alias: rows `layer_rows` of `layer` are rows `target_rows` of the alias.
pub(crate) fn piece(
    layer: &str,
    layer_rows: std::ops::Range<usize>,
    target_rows: std::ops::Range<usize>,
) -> Piece {
    Piece {
        layer: layer.into(),
        layer_rows,
        target_rows,
    }
}

/// Layers of `(path, type tag, [d_output, d_input])` with f32 biases, as waves: the weight of layer i is
/// wave 10 · i, its bias wave 10 · i + 1.
pub(crate) fn source(layers: &[(&str, &str, [usize; 2])]) -> MemorySource {
    let mut source = MemorySource::new("toy.safetensors");
    for (index, (path, tag, shape)) in layers.iter().enumerate() {
        let weight = stored(&wave(shape, 10 * index), tag);
        let bias = stored(&wave(&shape[..1], 10 * index + 1), "F32");
        let tensors = [
            (format!("{path}.weight"), *tag, shape.to_vec(), weight),
            (format!("{path}.bias"), "F32", vec![shape[0]], bias),
        ];
        for (name, tag, shape, bytes) in tensors {
            let inserted = source.insert(name, tag, shape, bytes);
            inserted.expect("the bytes are of that shape");
        }
    }
    source
}

/// The layers of [`source`], in place on Flex.
pub(crate) fn resident(layers: &[(&str, &str, [usize; 2])]) -> Toy {
    let paths: Vec<_> = layers.iter().map(|(path, ..)| *path).collect();
    let loaded = Toy::load(
        Arc::new(source(layers)),
        &paths,
        LoaderConfig::resident(flex()),
    );
    loaded.expect("the source has these layers").0
}

/// An adapter file with these tensors.
pub(crate) fn adapter(tensors: Vec<(&str, TensorData)>) -> PatchSet {
    let tensors = tensors.into_iter().map(|(key, data)| (key.into(), data));
    PatchSet::from_tensors("adapter", tensors, None, &flex()).expect("the keys agree")
}

/// An adapter file of low-rank pairs, each `(diffusers layer path, [d_output, fan_in], seed)`.
pub(crate) fn lora_adapter(layers: &[(&str, [usize; 2], usize)]) -> PatchSet {
    let tensors = layers.iter().flat_map(|(path, [d_output, fan_in], seed)| {
        [
            (
                format!("transformer.{path}.lora_B.weight"),
                wave(&[*d_output, 2], *seed),
            ),
            (
                format!("transformer.{path}.lora_A.weight"),
                wave(&[2, *fan_in], *seed + 1),
            ),
        ]
    });
    PatchSet::from_tensors("adapter", tensors, None, &flex()).expect("the keys agree")
}

/// An adapter of finished patches, each with the dotted name of its layer.
pub(crate) fn patch_set(patches: Vec<(&str, Arc<dyn Patch>)>) -> PatchSet {
    let entry = |(target, patch): (&str, Arc<dyn Patch>)| PatchEntry {
        target: TargetName::Dotted(target.into()),
        component: Component::Denoiser,
        patch,
        keys: vec![format!("{target}.test")],
        dialect: "test",
    };
    PatchSet::new("patches", patches.into_iter().map(entry).collect())
}
