//! The geometry that a checkpoint's tensors tell, checked against the document beside them.
//!
//! Every field but the rotary axes follows from names and shapes. Where a document gives a field
//! too, the two must agree.

use crate::{
    ModelError,
    checkpoint::TensorShapes,
    flux::{FluxConfig, FluxConfigFile, Naming},
};

impl FluxConfig {
    /// The geometry of the transformer whose tensors these are, in the given naming.
    ///
    /// `file` is the model's `config.json`; without one the rotary axes are FLUX.1's (16, 56, 56)
    /// where the head width is theirs.
    ///
    /// # Errors
    /// [`ModelError::MissingTensor`], [`ModelError::TensorShape`], [`ModelError::ConfigMismatch`],
    /// [`ModelError::InvalidConfig`] or [`ModelError::NeedsConfig`].
    pub fn infer(
        tensors: &TensorShapes,
        naming: Naming,
        file: Option<&FluxConfigFile>,
    ) -> Result<Self, ModelError> {
        if let Some(file) = file {
            file.check_network()?;
        }
        let names = Names::of(naming);
        let mut config = measure(tensors, &names)?;
        if let Some(file) = file {
            agree(&config, file, &names, names.query_norm(tensors))?;
        }
        config.axes_dims_rope =
            axes(config.attention_head_dim, file).ok_or_else(|| ModelError::NeedsConfig {
                file: tensors.file().to_owned(),
                head_dim: config.attention_head_dim,
            })?;
        config.check()?;
        Ok(config)
    }
}

/// The tensors that tell the geometry.
struct Names {
    image_in: &'static str,
    text_in: &'static str,
    pooled_in: &'static str,
    guidance_in: &'static str,
    out: &'static str,
    double: &'static str,
    single: &'static str,
    double_norm: &'static str,
    single_norm: &'static str,
}

impl Names {
    fn of(naming: Naming) -> Self {
        match naming {
            Naming::Diffusers => Self {
                image_in: "x_embedder.weight",
                text_in: "context_embedder.weight",
                pooled_in: "time_text_embed.text_embedder.linear_1.weight",
                guidance_in: "time_text_embed.guidance_embedder.linear_1.weight",
                out: "proj_out.weight",
                double: "transformer_blocks.",
                single: "single_transformer_blocks.",
                double_norm: "transformer_blocks.0.attn.norm_q.weight",
                single_norm: "single_transformer_blocks.0.attn.norm_q.weight",
            },
            Naming::Bfl => Self {
                image_in: "img_in.weight",
                text_in: "txt_in.weight",
                pooled_in: "vector_in.in_layer.weight",
                guidance_in: "guidance_in.in_layer.weight",
                out: "final_layer.linear.weight",
                double: "double_blocks.",
                single: "single_blocks.",
                double_norm: "double_blocks.0.img_attn.norm.query_norm.scale",
                single_norm: "single_blocks.0.norm.query_norm.scale",
            },
        }
    }

    /// The query norm, whose length is the head's width.
    fn query_norm(&self, tensors: &TensorShapes) -> &'static str {
        if tensors.contains(self.double_norm) {
            self.double_norm
        } else {
            self.single_norm
        }
    }
}

/// All that the tensors tell; the rotary axes are still open.
fn measure(tensors: &TensorShapes, names: &Names) -> Result<FluxConfig, ModelError> {
    let [inner_dim, in_channels] = tensors.matrix(names.image_in)?;
    let head_dim = vector_len(tensors, names.query_norm(tensors))?;
    Ok(FluxConfig {
        in_channels,
        out_channels: tensors.matrix(names.out)?[0],
        num_layers: num_blocks(tensors, names.double),
        num_single_layers: num_blocks(tensors, names.single),
        attention_head_dim: head_dim,
        num_attention_heads: heads(tensors, names, [inner_dim, in_channels], head_dim)?,
        joint_attention_dim: tensors.matrix(names.text_in)?[1],
        pooled_projection_dim: tensors.matrix(names.pooled_in)?[1],
        guidance_embeds: tensors.contains(names.guidance_in),
        axes_dims_rope: Vec::new(),
    })
}

/// One more than the highest index below `prefix`; a gap shows up as a missing tensor later.
fn num_blocks(tensors: &TensorShapes, prefix: &str) -> usize {
    tensors
        .names()
        .filter_map(|name| {
            name.strip_prefix(prefix)?
                .split('.')
                .next()?
                .parse::<usize>()
                .ok()
        })
        .max()
        .map_or(0, |last| last.saturating_add(1))
}

fn vector_len(tensors: &TensorShapes, tensor: &str) -> Result<usize, ModelError> {
    match tensors.shape(tensor)? {
        &[len] if len > 0 => Ok(len),
        found => {
            let expected = "a vector as long as one attention head is wide";
            Err(tensors.wrong_shape(tensor, found, expected.to_owned()))
        }
    }
}

fn heads(
    tensors: &TensorShapes,
    names: &Names,
    image_in: [usize; 2],
    head_dim: usize,
) -> Result<usize, ModelError> {
    let [inner_dim, _] = image_in;
    if inner_dim == 0 || !inner_dim.is_multiple_of(head_dim) {
        let expected = format!("a number of rows that is a multiple of the head width {head_dim}");
        return Err(tensors.wrong_shape(names.image_in, &image_in, expected));
    }
    Ok(inner_dim / head_dim)
}

/// The rotary axes: the document's, or FLUX.1's where the head is as wide as theirs.
fn axes(head_dim: usize, file: Option<&FluxConfigFile>) -> Option<Vec<usize>> {
    let stated = file.and_then(|file| file.axes_dims_rope.clone());
    let is_flux1 = head_dim == FLUX1_AXES.iter().sum::<usize>();
    stated.or_else(|| is_flux1.then(|| FLUX1_AXES.to_vec()))
}

/// Compares the fields that the document gives with what the tensors tell.
fn agree(
    config: &FluxConfig,
    file: &FluxConfigFile,
    names: &Names,
    query_norm: &str,
) -> Result<(), ModelError> {
    macro_rules! same {
        ($field:ident, $tensor:expr) => {
            same(stringify!($field), file.$field, &config.$field, $tensor)?
        };
    }
    same!(in_channels, names.image_in);
    same!(out_channels, names.out);
    same!(num_layers, names.double);
    same!(num_single_layers, names.single);
    same!(attention_head_dim, query_norm);
    same!(num_attention_heads, names.image_in);
    same!(joint_attention_dim, names.text_in);
    same!(pooled_projection_dim, names.pooled_in);
    same!(guidance_embeds, names.guidance_in);
    Ok(())
}

fn same<T: PartialEq + ToString>(
    field: &'static str,
    given: Option<T>,
    measured: &T,
    tensor: &str,
) -> Result<(), ModelError> {
    match given.filter(|given| given != measured) {
        None => Ok(()),
        Some(given) => Err(ModelError::ConfigMismatch {
            field,
            config: given.to_string(),
            tensors: measured.to_string(),
            tensor: tensor.to_owned(),
        }),
    }
}

/// Rotary axes of FLUX.1.
const FLUX1_AXES: [usize; 3] = [16, 56, 56];
