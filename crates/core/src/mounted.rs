//! What is mounted on a model: adapters, their strengths by layer, and the bytes they take.

use std::collections::BTreeMap;

use burn::tensor::Device;

use crate::{LayerTree, MountedPatch};

/// One adapter that is mounted.
#[derive(Clone, Debug)]
pub struct MountedAdapter {
    /// Its name.
    pub name: String,
    /// Its strength.
    pub strength: MountedStrength,
    /// Paths of its layers.
    pub layers: Vec<String>,
    /// Those of its layers that it is merged into; on the others it is a sidecar.
    pub direct_layers: Vec<String>,
    /// Where its tensors are.
    pub footprint: Footprint,
}

/// How strongly an adapter is mounted.
#[derive(Clone, Debug, PartialEq)]
pub enum MountedStrength {
    /// The same on every layer.
    Uniform(f32),
    /// By layer path.
    PerLayer(BTreeMap<String, f32>),
}

/// Where a mounted adapter's tensors are, and what is kept because of them.
#[derive(Clone, Debug, Default)]
pub struct Footprint {
    /// Bytes as loaded from the file.
    pub loaded_bytes: usize,
    /// Copies on execution devices: device and bytes. Where the file's tensors are in f32 on that device
    /// already, the copy shares them.
    pub copies: Vec<(Device, usize)>,
    /// Bytes of the summed residuals that its layers keep for the next forward pass. A layer keeps one for all
    /// of its sidecars, so adapters that share layers report the same bytes.
    pub cached_bytes: usize,
}

/// Every mounted adapter, by name.
#[must_use]
pub fn mounted(tree: &impl LayerTree) -> Vec<MountedAdapter> {
    let mut adapters: BTreeMap<String, Summary> = BTreeMap::new();
    tree.visit_layers(&mut |path, layer| {
        let stack = layer.patches();
        for patch in stack.iter() {
            let summary = adapters.entry(patch.adapter().into()).or_default();
            summary.add(path, patch);
            if !patch.is_direct() {
                summary.footprint.cached_bytes += stack.cache.num_bytes();
            }
        }
    });
    adapters.into_iter().map(Summary::finished).collect()
}

#[derive(Default)]
struct Summary {
    strengths: Vec<(String, f32)>,
    direct_layers: Vec<String>,
    footprint: Footprint,
}

impl Summary {
    fn add(&mut self, path: &str, patch: &MountedPatch) {
        self.strengths.push((path.into(), patch.strength()));
        if patch.is_direct() {
            self.direct_layers.push(path.into());
        }
        self.footprint.add(patch);
    }

    fn finished((name, summary): (String, Self)) -> MountedAdapter {
        let layers = summary.strengths.iter().map(|(path, _)| path.clone());
        MountedAdapter {
            name,
            layers: layers.collect(),
            strength: MountedStrength::of(summary.strengths),
            direct_layers: summary.direct_layers,
            footprint: summary.footprint,
        }
    }
}

impl MountedStrength {
    fn of(strengths: Vec<(String, f32)>) -> Self {
        let first = strengths.first().map_or(0.0, |(_, strength)| *strength);
        if strengths.iter().all(|(_, strength)| *strength == first) {
            return Self::Uniform(first);
        }
        Self::PerLayer(strengths.into_iter().collect())
    }
}

impl Footprint {
    fn add(&mut self, patch: &MountedPatch) {
        self.loaded_bytes += patch.patch().num_bytes();
        for (device, bytes) in patch.copies() {
            match self.copies.iter_mut().find(|(known, _)| *known == device) {
                Some((_, sum)) => *sum += bytes,
                None => self.copies.push((device, bytes)),
            }
        }
    }
}
