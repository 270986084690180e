//! Names of layers, aliases, and what a file may call them.

use overglaze_core::NameTable;
use overglaze_patches::TargetName;

use crate::{numbers::message, toy::piece};

fn dotted(name: &str) -> TargetName {
    TargetName::Dotted(name.into())
}

fn flattened(name: &str) -> TargetName {
    TargetName::Flattened(name.into())
}

fn table() -> NameTable {
    let mut names = NameTable::default();
    names.add_layer("blocks.0.to_q", 4).expect("it is new");
    names.add_layer("blocks.0.to_k", 4).expect("it is new");
    let pieces = vec![
        piece("blocks.0.to_q", 0..4, 0..4),
        piece("blocks.0.to_k", 0..4, 4..8),
    ];
    names.add_alias("double.0.qk", pieces).expect("it is new");
    names
}

#[test]
fn both_spellings_are_looked_up() {
    let names = table();
    let layers = |target| {
        let pieces = names.resolve(&target)?;
        Some(
            pieces
                .iter()
                .map(|piece| piece.layer.as_str())
                .collect::<Vec<_>>(),
        )
    };
    for (target, expected) in [
        (dotted("blocks.0.to_q"), Some(vec!["blocks.0.to_q"])),
        (flattened("blocks_0_to_q"), Some(vec!["blocks.0.to_q"])),
        (
            dotted("double.0.qk"),
            Some(vec!["blocks.0.to_q", "blocks.0.to_k"]),
        ),
        (
            flattened("double_0_qk"),
            Some(vec!["blocks.0.to_q", "blocks.0.to_k"]),
        ),
        (dotted("blocks_0_to_q"), Some(vec!["blocks.0.to_q"])),
        (dotted("blocks.0_to_q"), Some(vec!["blocks.0.to_q"])),
        (flattened("blocks.0.to_q"), None),
        (dotted("blocks.0.to"), None),
        (dotted(""), None),
    ] {
        assert_eq!(layers(target.clone()), expected, "{target}");
    }
    let all = names.names();
    assert_eq!(all, ["blocks.0.to_k", "blocks.0.to_q", "double.0.qk"]);
}

#[test]
fn the_nearest_names_are_in_the_spelling_asked_for() {
    let names = table();
    assert_eq!(
        names.nearest(&dotted("blocks.0.to_v")),
        ["blocks.0.to_k", "blocks.0.to_q"]
    );
    assert_eq!(
        names.nearest(&flattened("blocks_0_to_v")),
        ["blocks_0_to_k", "blocks_0_to_q"]
    );
    assert!(names.nearest(&dotted("zzz")).is_empty());
}

#[test]
fn names_that_flatten_alike_are_an_error() {
    let mut names = table();
    names
        .add_layer("blocks.0.to_q", 4)
        .expect("the same name again is no clash");
    let expected = "the layer names `blocks.0.to_q` and `blocks.0_to.q` both become `blocks_0_to_q` with \
                    underscores";
    assert_eq!(message(names.add_layer("blocks.0_to.q", 4)), expected);
    assert_eq!(
        message(names.add_alias("blocks.0_to.q", Vec::new())),
        expected
    );
}

#[test]
fn a_name_that_means_two_things_is_an_error() {
    let mut names = table();
    let halves = |second| vec![piece("blocks.0.to_q", 0..4, 0..4), second];
    let same = halves(piece("blocks.0.to_k", 0..4, 4..8));
    let other = halves(piece("blocks.0.to_k", 0..2, 4..6));
    names
        .add_alias("double.0.qk", same)
        .expect("the same rows again");
    let expected = "the layer name `double.0.qk` stands for rows 0..4 of `blocks.0.to_q` and rows 0..4 of \
                    `blocks.0.to_k` and cannot stand for rows 0..4 of `blocks.0.to_q` and rows 0..2 of \
                    `blocks.0.to_k` as well";
    assert_eq!(message(names.add_alias("double.0.qk", other)), expected);
    let expected = "the layer name `blocks.0.to_q` stands for rows 0..4 of `blocks.0.to_q` and cannot stand \
                    for rows 0..5 of `blocks.0.to_q` as well";
    assert_eq!(message(names.add_layer("blocks.0.to_q", 5)), expected);
    let pieces = names.resolve(&dotted("double.0.qk")).expect("it is known");
    assert_eq!(pieces[1].layer_rows, 0..4, "the first meaning stays");
}
