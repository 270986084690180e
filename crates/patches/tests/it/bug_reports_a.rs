//! Files that other loaders got wrong, by the names in their keys; each test names the report.

use std::collections::BTreeMap;

use burn::tensor::TensorData;
use bytes::Bytes;
use overglaze_patches::{Component, PatchError, PatchSet, TargetName, TextEncoder};
use safetensors::{serialize, tensor::TensorView};

use crate::fixtures::{device, message, scalar, wave};

type Tensors = Vec<(String, TensorData)>;

fn read(tensors: Tensors) -> Result<PatchSet, PatchError> {
    PatchSet::from_tensors("file", tensors, None, &device())
}

/// Tensors of the given shapes, no two alike.
fn tensors(shapes: &[(&str, &[usize])]) -> Tensors {
    let numbered = shapes.iter().enumerate();
    numbered
        .map(|(seed, (key, shape))| ((*key).into(), wave(shape, seed)))
        .collect()
}

/// The keys of every layer, whether a patch was built or not.
fn layers(set: &PatchSet) -> BTreeMap<String, Vec<String>> {
    let built = set
        .entries
        .iter()
        .map(|entry| (entry.target.to_string(), entry.keys.clone()));
    let refused = set
        .refused
        .iter()
        .map(|group| (group.target.clone(), group.keys.clone()));
    built.chain(refused).collect()
}

/// Why the only layer is refused, or the kind of its patch.
fn verdict(set: &PatchSet) -> String {
    match (set.entries.as_slice(), set.refused.as_slice()) {
        ([entry], []) => entry.patch.kind().to_lowercase(),
        ([], [group]) => group.error.to_string().to_lowercase(),
        _ => panic!("one layer is expected: {set:?}"),
    }
}

/// invoke-ai/InvokeAI#9515: the key was split at the wrong dot, for want of a suffix.
#[test]
fn a1_ai_toolkit_magnitude_is_one_layer_with_its_factors() {
    let set = read(tensors(&[
        ("diffusion_model.blocks.0.attn.wq.lora_A.weight", &[2, 6]),
        ("diffusion_model.blocks.0.attn.wq.lora_B.weight", &[6, 2]),
        ("diffusion_model.blocks.0.attn.wq.magnitude", &[6]),
    ]))
    .expect("an adapter");
    let layers = layers(&set);
    assert_eq!(layers.keys().collect::<Vec<_>>(), ["blocks.0.attn.wq"]);
    assert_eq!(layers["blocks.0.attn.wq"].len(), 3);
    assert!(verdict(&set).contains("dora"), "{}", verdict(&set));
}

/// invoke-ai/InvokeAI#7129: a converter wanted q, k, v and the MLP of every single block.
#[test]
fn a5_single_blocks_without_proj_mlp_are_read() {
    let parts = ["to_q", "to_k", "to_v"];
    let keys = (0..38).flat_map(|block| {
        parts.into_iter().flat_map(move |part| {
            let path = format!("transformer.single_transformer_blocks.{block}.attn.{part}");
            [
                (format!("{path}.lora_A.weight"), wave(&[2, 6], block)),
                (format!("{path}.lora_B.weight"), wave(&[6, 2], block + 1)),
            ]
        })
    });
    let set = read(keys.collect()).expect("an adapter");
    assert_eq!((set.entries.len(), set.refused.len()), (3 * 38, 0));
    assert!(set.entries.iter().all(|entry| entry.keys.len() == 2));
}

/// InvokeAI#7131: neither the prefix nor T5 as the second encoder was known.
#[test]
fn a6_onetrainer_names_are_read() {
    let set = read(tensors(&[
        (
            "lora_transformer_transformer_blocks_0_attn_to_q.lora_down.weight",
            &[2, 6],
        ),
        (
            "lora_transformer_transformer_blocks_0_attn_to_q.lora_up.weight",
            &[6, 2],
        ),
        (
            "lora_te2_encoder_block_0_layer_0_SelfAttention_q.lora_down.weight",
            &[2, 6],
        ),
        (
            "lora_te2_encoder_block_0_layer_0_SelfAttention_q.lora_up.weight",
            &[6, 2],
        ),
    ]))
    .expect("an adapter");
    let found: Vec<_> = set
        .entries
        .iter()
        .map(|entry| (entry.target.as_str(), entry.component))
        .collect();
    let expected = [
        (
            "lora_te2_encoder_block_0_layer_0_SelfAttention_q",
            Component::TextEncoder(TextEncoder::T5),
        ),
        ("transformer_blocks_0_attn_to_q", Component::Denoiser),
    ];
    assert_eq!(found, expected);
}

/// InvokeAI#7709: a slider without any cross attention was no LoRA to a loader that looked for its width.
#[test]
fn a9_an_sdxl_slider_of_self_attention_alone_is_read() {
    let mut keys = Tensors::new();
    for (block, part) in (0..10).flat_map(|block| ["to_q", "to_out_0"].map(|part| (block, part))) {
        let path =
            format!("lora_unet_down_blocks_2_attentions_0_transformer_blocks_{block}_attn1_{part}");
        keys.push((format!("{path}.lora_down.weight"), wave(&[2, 6], block)));
        keys.push((format!("{path}.lora_up.weight"), wave(&[6, 2], block + 1)));
        keys.push((format!("{path}.alpha"), scalar(1.0)));
    }
    let set = read(keys).expect("an adapter");
    assert_eq!((set.entries.len(), set.refused.len()), (20, 0));
    assert!(set.entries.iter().all(|entry| entry.keys.len() == 3));
}

/// InvokeAI#7092: one foreign key made a whole file unknown.
#[test]
fn a10_a_foreign_key_is_reported_and_the_rest_read() {
    let mut keys = tensors(&[
        ("lora_unet_a.lora_down.weight", &[2, 6]),
        ("lora_unet_a.lora_up.weight", &[6, 2]),
    ]);
    keys.push(("some.foreign.thing".into(), scalar(1.0)));
    let set = read(keys).expect("an adapter");
    assert_eq!(set.entries.len(), 1);
    assert_eq!(set.unread, ["some.foreign.thing"]);
}

/// Comfy-Org/ComfyUI#4476: the prefix was unknown, and the layers silently left out.
#[test]
fn a11_simpletuner_lycoris_prefix_is_read() {
    let set = read(tensors(&[
        ("lycoris_transformer_blocks_0_attn_to_q.lokr_w1", &[2, 2]),
        ("lycoris_transformer_blocks_0_attn_to_q.lokr_w2", &[3, 3]),
    ]))
    .expect("an adapter");
    let layers = layers(&set);
    assert_eq!(layers["transformer_blocks_0_attn_to_q"].len(), 2);
    assert!(verdict(&set).contains("lokr"), "{}", verdict(&set));
}

/// huggingface/diffusers#13137: a filter kept LoRA's keys only, and a LoKr file had no effect.
#[test]
fn a15_lokr_under_diffusion_model_is_not_dropped() {
    let set = read(tensors(&[
        (
            "diffusion_model.double_blocks.0.img_attn.qkv.lokr_w1",
            &[3, 2],
        ),
        (
            "diffusion_model.double_blocks.0.img_attn.qkv.lokr_w2",
            &[2, 3],
        ),
    ]))
    .expect("an adapter");
    assert_eq!(layers(&set)["double_blocks.0.img_attn.qkv"].len(), 2);
    assert!(verdict(&set).contains("lokr"), "{}", verdict(&set));
}

/// huggingface/diffusers#9803, #10954: one file in two spellings.
#[test]
fn a17_xlabs_and_comfyui_keys_in_one_file_are_read() {
    let set = read(tensors(&[
        (
            "diffusion_model.double_blocks.0.processor.qkv_lora1.down.weight",
            &[2, 6],
        ),
        (
            "diffusion_model.double_blocks.0.processor.qkv_lora1.up.weight",
            &[18, 2],
        ),
        ("double_blocks.1.processor.proj_lora2.down.weight", &[2, 6]),
        ("double_blocks.1.processor.proj_lora2.up.weight", &[6, 2]),
        (
            "diffusion_model.double_blocks.0.img_mod.lin.lora_A.weight",
            &[2, 6],
        ),
        (
            "diffusion_model.double_blocks.0.img_mod.lin.lora_B.weight",
            &[6, 2],
        ),
    ]))
    .expect("an adapter");
    let targets: Vec<_> = set.entries.iter().map(|e| e.target.as_str()).collect();
    let expected = [
        "double_blocks.0.img_mod.lin",
        "double_blocks.0.processor.qkv_lora1",
        "double_blocks.1.processor.proj_lora2",
    ];
    assert_eq!(targets, expected);
    assert_eq!((set.refused.len(), set.unread.len()), (0, 0));
}

/// kijai/ComfyUI-WanVideoWrapper#807: the difference of a block's own parameter was unknown.
#[test]
fn a21_a_blocks_modulation_has_a_target_of_its_own() {
    let set = read(tensors(&[
        ("diffusion_model.blocks.0.diff_m", &[1, 6, 4]),
        ("diffusion_model.blocks.0.ffn.0.lora_A.weight", &[2, 6]),
        ("diffusion_model.blocks.0.ffn.0.lora_B.weight", &[6, 2]),
    ]))
    .expect("an adapter");
    let expected = ["blocks.0.ffn.0", "blocks.0.modulation"];
    assert_eq!(layers(&set).into_keys().collect::<Vec<_>>(), expected);
}

/// kohya-ss/sd-scripts#1806: CLIP-L has two prefixes.
#[test]
fn a23_clip_is_known_by_its_layers_not_by_its_number() {
    for prefix in ["lora_te_", "lora_te1_", "lora_te2_"] {
        let path = format!("{prefix}text_model_encoder_layers_0_mlp_fc1");
        let set = read(vec![
            (format!("{path}.lora_down.weight"), wave(&[2, 6], 1)),
            (format!("{path}.lora_up.weight"), wave(&[6, 2], 2)),
        ])
        .expect("an adapter");
        let clip = Component::TextEncoder(TextEncoder::Clip);
        assert_eq!(set.entries[0].component, clip);
        assert_eq!(set.entries[0].target, TargetName::Flattened(path));
    }
}

/// A pair under the path `path`.
fn pair(path: &str, [down, up]: [&str; 2], seed: usize) -> Tensors {
    vec![
        (format!("{path}.{down}"), wave(&[2, 6], seed)),
        (format!("{path}.{up}"), wave(&[6, 2], seed + 1)),
    ]
}

const PEFT: [&str; 2] = ["lora_A.weight", "lora_B.weight"];
const KOHYA: [&str; 2] = ["lora_down.weight", "lora_up.weight"];

/// invoke-ai/InvokeAI, `test_conflicting_*_aliases_raise`: the last spelling won in silence.
#[test]
fn a27_two_spellings_of_one_layer_name_both_keys() {
    let spellings = [
        ("diffusion_model.blocks.0.attn.wq", PEFT),
        ("transformer.blocks.0.attn.wq", PEFT),
        ("base_model.model.blocks.0.attn.wq", PEFT),
        ("blocks.0.attn.wq", KOHYA),
        ("lora_unet_blocks_0_attn_wq", KOHYA),
        ("lycoris_blocks_0_attn_wq", KOHYA),
        ("lora_transformer_blocks_0_attn_wq", KOHYA),
    ];
    for (index, (first, tails)) in spellings.iter().enumerate() {
        for (second, others) in &spellings[index + 1..] {
            let (one, other) = (pair(first, *tails, 1), pair(second, *others, 5));
            let error = message(read([one.clone(), other.clone()].concat()));
            let has_both = error.contains(&one[0].0) && error.contains(&other[0].0);
            assert!(has_both, "{first} and {second}: {error}");
            let same = [one, pair(second, *others, 1)].concat();
            let set = read(same).expect("equal tensors are used once");
            assert_eq!((set.entries.len(), set.duplicates.len()), (1, 2));
        }
    }
}

/// `test_conflicting_native_and_diffusers_aliases_raise`: whether these are one layer, the model's name table
/// tells, and the fit to a model refuses the second.
#[test]
fn a27_names_that_only_a_model_equates_are_two_layers() {
    let (native, diffusers) = ("blocks.0.attn.wq", "transformer_blocks.0.attn.to_q");
    let keys = [native, diffusers].map(|layer| pair(&format!("diffusion_model.{layer}"), PEFT, 1));
    let set = read(keys.concat()).expect("an adapter");
    let targets: Vec<_> = set.entries.iter().map(|e| e.target.as_str()).collect();
    assert_eq!(targets, [native, diffusers]);
}

/// invoke-ai/InvokeAI: `all()` over no keys is true, and an empty file was kohya's.
#[test]
fn a28_a_file_of_metadata_alone_holds_no_adapter_tensors() {
    let no_tensors: [(&str, TensorView<'_>); 0] = [];
    let metadata = [("ss_network_dim".to_owned(), "4".to_owned())].into();
    for metadata in [None, Some(metadata)] {
        let bytes = serialize(no_tensors.clone(), metadata).expect("a file");
        let error = PatchSet::from_bytes("style", &Bytes::from(bytes), &device());
        let error = message(error);
        let expected = "`style` holds no adapter tensors: none of its 0 keys";
        assert!(error.starts_with(expected), "{error}");
    }
}

/// invoke-ai/InvokeAI, `test_incomplete_peft_pair_raises_descriptive_error`.
#[test]
fn a_pair_without_its_other_half_names_what_is_missing() {
    for (key, missing) in [
        ("lora_A.weight", "lora_up.weight"),
        ("lora_B.weight", "lora_down.weight"),
    ] {
        let key = format!("transformer.text_fusion.1.attn.to_q.{key}");
        let set = read(tensors(&[(&key, &[2, 6])])).expect("an adapter");
        assert!(set.entries.is_empty());
        let error = set.refused[0].error.to_string();
        let expected = format!("layer `text_fusion.1.attn.to_q`: [\"{missing}\"] missing beside");
        assert!(error.starts_with(&expected), "{error}");
    }
}

/// Black Forest Labs' control adapters have norms' scales beside their factors; a checkpoint has them too.
#[test]
fn the_scale_of_a_norm_is_read_beside_factors_only() {
    let norm = "double_blocks.0.img_attn.norm.query_norm";
    let scale = || (format!("{norm}.scale"), wave(&[4], 9));
    let weight = || ("img_in.weight".to_owned(), wave(&[6, 4], 8));
    let set = read([pair("img_in", PEFT, 1), vec![scale(), weight()]].concat());
    let set = set.expect("an adapter");
    assert_eq!(layers(&set)[norm], [format!("{norm}.scale")]);
    assert_eq!(set.unread, ["img_in.weight"]);
    for other in [vec![], vec![("img_in.alpha".to_owned(), scalar(1.0))]] {
        let error = message(read([vec![scale(), weight()], other].concat()));
        assert!(
            error.starts_with("`file` holds no adapter tensors"),
            "{error}"
        );
    }
}

/// `LyCORIS` stores IA3 as a `weight`, which only the flag beside it tells from a checkpoint's.
#[test]
fn the_weight_of_ia3_is_read_beside_its_flag_only() {
    let flag = || ("lora_unet_a.on_input".to_owned(), scalar(0.0));
    let weight = |layer: &str| (format!("lora_unet_{layer}.weight"), wave(&[6], 1));
    let set = read(vec![weight("a"), flag(), weight("b")]).expect("an adapter");
    assert_eq!(layers(&set)["a"].len(), 2);
    assert_eq!(set.unread, ["lora_unet_b.weight"]);
    let twin = ("diffusion_model.a.on_input".to_owned(), scalar(0.0));
    let set = read(vec![twin, weight("a"), flag()]).expect("an adapter");
    assert_eq!(layers(&set)["a"].len(), 2, "one layer in two spellings");
    assert_eq!(set.duplicates, ["lora_unet_a.on_input"]);
}
