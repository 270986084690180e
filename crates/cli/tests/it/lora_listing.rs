//! Which entries of a folder are adapters, and their order.

use std::fs;

use overglaze_cli::loras::{list, name, natural_order};

#[test]
fn order_is_that_of_people() {
    let mut names = [
        "Epoch-10", "epoch-2", "epoch-1", "b", "EPOCH-3", "a10b2", "a10b10", "a9",
    ];
    names.sort_by(|a, b| natural_order(a, b));
    assert_eq!(
        names,
        [
            "a9", "a10b2", "a10b10", "b", "epoch-1", "epoch-2", "EPOCH-3", "Epoch-10"
        ]
    );
}

#[test]
fn adapters_are_listed_and_the_rest_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in [
        "e-10.safetensors",
        "E-2.SAFETENSORS",
        "notes.txt",
        "old.ckpt",
        ".x.safetensors",
    ] {
        fs::write(path(name), "").unwrap();
    }
    fs::create_dir_all(path("peft")).unwrap();
    fs::write(path("peft/adapter_config.json"), "{}").unwrap();
    fs::write(path("peft/adapter_model.safetensors"), "").unwrap();
    fs::create_dir_all(path("deeper/loras")).unwrap();

    let listing = list(folder.path()).unwrap();
    let adapters: Vec<_> = listing.adapters.iter().map(|path| name(path)).collect();
    assert_eq!(adapters, ["E-2.SAFETENSORS", "e-10.safetensors", "peft"]);
    let skipped: Vec<_> = listing
        .skipped
        .iter()
        .map(|entry| (entry.name.as_str(), entry.reason.as_str()))
        .collect();
    assert_eq!(
        skipped,
        [
            (".x.safetensors", "a hidden file"),
            ("deeper", "a folder without adapter_config.json"),
            ("notes.txt", "not a .safetensors file"),
            (
                "old.ckpt",
                "a pickle, which is not read: convert it to safetensors"
            ),
        ]
    );
}

#[test]
fn one_file_and_one_peft_folder_are_adapters_too() {
    let demo = crate::overglaze::demo_file("more/negative.safetensors");
    assert_eq!(list(&demo).unwrap().adapters, [demo]);
    let peft = crate::overglaze::demo_file("more/small");
    assert_eq!(list(&peft).unwrap().adapters, [peft]);
}
