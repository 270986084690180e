//! The layers of any checkpoint: shapes, tensors, and every name an adapter may call them by.
//!
//! The denoiser's layers are called by their paths below the prefix it lies under; every other layer (text
//! encoders, autoencoder) by its whole path.

use std::collections::BTreeMap;

use overglaze_core::{Error, Fitted, LayerLimits, LayerShapes, NameTable, Piece, fit_shapes};
use overglaze_patches::{LayerShape, PatchSet};

use crate::{ModelError, TensorShapes};

use super::{
    Alias, FAMILIES, Family, Layers, Part,
    operators::{layer_of, layer_shape},
};

/// The layers of a checkpoint, as far as its tensors' names and shapes tell; nothing is loaded.
#[derive(Clone, Debug, Default)]
pub struct LayerCatalog {
    names: NameTable,
    layers: BTreeMap<String, CatalogLayer>,
    networks: Vec<Network>,
}

/// A layer of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogLayer {
    /// Name of the tensor that holds the weight, as the checkpoint spells it.
    pub weight: String,
    /// Name of the tensor that holds the bias, where there is one.
    pub bias: Option<String>,
    /// Operator and logical shape.
    pub shape: LayerShape,
}

/// A network of a known family in a checkpoint.
#[derive(Clone, Debug)]
struct Network {
    family: &'static Family,
    prefix: String,
}

impl LayerCatalog {
    /// The layers behind `tensors`.
    ///
    /// # Errors
    /// [`ModelError::Layer`] when two layers cannot be told apart by their names with underscores for dots.
    pub fn new(tensors: &TensorShapes) -> Result<Self, ModelError> {
        let mut catalog = Self {
            networks: networks(tensors),
            ..Self::default()
        };
        let prefix = catalog.denoiser().map(|network| network.prefix.clone());
        let prefix = prefix.unwrap_or_default();
        for tensor in tensors.names() {
            if let Some((path, layer)) = catalog_layer(tensors, tensor) {
                let path = path.strip_prefix(&prefix).unwrap_or(path).to_owned();
                catalog.layers.insert(path, layer);
            }
        }
        catalog.open_inputs();
        for (path, layer) in &catalog.layers {
            catalog.names.add_layer(path, layer.shape.d_output())?;
        }
        for network in catalog.networks.clone() {
            catalog.add_aliases(&network, &prefix);
        }
        Ok(catalog)
    }

    /// Every name of the layers.
    #[must_use]
    pub fn names(&self) -> &NameTable {
        &self.names
    }

    /// The layers by their own path.
    #[must_use]
    pub fn layers(&self) -> &BTreeMap<String, CatalogLayer> {
        &self.layers
    }

    /// Operator and shape of a layer.
    #[must_use]
    pub fn shape(&self, path: &str) -> Option<&LayerShape> {
        self.layers.get(path).map(|layer| &layer.shape)
    }

    /// The patch of every layer that `set` has one for, and what became of every key.
    ///
    /// # Errors
    /// As [`fit_shapes`].
    pub fn fit(&self, set: &PatchSet) -> Result<Fitted, Error> {
        let layers = LayerShapes {
            names: &self.names,
            shape: &|path| self.shape(path).cloned(),
            limits: &|_| LayerLimits::default(),
        };
        fit_shapes(layers, set)
    }

    /// Names of the families found.
    #[must_use]
    pub fn families(&self) -> Vec<&'static str> {
        self.networks
            .iter()
            .map(|network| network.family.name)
            .collect()
    }

    /// What GGUF files call the network, the denoiser where there are several.
    #[must_use]
    pub fn architecture(&self) -> Option<&'static str> {
        let network = self.denoiser().or(self.networks.first())?;
        Some(network.family.architecture)
    }

    fn denoiser(&self) -> Option<&Network> {
        self.networks
            .iter()
            .find(|network| network.family.part == Part::Denoiser)
    }

    fn open_inputs(&mut self) {
        let Some(open) = self.denoiser().map(|network| network.family.open_inputs) else {
            return;
        };
        for path in open {
            if let Some(layer) = self.layers.get_mut(*path) {
                layer.shape = layer.shape.clone().with_open_input();
            }
        }
    }

    /// Adds the names `network` has beside its own. A name that could stand for two layers is left out.
    fn add_aliases(&mut self, network: &Network, denoiser: &str) {
        let own = match network.family.part {
            Part::Denoiser if network.prefix == denoiser => "",
            _ => &network.prefix,
        };
        let below = self.layers.iter().filter_map(|(path, layer)| {
            Some((path.strip_prefix(own)?.to_owned(), layer.shape.clone()))
        });
        let layers: Layers = below.collect();
        for Alias { name, pieces } in (network.family.aliases)(&layers) {
            let placed = pieces.into_iter().map(|piece| Piece {
                layer: format!("{own}{}", piece.layer),
                ..piece
            });
            drop(self.names.add_alias(&name, placed.collect()));
        }
    }
}

fn catalog_layer<'a>(tensors: &TensorShapes, tensor: &'a str) -> Option<(&'a str, CatalogLayer)> {
    let (path, bias) = layer_of(tensor)?;
    let shape = layer_shape(path, tensor, tensors.shape(tensor).ok()?)?;
    let layer = CatalogLayer {
        weight: tensor.into(),
        bias: tensors.contains(&bias).then_some(bias),
        shape,
    };
    Some((path, layer))
}

/// The networks of known families, each prefix once; a family's first marker may lie below any prefix.
fn networks(tensors: &TensorShapes) -> Vec<Network> {
    let mut networks: Vec<Network> = Vec::new();
    for family in FAMILIES {
        for prefix in prefixes(family, tensors) {
            if networks.iter().all(|known| known.prefix != prefix) {
                networks.push(Network {
                    family,
                    prefix: prefix.into(),
                });
            }
        }
    }
    networks
}

/// Where `family`'s markers lie.
fn prefixes<'a>(family: &'static Family, tensors: &'a TensorShapes) -> Vec<&'a str> {
    let mut prefixes = Vec::new();
    for markers in family.markers {
        let Some((first, others)) = markers.split_first() else {
            continue;
        };
        let found = tensors.names().filter_map(|name| {
            let prefix = name.strip_suffix(first)?;
            let is_whole = prefix.is_empty() || prefix.ends_with('.');
            let has = |marker: &&str| tensors.contains(&format!("{prefix}{marker}"));
            (is_whole && others.iter().all(has)).then_some(prefix)
        });
        prefixes.extend(found);
    }
    prefixes
}
