//! Builds the network's parts over a weight source, in the order they run.

use std::sync::Arc;

use overglaze_core::{BaseWeights, LayerLoader, LoaderConfig, PatchedLinear, PatchedRmsNorm};
use overglaze_stream::WeightSource;

use crate::{
    ModelError,
    checkpoint::TensorShapes,
    flux::{
        Naming,
        attention::HeadNorms,
        double_block::{DoubleBlock, StreamEntry, StreamExit},
        embedding::{Conditioner, Embedder},
        layers::Named,
        map::{DoubleMap, EmbedderMap, FluxMap, LinearMap, NormMap, SingleMap, StreamMap},
        modulation::Modulation,
        projection::Projection,
        single_block::SingleBlock,
        transformer::{FinalLayer, Parts},
        unit_norm::UnitNorm,
    },
};

/// Reads layers in the naming of the checkpoint.
#[derive(Debug)]
pub(crate) struct FluxLoader {
    loader: LayerLoader,
    tensors: TensorShapes,
    naming: Naming,
    /// The one norm that every modulation shares.
    norm: UnitNorm,
}

impl FluxLoader {
    pub(crate) fn new(
        source: Arc<dyn WeightSource>,
        config: LoaderConfig,
        tensors: TensorShapes,
        (naming, inner_dim): (Naming, usize),
    ) -> Self {
        let norm = UnitNorm::new(inner_dim, &config.device);
        Self {
            loader: LayerLoader::new(source, config),
            tensors,
            naming,
            norm,
        }
    }

    /// Every part of the network, read in the order in which it runs.
    pub(crate) fn parts(&mut self, map: &FluxMap) -> Result<Parts, ModelError> {
        Ok(Parts {
            conditioner: Conditioner {
                time: self.embedder(&map.time)?,
                guidance: map
                    .guidance
                    .as_ref()
                    .map(|map| self.embedder(map))
                    .transpose()?,
                pooled: self.embedder(&map.pooled)?,
            },
            image_in: self.open_linear(&map.image_in)?,
            text_in: self.linear(&map.text_in)?,
            doubles: map
                .doubles
                .iter()
                .map(|map| self.double(map))
                .collect::<Result<_, _>>()?,
            singles: map
                .singles
                .iter()
                .map(|map| self.single(map))
                .collect::<Result<_, _>>()?,
            last: FinalLayer {
                modulation: self.modulation(&map.final_modulation)?,
                linear: self.linear(&map.final_linear)?,
                naming: self.naming,
            },
        })
    }

    /// Starts streaming.
    pub(crate) fn finish(self) -> Result<BaseWeights, ModelError> {
        Ok(self.loader.finish()?)
    }

    fn embedder(&mut self, [first, second]: &EmbedderMap) -> Result<Embedder, ModelError> {
        Ok(Embedder {
            first: self.linear(first)?,
            second: self.linear(second)?,
        })
    }

    fn double(&mut self, map: &DoubleMap) -> Result<DoubleBlock, ModelError> {
        Ok(DoubleBlock {
            img_entry: self.entry(&map.img)?,
            txt_entry: self.entry(&map.txt)?,
            img_exit: self.exit(&map.img)?,
            txt_exit: self.exit(&map.txt)?,
        })
    }

    fn entry(&mut self, map: &StreamMap) -> Result<StreamEntry, ModelError> {
        Ok(StreamEntry {
            modulation: self.modulation(&map.modulation)?,
            qkv: self.projection(&map.qkv)?,
            norms: self.norms(&map.query_norm, &map.key_norm)?,
        })
    }

    fn exit(&mut self, map: &StreamMap) -> Result<StreamExit, ModelError> {
        Ok(StreamExit {
            proj: self.linear(&map.proj)?,
            mlp_in: self.linear(&map.mlp_in)?,
            mlp_out: self.linear(&map.mlp_out)?,
        })
    }

    fn single(&mut self, map: &SingleMap) -> Result<SingleBlock, ModelError> {
        Ok(SingleBlock {
            modulation: self.modulation(&map.modulation)?,
            qkv_mlp: self.projection(&map.qkv_mlp)?,
            norms: self.norms(&map.query_norm, &map.key_norm)?,
            out: self.linear(&map.out)?,
        })
    }

    fn modulation(&mut self, map: &LinearMap) -> Result<Modulation, ModelError> {
        Ok(Modulation {
            linear: self.linear(map)?,
            norm: self.norm.clone(),
        })
    }

    fn norms(&mut self, query: &NormMap, key: &NormMap) -> Result<HeadNorms, ModelError> {
        let head_dim = query.width;
        Ok(HeadNorms {
            head_dim,
            query: self.rms_norm(query)?,
            key: self.rms_norm(key)?,
        })
    }

    /// A layer that is one layer in both namings.
    fn linear(&mut self, map: &LinearMap) -> Result<Named<PatchedLinear>, ModelError> {
        let path = match self.naming {
            Naming::Diffusers => &map.parts[0].path,
            Naming::Bfl => &map.bfl,
        };
        self.sized_linear(path, [map.rows(), map.d_input])
    }

    /// The same, over what the caller gives: a control patch may read more channels than the base.
    fn open_linear(&mut self, map: &LinearMap) -> Result<Named<PatchedLinear>, ModelError> {
        let Named { path, layer } = self.linear(map)?;
        let layer = layer.with_open_input();
        Ok(Named { path, layer })
    }

    /// A layer that BFL stacks and diffusers does not.
    fn projection(&mut self, map: &LinearMap) -> Result<Projection, ModelError> {
        match self.naming {
            Naming::Diffusers => map
                .parts
                .iter()
                .map(|part| self.sized_linear(&part.path, [part.rows, map.d_input]))
                .collect::<Result<_, _>>()
                .map(Projection::Split),
            Naming::Bfl => Ok(Projection::Fused {
                linear: Box::new(self.sized_linear(&map.bfl, [map.rows(), map.d_input])?),
                widths: map.parts.iter().map(|part| part.rows).collect(),
            }),
        }
    }

    fn sized_linear(
        &mut self,
        path: &str,
        shape: [usize; 2],
    ) -> Result<Named<PatchedLinear>, ModelError> {
        let layer = self.loader.linear(path)?;
        let found = [layer.d_output(), layer.d_input()];
        if found != shape {
            let tensor = format!("{path}.weight");
            return Err(self
                .tensors
                .wrong_shape(&tensor, &found, format!("{shape:?}")));
        }
        Ok(Named {
            path: path.to_owned(),
            layer,
        })
    }

    fn rms_norm(&mut self, map: &NormMap) -> Result<Named<PatchedRmsNorm>, ModelError> {
        let tensor = map.tensor(self.naming);
        let found = self.tensors.shape(&tensor)?;
        if found != [map.width] {
            return Err(self
                .tensors
                .wrong_shape(&tensor, found, format!("[{}]", map.width)));
        }
        let layer = self.loader.rms_norm(&tensor, RMS_NORM_EPS)?;
        Ok(Named {
            path: map.path(self.naming).to_owned(),
            layer,
        })
    }
}

const RMS_NORM_EPS: f64 = 1e-6;
