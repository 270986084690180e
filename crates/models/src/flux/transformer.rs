//! The whole network: embeddings, double blocks, single blocks, final layer.

use burn::tensor::Tensor;
use overglaze_core::{LayerTree, NameTable, PatchedLayer, PatchedLinear};

use crate::{
    ModelError,
    flux::{
        BlockKind, BlockOutput, FluxConfig, FluxInputs, Naming,
        double_block::DoubleBlock,
        embedding::Conditioner,
        layers::{Layers, Named, visit_fields},
        modulation::Modulation,
        rope::{Rotary, RotaryCache},
        single_block::SingleBlock,
    },
};

/// A FLUX.1 transformer whose layers can be patched.
///
/// Clones share weights and own their patches.
#[derive(Clone, Debug)]
pub struct FluxTransformer {
    config: FluxConfig,
    names: NameTable,
    parts: Parts,
    rotary: RotaryCache,
}

/// The layers, in execution order.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) conditioner: Conditioner,
    pub(crate) image_in: Named<PatchedLinear>,
    pub(crate) text_in: Named<PatchedLinear>,
    pub(crate) doubles: Vec<DoubleBlock>,
    pub(crate) singles: Vec<SingleBlock>,
    pub(crate) last: FinalLayer,
}

visit_fields!(Parts {
    conditioner,
    image_in,
    text_in,
    doubles,
    singles,
    last
});

/// Called with what each block computed.
type Observer<'a> = Option<&'a mut dyn FnMut(BlockOutput)>;

impl FluxTransformer {
    pub(crate) fn new(config: FluxConfig, names: NameTable, parts: Parts) -> Self {
        Self {
            config,
            names,
            parts,
            rotary: RotaryCache::default(),
        }
    }

    /// The geometry.
    #[must_use]
    pub fn config(&self) -> &FluxConfig {
        &self.config
    }

    /// Channels of the image tokens that a forward pass asks for: those of the configuration, or as many as the
    /// widest control patch reads.
    #[must_use]
    pub fn in_channels(&self) -> usize {
        self.parts.image_in.layer.d_input()
    }

    /// The velocity `[batch, tokens, out_channels]` at the inputs, in f32 on the device of
    /// `hidden_states`.
    ///
    /// # Errors
    /// [`ModelError::InputShape`], [`ModelError::InputValue`], [`ModelError::GuidanceMissing`] or
    /// [`ModelError::GuidanceUnused`] for inputs that do not fit; [`ModelError::Layer`] when a layer
    /// cannot be loaded or a patch cannot be applied.
    pub fn forward(&self, inputs: FluxInputs) -> Result<Tensor<3>, ModelError> {
        self.run(inputs.checked(&self.config, self.in_channels())?, None)
    }

    /// As [`forward`](Self::forward), handing every block's output to `observer`.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_observed(
        &self,
        inputs: FluxInputs,
        observer: &mut dyn FnMut(BlockOutput),
    ) -> Result<Tensor<3>, ModelError> {
        self.run(
            inputs.checked(&self.config, self.in_channels())?,
            Some(observer),
        )
    }

    fn run(&self, inputs: FluxInputs, mut observer: Observer<'_>) -> Result<Tensor<3>, ModelError> {
        let rotary = self.rotary(&inputs);
        let conditioning = self.parts.conditioner.forward(&inputs)?;
        let img = self
            .parts
            .image_in
            .layer
            .try_forward(inputs.hidden_states)?;
        let txt = self
            .parts
            .text_in
            .layer
            .try_forward(inputs.encoder_hidden_states)?;
        let mut streams = [img, txt];
        for (index, block) in self.parts.doubles.iter().enumerate() {
            streams = block.forward(streams, &conditioning, &rotary)?;
            if let Some(observer) = &mut observer {
                let [img, txt] = streams.clone();
                observer(BlockOutput {
                    kind: BlockKind::Double,
                    index,
                    img,
                    txt,
                });
            }
        }
        let img = self.run_singles(streams, &conditioning, &rotary, observer)?;
        self.parts.last.forward(img, &conditioning)
    }

    /// The image stream after the single blocks.
    fn run_singles(
        &self,
        [img, txt]: [Tensor<3>; 2],
        conditioning: &Tensor<2>,
        rotary: &Rotary,
        mut observer: Observer<'_>,
    ) -> Result<Tensor<3>, ModelError> {
        let ([_, image_tokens, _], [_, text_tokens, _]) = (img.dims(), txt.dims());
        let mut stream = Tensor::cat(vec![txt, img], 1);
        for (index, block) in self.parts.singles.iter().enumerate() {
            stream = block.forward(stream, conditioning, rotary)?;
            if let Some(observer) = &mut observer {
                let img = stream.clone().narrow(1, text_tokens, image_tokens);
                let txt = stream.clone().narrow(1, 0, text_tokens);
                observer(BlockOutput {
                    kind: BlockKind::Single,
                    index,
                    img,
                    txt,
                });
            }
        }
        Ok(stream.narrow(1, text_tokens, image_tokens))
    }

    fn rotary(&self, inputs: &FluxInputs) -> Rotary {
        let ids = [inputs.txt_ids.clone(), inputs.img_ids.clone()];
        self.rotary.rotary(
            ids,
            &self.config.axes_dims_rope,
            &inputs.hidden_states.device(),
        )
    }
}

impl LayerTree for FluxTransformer {
    fn visit_layers(&self, visitor: &mut dyn FnMut(&str, &dyn PatchedLayer)) {
        self.parts.visit(visitor);
    }

    fn visit_layers_mut(&mut self, visitor: &mut dyn FnMut(&str, &mut dyn PatchedLayer)) {
        self.parts.visit_mut(visitor);
    }

    fn names(&self) -> &NameTable {
        &self.names
    }
}

/// `W·(LN(x)·(1 + scale) + shift)`: the way out of the stream.
#[derive(Clone, Debug)]
pub(crate) struct FinalLayer {
    pub(crate) modulation: Modulation,
    pub(crate) linear: Named<PatchedLinear>,
    /// diffusers stores (scale, shift), BFL (shift, scale).
    pub(crate) naming: Naming,
}

visit_fields!(FinalLayer { modulation, linear });

impl FinalLayer {
    fn forward(&self, img: Tensor<3>, conditioning: &Tensor<2>) -> Result<Tensor<3>, ModelError> {
        let [first, second] = self.modulation.vectors(conditioning)?;
        let (shift, scale) = match self.naming {
            Naming::Diffusers => (second, first),
            Naming::Bfl => (first, second),
        };
        let input = self.modulation.norm.modulated(img, shift, scale);
        Ok(self.linear.layer.try_forward(input)?)
    }
}
