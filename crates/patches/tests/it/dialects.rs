//! Keys as they stand in public files, and what is read from them.

use overglaze_patches::{
    Component, FileKey, TargetName, TextEncoder,
    dialects::{dialects, split_suffix},
};

/// What every dialect but this test's own reads of `key`.
fn read(key: &str) -> Vec<(&'static str, FileKey)> {
    let claims = dialects()
        .into_iter()
        .filter_map(|dialect| Some((dialect.name, (dialect.parse)(key)?)));
    claims.filter(|(name, _)| *name != "test-echo").collect()
}

/// One line of the table: the key, its dialect and what it is.
fn expected(line: &str) -> (&str, &str, FileKey) {
    let words: Vec<_> = line.split_whitespace().collect();
    let [dialect, component, key, target, suffix] = words[..] else {
        panic!("five words are expected in `{line}`")
    };
    let target = match target.strip_prefix('~') {
        Some(name) => TargetName::Flattened(name.into()),
        None => TargetName::Dotted(target.into()),
    };
    let component = match component {
        "denoiser" => Component::Denoiser,
        "clip" => Component::TextEncoder(TextEncoder::Clip),
        "t5" => Component::TextEncoder(TextEncoder::T5),
        "llm" => Component::TextEncoder(TextEncoder::LanguageModel),
        "encoder" => Component::TextEncoder(TextEncoder::Unknown),
        _ => panic!("`{component}` is no component"),
    };
    let suffix = suffix.into();
    let file_key = FileKey {
        target,
        suffix,
        component,
    };
    (key, dialect, file_key)
}

fn lines(table: &str) -> impl Iterator<Item = &str> {
    table
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

#[test]
fn every_spelling_is_read_by_one_dialect() {
    for line in lines(SPELLINGS) {
        let (key, dialect, file_key) = expected(line);
        assert_eq!(read(key), [(dialect, file_key)], "{key}");
    }
}

#[test]
fn every_dialect_is_in_the_table() {
    let tested: Vec<_> = lines(SPELLINGS).map(|line| expected(line).1).collect();
    for dialect in dialects() {
        let is_tested = tested.contains(&dialect.name) || dialect.name == "test-echo";
        assert!(is_tested, "{}", dialect.name);
    }
}

/// The tails of this binary's own kinds, and aliases they bring.
#[test]
fn kinds_bring_their_own_spellings() {
    for (tail, suffix) in [
        ("test_f", "test_full"),
        ("test_f.some_name.values", "test_full"),
        ("test_full", "test_full"),
        ("test_double_a", "test_double_a"),
    ] {
        let key = format!("transformer.proj_out.{tail}");
        assert_eq!(
            split_suffix(&key),
            Some(("transformer.proj_out", suffix.into()))
        );
    }
}

#[test]
fn other_spellings_are_nobodys() {
    for key in [
        "",
        ".",
        "alpha",
        ".alpha",
        "transformer.alpha",
        "lora_unet_.alpha",
        "lora_unet_a.b.alpha",
        "lora_transformer_.alpha",
        "lora_transformer_a.b.alpha",
        "lora_te4_a.b.alpha",
        "lora_other_a.alpha",
        "lycoris_.alpha",
        "diffusion_model.alpha",
        "base_model.alpha",
        "base_model.model.alpha",
        "model.diffusion_model.alpha",
        "text_encoders.alpha",
        "0.to_q.alpha",
        "a-b.to_q.alpha",
        "base_model.vera_C",
        "transformer.proj_out.lora_C.weight",
        "transformer.proj_out.lora_A.default.extra.weight",
        "a.processor.to_x_lora.down.weight",
        "a.processor.qkv_lora3.down.weight",
        ".processor.qkv_lora1.down.weight",
        "mlp.down.weight",
        "blocks.0.mlp.up.weight",
    ] {
        assert_eq!(read(key), [], "{key}");
    }
}

/// What a checkpoint has too is no adapter's by itself, under whatever prefix.
#[test]
fn a_weight_and_the_scale_of_a_norm_are_nobodys() {
    for layer in ["double_blocks.0.img_attn.norm.query_norm", "proj_out"] {
        for prefix in ["", "transformer.", "diffusion_model.", "base_model.model."] {
            let key = |tail: &str| format!("{prefix}{layer}.{tail}");
            assert_eq!(read(&key("weight")), []);
            let is_norm = layer.ends_with("norm");
            assert_eq!(read(&key("scale")).is_empty(), is_norm, "{}", key("scale"));
            assert_eq!(read(&key("alpha")).len(), 1);
        }
    }
}

#[test]
fn a_key_is_split_at_its_longest_suffix() {
    assert_eq!(
        split_suffix("a.alpha.lora_A.weight"),
        Some(("a.alpha", "lora_down.weight".into()))
    );
    assert_eq!(
        split_suffix("a.scale.alpha"),
        Some(("a.scale", "alpha".into()))
    );
    assert_eq!(split_suffix("a.b1.weight"), Some(("a", "b1.weight".into())));
    assert_eq!(
        split_suffix("a.test_f..values"),
        None,
        "a name is not empty"
    );
    assert_eq!(split_suffix("a.test_f.b.c.values"), None);
    let long = format!("{}alpha", "a.".repeat(1_000_000));
    assert_eq!(
        split_suffix(&long).map(|(path, _)| path.len()),
        Some(1_999_999)
    );
}

/// Each key cut, with a character left out, and with another one put in its place.
fn mutations(key: &str) -> impl Iterator<Item = String> {
    key.char_indices().flat_map(move |(at, found)| {
        let (before, after) = (&key[..at], &key[at + found.len_utf8()..]);
        let replaced = ['.', '_', 'é'].map(|other| format!("{before}{other}{after}"));
        let cut = [before.into(), after.into(), [before, after].concat()];
        replaced.into_iter().chain(cut)
    })
}

#[test]
fn a_changed_key_is_read_by_one_dialect_or_by_none() {
    let (mut num_read, mut num_unread) = (0, 0);
    for key in lines(SPELLINGS).map(|line| expected(line).0) {
        for mutated in mutations(key) {
            let claims = read(&mutated);
            assert!(claims.len() < 2, "{mutated:?}: {claims:?}");
            match claims.first() {
                None => num_unread += 1,
                Some((_, file_key)) => {
                    num_read += 1;
                    assert_ne!(file_key.target.as_str(), "", "{mutated:?}");
                    assert!(split_suffix(&mutated).is_some() || mutated.ends_with(".weight"));
                }
            }
        }
    }
    assert!(
        num_read > 10_000 && num_unread > 10_000,
        "{num_read} are read and {num_unread} are not"
    );
}

/// A component is named in words where a layer of it has no place.
#[test]
fn components_have_names() {
    let names = [
        (Component::Denoiser, "the denoiser"),
        (
            Component::TextEncoder(TextEncoder::Clip),
            "a CLIP text encoder",
        ),
        (Component::TextEncoder(TextEncoder::T5), "a T5 text encoder"),
        (
            Component::TextEncoder(TextEncoder::LanguageModel),
            "a language model as text encoder",
        ),
        (
            Component::TextEncoder(TextEncoder::Unknown),
            "a text encoder",
        ),
    ];
    for (component, name) in names {
        assert_eq!(component.to_string(), name);
        assert_eq!(component.is_text_encoder(), name != "the denoiser");
    }
}

const SPELLINGS: &str = include_str!("../data/spellings.txt");
