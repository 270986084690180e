//! Residency does not show in the output: a model under a budget gives the same bits.

use burn::tensor::Device;
use overglaze_core::{LayerTree, LoaderConfig};
use overglaze_models::flux::{FluxLoadOptions, FluxModel};

use crate::golden::{self, CHECKPOINTS};

#[test]
fn a_streamed_model_gives_the_same_bits() {
    for checkpoint in CHECKPOINTS {
        let resident = golden::model(checkpoint);
        let expected = golden::values(resident.transformer.forward(golden::inputs()).unwrap());
        assert!(expected.iter().any(|value| value.abs() > 0.1));
        let mut loader = LoaderConfig::streamed(Device::flex(), resident.base.num_bytes / 3);
        loader.poison_released = true;
        let options = FluxLoadOptions {
            loader,
            ..golden::options()
        };
        let streamed = FluxModel::load(golden::source(checkpoint), options).unwrap();
        for _ in 0..2 {
            let output = streamed.transformer.forward(golden::inputs()).unwrap();
            assert_eq!(golden::values(output), expected, "{checkpoint}");
        }
    }
}

/// The streamer plans for the order in which layers are built, so that has to be the order in which
/// they are visited, and every layer is visited once.
#[test]
fn every_layer_is_visited_once() {
    for checkpoint in CHECKPOINTS {
        let source = golden::source(checkpoint);
        let mut model = FluxModel::load(source.clone(), golden::options())
            .unwrap()
            .transformer;
        let mut paths = Vec::new();
        model.visit_layers(&mut |path, _| paths.push(path.to_owned()));
        let mut again = Vec::new();
        model.visit_layers_mut(&mut |path, _| again.push(path.to_owned()));
        assert_eq!(paths, again);
        let mut layers: Vec<_> = source
            .entries()
            .keys()
            .filter_map(|name| name.rsplit_once('.').map(|(path, _)| path.to_owned()))
            .collect();
        layers.dedup();
        paths.sort_unstable();
        layers.sort_unstable();
        layers.dedup();
        assert_eq!(paths, layers, "{checkpoint}");
    }
}
