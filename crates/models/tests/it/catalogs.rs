//! Catalogs of small checkpoints, adapters for them, and what both come to.

use std::collections::BTreeMap;

use burn::tensor::{Device, TensorData};
use overglaze_core::Piece;
use overglaze_models::{TensorShapes, families::LayerCatalog};
use overglaze_patches::{BaseLayer, PatchSet, TargetName};

/// A FLUX.1 of width 8 with heads of 4: all that its names and rows depend on.
pub(crate) const FLUX_BFL: &[(&str, &[usize])] = &[
    ("img_in.weight", &[8, 4]),
    ("txt_in.weight", &[8, 6]),
    ("time_in.in_layer.weight", &[8, 256]),
    ("time_in.out_layer.weight", &[8, 8]),
    ("guidance_in.in_layer.weight", &[8, 256]),
    ("guidance_in.out_layer.weight", &[8, 8]),
    ("vector_in.in_layer.weight", &[8, 5]),
    ("vector_in.out_layer.weight", &[8, 8]),
    ("double_blocks.0.img_attn.qkv.weight", &[24, 8]),
    ("double_blocks.0.img_attn.proj.weight", &[8, 8]),
    ("double_blocks.0.txt_attn.qkv.weight", &[24, 8]),
    ("double_blocks.0.img_attn.norm.query_norm.scale", &[4]),
    ("single_blocks.0.linear1.weight", &[56, 8]),
    ("single_blocks.0.linear2.weight", &[8, 40]),
    ("final_layer.adaLN_modulation.1.weight", &[16, 8]),
    ("final_layer.linear.weight", &[4, 8]),
];

pub(crate) const FLUX_DIFFUSERS: &[(&str, &[usize])] = &[
    ("x_embedder.weight", &[8, 4]),
    ("context_embedder.weight", &[8, 6]),
    ("time_text_embed.text_embedder.linear_1.weight", &[8, 5]),
    ("transformer_blocks.0.attn.to_q.weight", &[8, 8]),
    ("transformer_blocks.0.attn.to_k.weight", &[8, 8]),
    ("transformer_blocks.0.attn.to_v.weight", &[8, 8]),
    ("single_transformer_blocks.0.attn.to_q.weight", &[8, 8]),
    ("single_transformer_blocks.0.attn.to_k.weight", &[8, 8]),
    ("single_transformer_blocks.0.attn.to_v.weight", &[8, 8]),
    ("single_transformer_blocks.0.proj_mlp.weight", &[32, 8]),
    ("norm_out.linear.weight", &[16, 8]),
];

pub(crate) fn catalog(tensors: &[(&str, &[usize])]) -> LayerCatalog {
    below("", tensors)
}

pub(crate) fn below(prefix: &str, tensors: &[(&str, &[usize])]) -> LayerCatalog {
    let tensors = tensors.iter();
    let shapes = tensors.map(|(name, shape)| (format!("{prefix}{name}"), shape.to_vec()));
    LayerCatalog::new(&TensorShapes::new("model", shapes)).unwrap()
}

/// The pieces of a name in words: `layer layer_rows<-target_rows`.
pub(crate) fn pieces(catalog: &LayerCatalog, name: &str) -> String {
    let target = TargetName::Flattened(name.replace('.', "_"));
    let pieces = catalog.names().resolve(&target).unwrap_or_default();
    assert_eq!(
        catalog
            .names()
            .resolve(&TargetName::Dotted(name.into()))
            .unwrap_or_default(),
        pieces,
        "{name}"
    );
    let piece = |piece: &Piece| {
        format!(
            "{} {:?}<-{:?}",
            piece.layer, piece.layer_rows, piece.target_rows
        )
    };
    pieces.iter().map(piece).collect::<Vec<_>>().join(", ")
}

pub(crate) fn check(catalog: &LayerCatalog, name: &str, expected: &str) {
    assert_eq!(pieces(catalog, name), expected, "{name}");
}

/// An adapter of one LoRA a layer: (layer, up `[d_output, rank]`, down `[rank, d_input]`), both filled by index.
pub(crate) fn adapter(layers: &[(&str, [usize; 3])]) -> PatchSet {
    let values = |rows: usize, columns: usize, factor: f32| {
        let values = (0..rows * columns).map(|index| factor * (1.0 + index as f32));
        TensorData::new(values.collect::<Vec<_>>(), [rows, columns])
    };
    let tensors = layers
        .iter()
        .flat_map(|(layer, [d_output, rank, d_input])| {
            [
                (
                    format!("transformer.{layer}.lora_B.weight"),
                    values(*d_output, *rank, 1.0),
                ),
                (
                    format!("transformer.{layer}.lora_A.weight"),
                    values(*rank, *d_input, 0.5),
                ),
            ]
        });
    PatchSet::from_tensors("adapter", tensors, None, &Device::flex()).unwrap()
}

/// ΔW of every layer that the adapter has a patch for, row by row.
pub(crate) fn deltas(catalog: &LayerCatalog, set: &PatchSet) -> BTreeMap<String, Vec<Vec<f32>>> {
    let fitted = catalog.fit(set).unwrap();
    assert_eq!(fitted.report.keys_unmatched(), 0, "{:?}", fitted.report);
    let patches = fitted.patches.into_iter();
    patches
        .map(|(layer, patch)| {
            let shape = catalog.shape(&layer).unwrap();
            let delta = patch
                .delta_weight(&BaseLayer::of_shape(shape))
                .unwrap()
                .unwrap();
            let [_, columns] = delta.dims();
            let values: Vec<f32> = delta.into_data().try_to_vec().unwrap();
            (layer, values.chunks(columns).map(<[f32]>::to_vec).collect())
        })
        .collect()
}

/// `up · down` of a LoRA of [`adapter`].
pub(crate) fn product([d_output, rank, d_input]: [usize; 3]) -> Vec<Vec<f32>> {
    let up = |row: usize, index: usize| 1.0 + (row * rank + index) as f32;
    let down = |index: usize, column: usize| 0.5 * (1.0 + (index * d_input + column) as f32);
    let value = |row, column| {
        (0..rank)
            .map(|index| up(row, index) * down(index, column))
            .sum()
    };
    (0..d_output)
        .map(|row| (0..d_input).map(|column| value(row, column)).collect())
        .collect()
}
