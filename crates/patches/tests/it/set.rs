//! Whole adapters: every key is in an entry, refused or unread.

use burn::tensor::{DType, TensorData};
use bytes::Bytes;
use overglaze_patches::{
    AdapterConfig, Component, Dialect, FileKey, PatchError, PatchSet, TargetName, TextEncoder,
    dialects::split_suffix, inventory,
};
use safetensors::{Dtype, serialize, tensor::TensorView};

use crate::fixtures::{assert_close, cast, delta, device, matrix, message, scalar, wave};

// A third party's spelling that claims a part of the dotted names too.
inventory::submit! { Dialect { name: "test-echo", prefixes: &["echo."], parse: parse_echo } }

fn parse_echo(key: &str) -> Option<FileKey> {
    let (path, suffix) = split_suffix(key)?;
    let name = path
        .strip_prefix("transformer.echo.")
        .or(path.strip_prefix("echo."))?;
    Some(FileKey::denoiser(TargetName::Dotted(name.into()), suffix))
}

type Tensors = Vec<(String, TensorData)>;

/// A pair `[6, rank] · [rank, 5]` under two keys.
fn pair(path: &str, [down, up]: [&str; 2], rank: usize) -> Tensors {
    vec![
        (format!("{path}.{down}"), wave(&[rank, 5], 2)),
        (format!("{path}.{up}"), wave(&[6, rank], 1)),
    ]
}

const PEFT: [&str; 2] = ["lora_A.weight", "lora_B.weight"];
const KOHYA: [&str; 2] = ["lora_down.weight", "lora_up.weight"];

fn read(tensors: Tensors) -> Result<PatchSet, PatchError> {
    PatchSet::from_tensors("file", tensors, None, &device())
}

fn check_scale(set: &PatchSet, entry_index: usize, rank: usize, scale: f32) {
    let product = matrix(wave(&[6, rank], 1)).matmul(matrix(wave(&[rank, 5], 2)));
    let patch = set.entries[entry_index].patch.as_ref();
    // Sums of at most 8 products of numbers below 1, in f32.
    assert_close(delta(patch, [6, 5]), product.mul_scalar(scale), 1e-5);
}

#[test]
fn every_key_is_accounted_for() {
    let tensors = [
        pair("transformer.blocks.0.to_q", PEFT, 4),
        pair("lora_unet_blocks_0_qkv", KOHYA, 4),
        pair("lora_te1_text_model_mlp_fc1", KOHYA, 4),
        vec![
            (
                "transformer.blocks.0.to_k.lora_A.weight".into(),
                wave(&[4, 5], 1),
            ),
            (
                "lora_unet_blocks_0_mlp.vera_lambda_b".into(),
                wave(&[4, 5], 1),
            ),
            ("lora_unet_blocks_0_mlp.alpha".into(), scalar(4.0)),
            ("zebra".into(), scalar(1.0)),
        ],
    ]
    .concat();
    let num_keys = tensors.len();
    let set = read(tensors).expect("an adapter");
    assert_eq!(set.num_keys(), num_keys);
    let entries: Vec<_> = set
        .entries
        .iter()
        .map(|e| (e.target.clone(), e.dialect, e.keys.len()))
        .collect();
    let expected = [
        (TargetName::Dotted("blocks.0.to_q".into()), "diffusers", 2),
        (TargetName::Flattened("blocks_0_qkv".into()), "kohya", 2),
        (
            TargetName::Flattened("lora_te1_text_model_mlp_fc1".into()),
            "kohya",
            2,
        ),
    ];
    assert_eq!(entries, expected);
    let refused: Vec<_> = set
        .refused
        .iter()
        .map(|group| group.error.to_string())
        .collect();
    assert_eq!(
        set.refused[1].keys,
        [
            "lora_unet_blocks_0_mlp.vera_lambda_b",
            "lora_unet_blocks_0_mlp.alpha"
        ]
    );
    assert!(refused[0].starts_with("layer `blocks.0.to_k`: [\"lora_up.weight\"] missing beside"));
    assert!(refused[1].starts_with(
        "layer `blocks_0_mlp`: no patch kind accepts the keys [\"alpha\", \"vera_lambda_b\"]"
    ));
    assert_eq!(set.unread, ["zebra"]);
}

#[test]
fn a_missing_alpha_is_scale_one() {
    let set = read(pair("lora_unet_a", KOHYA, 4)).expect("an adapter");
    check_scale(&set, 0, 4, 1.0);
}

#[test]
fn alpha_beside_dotted_factors_counts() {
    let alpha = ("transformer.a.alpha".into(), scalar(4.0));
    let set = read([pair("transformer.a", PEFT, 8), vec![alpha]].concat()).expect("an adapter");
    check_scale(&set, 0, 8, 0.5);
    assert_eq!(set.num_keys(), 3);
}

#[test]
fn every_layer_has_its_own_alpha() {
    let tensors = [
        pair("lora_unet_a", KOHYA, 4),
        pair("lora_unet_b", KOHYA, 8),
        vec![
            ("lora_unet_a.alpha".into(), scalar(1.0)),
            ("lora_unet_b.alpha".into(), cast(scalar(16.0), DType::F16)),
        ],
    ];
    let set = read(tensors.concat()).expect("an adapter");
    check_scale(&set, 0, 4, 0.25);
    check_scale(&set, 1, 8, 2.0);
}

#[test]
fn the_configuration_gives_alpha_where_the_file_does_not() {
    let config = r#"{"lora_alpha": 2, "alpha_pattern": {"to_v": 8}, "use_rslora": true}"#;
    let config = AdapterConfig::from_json("c.json".as_ref(), config).expect("a configuration");
    let tensors = [
        pair("base_model.model.a.to_k", PEFT, 4),
        pair("base_model.model.a.to_q", PEFT, 4),
        pair("base_model.model.a.to_v", PEFT, 4),
        vec![("base_model.model.a.to_q.alpha".into(), scalar(4.0))],
    ]
    .concat();
    let set = PatchSet::from_tensors("file", tensors, Some(&config), &device());
    let set = set.expect("an adapter");
    check_scale(&set, 0, 4, 2.0 / 2.0);
    check_scale(&set, 1, 4, 1.0);
    check_scale(&set, 2, 4, 8.0 / 2.0);
    assert_eq!(set.num_keys(), 7);
}

#[test]
fn the_configuration_leaves_other_groups_alone() {
    let config = AdapterConfig::from_json("c.json".as_ref(), r#"{"lora_alpha": 2}"#)
        .expect("a configuration");
    let tensors = [
        pair("lora_unet_a", KOHYA, 4),
        vec![("transformer.b.test_double".into(), wave(&[6, 5], 1))],
    ]
    .concat();
    let set = PatchSet::from_tensors("file", tensors, Some(&config), &device());
    let set = set.expect("an adapter");
    assert_eq!(set.entries[0].patch.kind(), "test-double");
    check_scale(&set, 1, 4, 1.0);
}

#[test]
fn the_configuration_gives_alpha_to_any_kind_with_a_rank() {
    let config = r#"{"lora_alpha": 3}"#;
    let config = AdapterConfig::from_json("c.json".as_ref(), config).expect("a configuration");
    let tensors = vec![("transformer.a.test_full".into(), wave(&[6, 5], 1))];
    let set = PatchSet::from_tensors("file", tensors, Some(&config), &device());
    let set = set.expect("an adapter");
    let expected = matrix(wave(&[6, 5], 1)).mul_scalar(0.5);
    assert_close(delta(set.entries[0].patch.as_ref(), [6, 5]), expected, 0.0);
}

#[test]
fn two_spellings_of_one_tensor_must_agree() {
    let first = pair("transformer.a", PEFT, 4);
    let same = pair("base_model.model.a", KOHYA, 4);
    let set = read([first.clone(), same.clone()].concat()).expect("equal tensors are used once");
    assert_eq!(
        (set.entries.len(), set.entries[0].keys.len(), set.num_keys()),
        (1, 2, 4)
    );
    assert_eq!(
        set.duplicates,
        [
            "base_model.model.a.lora_down.weight",
            "base_model.model.a.lora_up.weight"
        ]
    );
    check_scale(&set, 0, 4, 1.0);
    let mut other = same;
    other[0].1 = wave(&[4, 5], 9);
    let expected = "layer `a`: the keys `transformer.a.lora_A.weight` and `base_model.model.a.lora_down.weight` \
                    both give `lora_down.weight` and differ; remove one of them from the file";
    assert_eq!(message(read([first, other].concat())), expected);
}

#[test]
fn the_duplicate_of_a_file_is_the_later_name() {
    let tensors = [
        pair("transformer.a", PEFT, 4),
        pair("base_model.model.a", PEFT, 4),
    ]
    .concat();
    let views = tensors.iter().map(|(key, data)| {
        let view = TensorView::new(Dtype::F32, data.shape().to_vec(), data.as_bytes());
        (key, view.expect("a view"))
    });
    let bytes = Bytes::from(serialize(views, None).expect("a file"));
    // The reader's own order changes from run to run and from call to call.
    for _ in 0..20 {
        let set = PatchSet::from_bytes("file", &bytes, &device()).expect("an adapter");
        assert_eq!(
            set.duplicates,
            ["transformer.a.lora_A.weight", "transformer.a.lora_B.weight"]
        );
    }
}

#[test]
fn a_refused_layer_does_not_list_its_duplicates() {
    let tensors = vec![
        ("transformer.a.vera_lambda_b".into(), wave(&[4, 5], 1)),
        ("base_model.model.a.vera_lambda_b".into(), wave(&[4, 5], 1)),
    ];
    let set = read(tensors).expect("an adapter");
    assert_eq!(set.refused[0].keys, ["transformer.a.vera_lambda_b"]);
    assert_eq!(set.duplicates, ["base_model.model.a.vera_lambda_b"]);
    assert_eq!(set.num_keys(), 2);
}

#[test]
fn a_set_of_finished_patches() {
    let entries = read(pair("lora_unet_a", KOHYA, 4))
        .expect("an adapter")
        .entries;
    let set = PatchSet::new("made here", entries);
    assert_eq!(
        (set.name.as_str(), set.entries.len(), set.num_keys()),
        ("made here", 1, 2)
    );
    assert!(set.refused.is_empty() && set.duplicates.is_empty() && set.unread.is_empty());
}

#[test]
fn keys_of_two_adapters_are_refused() {
    let mixed = pair("transformer.a", ["lora_A.x.weight", "lora_B.y.weight"], 4);
    let expected = "`file` holds the keys of two adapters, `x` and `y` (in `transformer.a.lora_B.y.weight`), \
                    expected those of one; export one adapter to a file of its own";
    assert_eq!(message(read(mixed)), expected);
    let x = pair("transformer.a", ["lora_A.x.weight", "lora_B.x.weight"], 4);
    let y = pair("transformer.b", ["lora_A.y.weight", "lora_B.y.weight"], 4);
    assert!(message(read([x.clone(), y].concat())).contains("two adapters, `x` and `y`"));
    let plain = pair("transformer.b", PEFT, 4);
    let alpha = ("transformer.a.alpha".into(), scalar(4.0));
    let set = read([x, plain, vec![alpha]].concat()).expect("one name, or none");
    assert_eq!((set.entries.len(), set.num_keys()), (2, 5));
    check_scale(&set, 0, 4, 1.0);
}

#[test]
fn bare_names_are_read() {
    for (path, target) in [
        (
            "transformer_blocks.0.attn.to_q",
            "transformer_blocks.0.attn.to_q",
        ),
        (
            "double_blocks.0.img_attn.qkv",
            "double_blocks.0.img_attn.qkv",
        ),
        ("diffusion_model.blocks.0.q", "blocks.0.q"),
    ] {
        let set = read(pair(path, PEFT, 4)).expect("an adapter");
        assert_eq!(set.entries[0].target, TargetName::Dotted(target.into()));
        check_scale(&set, 0, 4, 1.0);
    }
}

#[test]
fn a_key_of_two_dialects_is_refused() {
    let expected = "key `transformer.echo.a.lora_A.weight`: the dialects [\"diffusers\", \"test-echo\"] all claim it";
    assert_eq!(message(read(pair("transformer.echo.a", PEFT, 4))), expected);
    let set = read(pair("echo.a", PEFT, 4)).expect("only one dialect reads this");
    assert_eq!(set.entries[0].dialect, "test-echo");
}

#[test]
fn a_file_without_adapter_keys_is_refused() {
    for (tensors, num_keys) in [
        (vec![], 0),
        (
            vec![
                ("transformer.proj_out.weight".into(), scalar(1.0)),
                ("b".into(), scalar(1.0)),
            ],
            2,
        ),
    ] {
        let expected = format!(
            "`file` holds no adapter tensors: none of its {num_keys} keys is in a spelling this build \
             reads ([\"attention-processor\", \"bare-names\", "
        );
        let error = message(read(tensors));
        assert!(error.starts_with(&expected), "{error}");
        assert!(error.ends_with("\"test-echo\", \"xlabs\"])"), "{error}");
    }
}

#[test]
fn a_layer_in_both_spellings_is_one() {
    let alpha = ("lora_unet_blocks_0_a.alpha".into(), scalar(2.0));
    let set = read([pair("transformer.blocks.0.a", PEFT, 4), vec![alpha]].concat());
    let set = set.expect("an adapter");
    assert_eq!((set.entries.len(), set.entries[0].keys.len()), (1, 3));
    assert_eq!(
        set.entries[0].target,
        TargetName::Dotted("blocks.0.a".into())
    );
    check_scale(&set, 0, 4, 0.5);
}

#[test]
fn an_underscore_name_of_two_dotted_ones_is_neither() {
    let tensors = [
        pair("transformer.a.b_c", PEFT, 4),
        pair("transformer.a_b.c", PEFT, 4),
        pair("lora_unet_a_b_c", KOHYA, 4),
    ];
    let set = read(tensors.concat()).expect("an adapter");
    let targets: Vec<_> = set
        .entries
        .iter()
        .map(|entry| entry.target.as_str())
        .collect();
    assert_eq!(targets, ["a.b_c", "a_b.c", "a_b_c"]);
    assert_eq!(set.duplicates, [""; 0]);
}

#[test]
fn entries_and_refusals_tell_their_component() {
    let half = (
        "text_encoders.clip_l.transformer.text_model.encoder.layers.0.mlp.fc1.lora_A.weight".into(),
        wave(&[4, 5], 1),
    );
    let tensors = [
        pair("lora_te3_encoder_block_0_layer_0_SelfAttention_q", KOHYA, 4),
        pair("diffusion_model.llm_adapter.embed", KOHYA, 4),
        vec![half],
    ];
    let set = read(tensors.concat()).expect("an adapter");
    let components: Vec<_> = set.entries.iter().map(|entry| entry.component).collect();
    let t5 = Component::TextEncoder(TextEncoder::T5);
    assert_eq!(components, [Component::Denoiser, t5]);
    let clip = Component::TextEncoder(TextEncoder::Clip);
    assert_eq!(set.refused[0].component, clip);
}
