//! Detection of the naming, and the name tables of real sizes.

use std::collections::{BTreeMap, BTreeSet};

use overglaze_core::{LayerTree, NameTable, Piece};
use overglaze_models::{
    FluxModel, TensorShapes,
    flux::{Naming, name_table},
};
use overglaze_patches::TargetName;

use crate::golden::{self, CHECKPOINTS};

/// Names and shapes of a FLUX.1-dev checkpoint with its text encoders and VAE, BFL naming.
fn flux1_dev() -> TensorShapes {
    let json = include_str!("../data/flux1_dev_bfl_shapes.json");
    let shapes: BTreeMap<String, Vec<usize>> = serde_json::from_str(json).unwrap();
    TensorShapes::new("flux1-dev", shapes)
}

fn pieces(table: &NameTable, name: &str) -> Vec<Piece> {
    let dotted = table.resolve(&TargetName::Dotted(name.to_owned()));
    let flattened = table.resolve(&TargetName::Flattened(name.replace('.', "_")));
    assert_eq!(dotted, flattened, "{name}");
    dotted
        .unwrap_or_else(|| panic!("{name} is not in the table"))
        .to_vec()
}

/// The pieces tile the rows `0..rows` of the target, in order.
fn assert_tiled(name: &str, pieces: &[Piece], rows: usize) {
    let mut next = 0;
    for piece in pieces {
        assert_eq!(piece.target_rows.start, next, "{name}");
        assert_eq!(piece.target_rows.len(), piece.layer_rows.len(), "{name}");
        next = piece.target_rows.end;
    }
    assert_eq!(next, rows, "{name}");
}

fn sorted(mut pieces: Vec<Piece>) -> Vec<Piece> {
    pieces.sort_by_key(|piece| piece.target_rows.start);
    pieces
}

#[test]
fn the_naming_is_detected() {
    let detect = |names: &[&str]| {
        let shapes = names.iter().map(|name| ((*name).to_owned(), vec![4, 4]));
        Naming::detect(&TensorShapes::new("file", shapes))
    };
    let bfl = [
        "img_in.weight",
        "txt_in.weight",
        "vector_in.in_layer.weight",
    ];
    let inside = bfl.map(|name| format!("model.diffusion_model.{name}"));
    let diffusers = [
        "x_embedder.weight",
        "context_embedder.weight",
        "time_text_embed.text_embedder.linear_1.weight",
    ];
    assert_eq!(detect(&bfl).unwrap(), (Naming::Bfl, ""));
    assert_eq!(
        detect(&inside.each_ref().map(String::as_str)).unwrap().1,
        "model.diffusion_model."
    );
    assert_eq!(detect(&diffusers).unwrap(), (Naming::Diffusers, ""));
    let message = detect(&[bfl, diffusers].concat()).unwrap_err().to_string();
    assert!(message.starts_with("file mixes two namings"), "{message}");
    for other in [
        &[][..],
        &["model.layers.0.weight"],
        &bfl[..2],
        &diffusers[..2],
    ] {
        let message = detect(other).unwrap_err().to_string();
        assert!(
            message.starts_with("file is not a FLUX.1 transformer"),
            "{message}"
        );
    }
}

#[test]
fn every_layer_of_flux1_dev_is_in_the_table() {
    let shapes = flux1_dev();
    let table = name_table(&shapes, None).unwrap();
    let inside = shapes.below("model.diffusion_model.");
    let mut num_layers = 0;
    for name in inside.names() {
        let Some((path, "weight" | "scale")) = name.rsplit_once('.') else {
            continue;
        };
        let rows = inside.shape(name).unwrap()[0];
        let whole = Piece {
            layer: path.to_owned(),
            layer_rows: 0..rows,
            target_rows: 0..rows,
        };
        assert_eq!(pieces(&table, path), [whole], "{path}");
        num_layers += 1;
    }
    assert_eq!(num_layers, 314 + 2 * (2 * 19 + 38));
}

#[test]
fn a_diffusers_adapter_finds_its_rows_in_a_bfl_model() {
    let table = name_table(&flux1_dev(), None).unwrap();
    let json = include_str!("../data/flux1_dev_diffusers_lora_targets.json");
    let targets: BTreeMap<String, usize> = serde_json::from_str(json).unwrap();
    assert_eq!(targets.len(), 494);
    for (target, rows) in targets {
        assert_tiled(&target, &pieces(&table, &target), rows);
    }
}

#[test]
fn fused_rows_are_those_of_the_map() {
    let table = name_table(&flux1_dev(), None).unwrap();
    let cases = [
        (
            "transformer_blocks.3.attn.to_q",
            "double_blocks.3.img_attn.qkv",
            0..3072,
        ),
        (
            "transformer_blocks.3.attn.to_v",
            "double_blocks.3.img_attn.qkv",
            6144..9216,
        ),
        (
            "transformer_blocks.18.attn.add_k_proj",
            "double_blocks.18.txt_attn.qkv",
            3072..6144,
        ),
        (
            "single_transformer_blocks.37.proj_mlp",
            "single_blocks.37.linear1",
            9216..21504,
        ),
        (
            "single_transformer_blocks.37.proj_out",
            "single_blocks.37.linear2",
            0..3072,
        ),
        (
            "transformer_blocks.0.attn.to_out.0",
            "double_blocks.0.img_attn.proj",
            0..3072,
        ),
        (
            "transformer_blocks.0.ff_context.net.0.proj",
            "double_blocks.0.txt_mlp.0",
            0..12288,
        ),
        (
            "transformer_blocks.0.attn.norm_added_k",
            "double_blocks.0.txt_attn.norm.key_norm",
            0..128,
        ),
        ("proj_out", "final_layer.linear", 0..64),
        (
            "time_text_embed.guidance_embedder.linear_2",
            "guidance_in.out_layer",
            0..3072,
        ),
    ];
    for (alias, layer, rows) in cases {
        let expected = Piece {
            layer: layer.into(),
            target_rows: 0..rows.len(),
            layer_rows: rows,
        };
        assert_eq!(pieces(&table, alias), [expected], "{alias}");
    }
}

#[test]
fn the_halves_of_the_final_modulation_are_swapped() {
    let table = name_table(&flux1_dev(), None).unwrap();
    let half = |layer_rows, target_rows| Piece {
        layer: "final_layer.adaLN_modulation.1".into(),
        layer_rows,
        target_rows,
    };
    let found = sorted(pieces(&table, "norm_out.linear"));
    assert_eq!(
        found,
        [half(3072..6144, 0..3072), half(0..3072, 3072..6144)]
    );
}

/// Every layer of either golden checkpoint resolves in the other's table, to all of its rows.
#[test]
fn each_naming_covers_the_other() {
    let models = CHECKPOINTS.map(|file| golden::model(file).transformer);
    for (own, other) in [(0, 1), (1, 0)] {
        let source = golden::source(CHECKPOINTS[other]);
        let table = models[own].names();
        let mut covered = BTreeMap::<String, usize>::new();
        for (name, entry) in source.entries() {
            let Some((path, "weight" | "scale")) = name.rsplit_once('.') else {
                continue;
            };
            let pieces = sorted(pieces(table, path));
            assert_tiled(path, &pieces, entry.shape[0]);
            for piece in pieces {
                *covered.entry(piece.layer).or_default() += piece.layer_rows.len();
            }
        }
        let mut rows = BTreeMap::new();
        models[own].visit_layers(&mut |path, layer| {
            rows.insert(path.to_owned(), layer.weight_shape()[0]);
        });
        assert_eq!(covered, rows, "every row of every layer is in one alias");
    }
}

#[test]
fn names_are_unique_with_underscores() {
    let table = name_table(&flux1_dev(), None).unwrap();
    let names = table.names();
    let flattened: BTreeSet<_> = names.iter().map(|name| name.replace('.', "_")).collect();
    assert_eq!(flattened.len(), names.len());
}

#[test]
fn a_pipeline_checkpoint_gives_the_same_output() {
    let prefixed = |name: &str, shape: &[usize]| {
        Some((format!("model.diffusion_model.{name}"), shape.to_vec()))
    };
    let plain = golden::model(CHECKPOINTS[1]);
    let inside = FluxModel::load(golden::edited(CHECKPOINTS[1], prefixed), golden::options());
    let run =
        |model: FluxModel| golden::values(model.transformer.forward(golden::inputs()).unwrap());
    assert_eq!(run(inside.unwrap()), run(plain));
}
