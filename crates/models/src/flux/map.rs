//! The map between the two namings: every layer of the network once, with its name, rows and
//! columns in both.
//!
//! BFL stacks what diffusers keeps apart: `qkv` is the rows of q, k, v; a single block's `linear1`
//! those of q, k, v and the MLP. The final modulation holds (shift, scale) in BFL and
//! (scale, shift) in diffusers. Origin: diffusers `convert_flux_transformer_checkpoint_to_diffusers`.

use crate::flux::{FluxConfig, Naming};

/// A linear layer in both namings; weights are `[rows, d_input]`.
#[derive(Clone, Debug)]
pub(crate) struct LinearMap {
    pub(crate) bfl: String,
    /// diffusers' layers, in the order in which BFL stacks their rows.
    pub(crate) parts: Vec<Part>,
    pub(crate) d_input: usize,
    pub(crate) arrangement: Arrangement,
}

/// One of the diffusers layers behind a BFL layer.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) path: String,
    pub(crate) rows: usize,
}

/// How the rows of the two namings correspond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrangement {
    /// Part after part, in order.
    Stacked,
    /// The only part's two halves are swapped.
    HalvesSwapped,
}

/// A query or key norm in both namings.
#[derive(Clone, Debug)]
pub(crate) struct NormMap {
    pub(crate) bfl: String,
    pub(crate) diffusers: String,
    pub(crate) width: usize,
}

/// A two-layer perceptron of the conditioning.
pub(crate) type EmbedderMap = [LinearMap; 2];

/// One stream (image or text) of a double block.
#[derive(Clone, Debug)]
pub(crate) struct StreamMap {
    pub(crate) modulation: LinearMap,
    pub(crate) qkv: LinearMap,
    pub(crate) query_norm: NormMap,
    pub(crate) key_norm: NormMap,
    pub(crate) proj: LinearMap,
    pub(crate) mlp_in: LinearMap,
    pub(crate) mlp_out: LinearMap,
}

/// A double block.
#[derive(Clone, Debug)]
pub(crate) struct DoubleMap {
    pub(crate) img: StreamMap,
    pub(crate) txt: StreamMap,
}

/// A single block.
#[derive(Clone, Debug)]
pub(crate) struct SingleMap {
    pub(crate) modulation: LinearMap,
    pub(crate) qkv_mlp: LinearMap,
    pub(crate) query_norm: NormMap,
    pub(crate) key_norm: NormMap,
    pub(crate) out: LinearMap,
}

/// The whole network.
#[derive(Clone, Debug)]
pub(crate) struct FluxMap {
    pub(crate) time: EmbedderMap,
    pub(crate) guidance: Option<EmbedderMap>,
    pub(crate) pooled: EmbedderMap,
    pub(crate) image_in: LinearMap,
    pub(crate) text_in: LinearMap,
    pub(crate) doubles: Vec<DoubleMap>,
    pub(crate) singles: Vec<SingleMap>,
    pub(crate) final_modulation: LinearMap,
    pub(crate) final_linear: LinearMap,
}

impl FluxMap {
    pub(crate) fn new(config: &FluxConfig) -> Self {
        let inner = config.inner_dim();
        let pooled_width = config.pooled_projection_dim;
        let modulation = one(
            "final_layer.adaLN_modulation.1",
            "norm_out.linear",
            [2 * inner, inner],
        );
        Self {
            time: embedder("time_in", "timestep_embedder", [inner, TIME_WIDTH]),
            guidance: config
                .guidance_embeds
                .then(|| embedder("guidance_in", "guidance_embedder", [inner, TIME_WIDTH])),
            pooled: embedder("vector_in", "text_embedder", [inner, pooled_width]),
            image_in: one("img_in", "x_embedder", [inner, config.in_channels]),
            text_in: one(
                "txt_in",
                "context_embedder",
                [inner, config.joint_attention_dim],
            ),
            doubles: (0..config.num_layers)
                .map(|index| DoubleMap::new(config, index))
                .collect(),
            singles: (0..config.num_single_layers)
                .map(|index| SingleMap::new(config, index))
                .collect(),
            final_modulation: LinearMap {
                arrangement: Arrangement::HalvesSwapped,
                ..modulation
            },
            final_linear: one(
                "final_layer.linear",
                "proj_out",
                [config.out_channels, inner],
            ),
        }
    }

    /// Every linear layer.
    pub(crate) fn linears(&self) -> impl Iterator<Item = &LinearMap> {
        let embedders = self
            .time
            .iter()
            .chain(self.guidance.iter().flatten())
            .chain(&self.pooled);
        let doubles = self
            .doubles
            .iter()
            .flat_map(|block| [&block.img, &block.txt]);
        embedders
            .chain([&self.image_in, &self.text_in])
            .chain(doubles.flat_map(StreamMap::linears))
            .chain(self.singles.iter().flat_map(SingleMap::linears))
            .chain([&self.final_modulation, &self.final_linear])
    }

    /// Every query and key norm.
    pub(crate) fn norms(&self) -> impl Iterator<Item = &NormMap> {
        let doubles = self
            .doubles
            .iter()
            .flat_map(|block| [&block.img, &block.txt]);
        doubles
            .flat_map(|stream| [&stream.query_norm, &stream.key_norm])
            .chain(
                self.singles
                    .iter()
                    .flat_map(|block| [&block.query_norm, &block.key_norm]),
            )
    }
}

impl DoubleMap {
    fn new(config: &FluxConfig, index: usize) -> Self {
        let stream = |names: &StreamNames| StreamMap::new(config, index, names);
        Self {
            img: stream(&IMAGE),
            txt: stream(&TEXT),
        }
    }
}

impl StreamMap {
    fn new(config: &FluxConfig, index: usize, names: &StreamNames) -> Self {
        let (inner, mlp, head) = (
            config.inner_dim(),
            config.mlp_dim(),
            config.attention_head_dim,
        );
        let bfl = |suffix: &str| format!("double_blocks.{index}.{}_{suffix}", names.bfl);
        let diffusers = |path: &str| format!("transformer_blocks.{index}.{path}");
        let layer = |suffix: &str, path: &str, shape| one(&bfl(suffix), &diffusers(path), shape);
        let norm = |suffix: &str, path: &str| NormMap {
            bfl: bfl(suffix),
            diffusers: diffusers(path),
            width: head,
        };
        let feed_forward = |path: &str| format!("{}.net.{path}", names.feed_forward);
        Self {
            modulation: layer("mod.lin", names.modulation, [6 * inner, inner]),
            qkv: LinearMap {
                bfl: bfl("attn.qkv"),
                parts: names.qkv.map(|path| part(&diffusers(path), inner)).to_vec(),
                d_input: inner,
                arrangement: Arrangement::Stacked,
            },
            query_norm: norm("attn.norm.query_norm", names.query_norm),
            key_norm: norm("attn.norm.key_norm", names.key_norm),
            proj: layer("attn.proj", names.proj, [inner, inner]),
            mlp_in: layer("mlp.0", &feed_forward("0.proj"), [mlp, inner]),
            mlp_out: layer("mlp.2", &feed_forward("2"), [inner, mlp]),
        }
    }

    fn linears(&self) -> [&LinearMap; 5] {
        [
            &self.modulation,
            &self.qkv,
            &self.proj,
            &self.mlp_in,
            &self.mlp_out,
        ]
    }
}

impl SingleMap {
    fn new(config: &FluxConfig, index: usize) -> Self {
        let (inner, mlp) = (config.inner_dim(), config.mlp_dim());
        let bfl = |suffix: &str| format!("single_blocks.{index}.{suffix}");
        let diffusers = |path: &str| format!("single_transformer_blocks.{index}.{path}");
        let norm = |name: &str, path: &str| NormMap {
            bfl: bfl(name),
            diffusers: diffusers(path),
            width: config.attention_head_dim,
        };
        let parts = [
            ("attn.to_q", inner),
            ("attn.to_k", inner),
            ("attn.to_v", inner),
            ("proj_mlp", mlp),
        ];
        Self {
            modulation: one(
                &bfl("modulation.lin"),
                &diffusers("norm.linear"),
                [3 * inner, inner],
            ),
            qkv_mlp: LinearMap {
                bfl: bfl("linear1"),
                parts: parts
                    .map(|(path, rows)| part(&diffusers(path), rows))
                    .to_vec(),
                d_input: inner,
                arrangement: Arrangement::Stacked,
            },
            query_norm: norm("norm.query_norm", "attn.norm_q"),
            key_norm: norm("norm.key_norm", "attn.norm_k"),
            out: one(
                &bfl("linear2"),
                &diffusers("proj_out"),
                [inner, inner + mlp],
            ),
        }
    }

    fn linears(&self) -> [&LinearMap; 3] {
        [&self.modulation, &self.qkv_mlp, &self.out]
    }
}

impl LinearMap {
    /// Rows of the whole layer.
    pub(crate) fn rows(&self) -> usize {
        self.parts.iter().map(|part| part.rows).sum()
    }
}

impl NormMap {
    /// Path of the norm in a checkpoint.
    pub(crate) fn path(&self, naming: Naming) -> &str {
        match naming {
            Naming::Diffusers => &self.diffusers,
            Naming::Bfl => &self.bfl,
        }
    }

    /// Name of the norm's weight in a checkpoint.
    pub(crate) fn tensor(&self, naming: Naming) -> String {
        let weight = match naming {
            Naming::Diffusers => "weight",
            Naming::Bfl => "scale",
        };
        format!("{}.{weight}", self.path(naming))
    }
}

fn embedder(bfl: &str, diffusers: &str, [rows, d_input]: [usize; 2]) -> EmbedderMap {
    let diffusers = format!("time_text_embed.{diffusers}");
    [
        one(
            &format!("{bfl}.in_layer"),
            &format!("{diffusers}.linear_1"),
            [rows, d_input],
        ),
        one(
            &format!("{bfl}.out_layer"),
            &format!("{diffusers}.linear_2"),
            [rows, rows],
        ),
    ]
}

/// A layer that is one layer in both namings.
fn one(bfl: &str, diffusers: &str, [rows, d_input]: [usize; 2]) -> LinearMap {
    LinearMap {
        bfl: bfl.to_owned(),
        parts: vec![part(diffusers, rows)],
        d_input,
        arrangement: Arrangement::Stacked,
    }
}

fn part(path: &str, rows: usize) -> Part {
    Part {
        path: path.to_owned(),
        rows,
    }
}

/// What the names of a double block's two streams differ in.
struct StreamNames {
    bfl: &'static str,
    modulation: &'static str,
    qkv: [&'static str; 3],
    query_norm: &'static str,
    key_norm: &'static str,
    proj: &'static str,
    feed_forward: &'static str,
}

const IMAGE: StreamNames = StreamNames {
    bfl: "img",
    modulation: "norm1.linear",
    qkv: ["attn.to_q", "attn.to_k", "attn.to_v"],
    query_norm: "attn.norm_q",
    key_norm: "attn.norm_k",
    proj: "attn.to_out.0",
    feed_forward: "ff",
};

const TEXT: StreamNames = StreamNames {
    bfl: "txt",
    modulation: "norm1_context.linear",
    qkv: ["attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"],
    query_norm: "attn.norm_added_q",
    key_norm: "attn.norm_added_k",
    proj: "attn.to_add_out",
    feed_forward: "ff_context",
};

/// Width of the sinusoidal embedding of timestep and guidance.
pub(crate) const TIME_WIDTH: usize = 256;
