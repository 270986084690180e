//! The layers of checkpoints of every family, and the names other programs have for them.

use burn::tensor::{Device, TensorData};
use overglaze_core::KeyOutcome;
use overglaze_models::families::FAMILIES;
use overglaze_patches::{LayerShape, PatchSet};

use crate::catalogs::{FLUX_BFL, FLUX_DIFFUSERS, below, catalog, check};

#[test]
fn every_family_has_its_own_name_and_markers() {
    let mut names: Vec<_> = FAMILIES.iter().map(|family| family.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), FAMILIES.len());
    for family in FAMILIES {
        assert!(!family.markers.is_empty(), "{}", family.name);
        assert!(family.markers.iter().all(|markers| !markers.is_empty()));
    }
}

#[test]
fn tensors_become_layers() {
    let catalog = catalog(&[
        ("a.linear.weight", &[6, 4]),
        ("a.linear.bias", &[6]),
        ("a.conv.weight", &[6, 4, 3, 3]),
        ("a.norm.weight", &[4]),
        ("a.query_norm.scale", &[4]),
        ("a.token_embedding.weight", &[9, 4]),
        ("a.attn.in_proj_weight", &[12, 4]),
        ("a.attn.in_proj_bias", &[12]),
        ("a.modulation", &[1, 6, 4]),
        ("a.position_ids", &[1, 7]),
        ("flag", &[]),
        ("empty", &[0]),
    ]);
    let expected = [
        (
            "a.attn.in_proj",
            LayerShape::linear(12, 4),
            Some("a.attn.in_proj_bias"),
        ),
        ("a.conv", LayerShape::conv(&[6, 4, 3, 3], 1), None),
        ("a.linear", LayerShape::linear(6, 4), Some("a.linear.bias")),
        ("a.modulation", LayerShape::parameter(&[1, 6, 4]), None),
        ("a.norm", LayerShape::norm(4), None),
        ("a.query_norm", LayerShape::norm(4), None),
        ("a.token_embedding", LayerShape::embedding(9, 4), None),
    ];
    let found: Vec<_> = catalog.layers().iter().collect();
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for ((path, layer), (name, shape, bias)) in found.into_iter().zip(expected) {
        assert_eq!((path.as_str(), &layer.shape), (name, &shape));
        assert_eq!(layer.bias.as_deref(), bias, "{name}");
    }
    assert!(catalog.families().is_empty());
}

/// The denoiser's layers lose the prefix, whatever it is; the tensors keep it.
#[test]
fn a_model_is_found_below_any_prefix() {
    for prefix in ["", "model.diffusion_model.", "net.", "some.wrapper."] {
        let catalog = below(prefix, FLUX_BFL);
        assert_eq!(catalog.families(), ["FLUX.1"], "{prefix}");
        let layer = &catalog.layers()["img_in"];
        assert_eq!(layer.weight, format!("{prefix}img_in.weight"));
        assert!(layer.shape.has_open_input());
        assert!(!catalog.layers()["txt_in"].shape.has_open_input());
    }
}

#[test]
fn trainers_names_of_flux_stand_for_rows() {
    let bfl = catalog(FLUX_BFL);
    let qkv = "double_blocks.0.img_attn.qkv";
    check(
        &bfl,
        "double_blocks.0.processor.qkv_lora1",
        &format!("{qkv} 0..24<-0..24"),
    );
    check(
        &bfl,
        "double_blocks.0.processor.qkv_lora2",
        "double_blocks.0.txt_attn.qkv 0..24<-0..24",
    );
    check(
        &bfl,
        "double_blocks.0.img_attn.qkv.1",
        &format!("{qkv} 8..16<-0..8"),
    );
    check(
        &bfl,
        "single_blocks.0.processor.qkv_lora",
        "single_blocks.0.linear1 0..24<-0..24",
    );
    check(
        &bfl,
        "single_blocks.0.linear1.3",
        "single_blocks.0.linear1 24..56<-0..32",
    );
    check(
        &bfl,
        "single_blocks.0.processor.proj_lora",
        "single_blocks.0.linear2 0..8<-0..8",
    );
    let diffusers = catalog(FLUX_DIFFUSERS);
    let single = |name: &str| format!("single_transformer_blocks.0.{name}");
    check(
        &diffusers,
        "single_blocks.0.linear1",
        &format!(
            "{} 0..8<-0..8, {} 0..8<-8..16, {} 0..8<-16..24, {} 0..32<-24..56",
            single("attn.to_q"),
            single("attn.to_k"),
            single("attn.to_v"),
            single("proj_mlp")
        ),
    );
    check(
        &diffusers,
        "single_blocks.0.linear1.3",
        &format!("{} 0..32<-0..32", single("proj_mlp")),
    );
}

/// Each family's own name of a layer, and another program's.
#[test]
#[expect(clippy::too_many_lines, reason = "a table, one family after another")]
fn families_know_both_names() {
    let check_both =
        |markers: &[(&str, &[usize])], own: &str, shape: &[usize], other: &str, rows: &str| {
            let tensor = format!("{own}.weight");
            let tensors = [markers, &[(tensor.as_str(), shape)]].concat();
            check(&catalog(&tensors), other, &format!("{own} {rows}"));
        };
    let wan: &[(&str, &[usize])] = &[
        ("blocks.0.self_attn.q.weight", &[8, 8]),
        ("blocks.0.cross_attn.q.weight", &[8, 8]),
    ];
    check_both(
        wan,
        "blocks.3.self_attn.o",
        &[8, 8],
        "blocks.3.attn1.to_out.0",
        "0..8<-0..8",
    );
    check_both(
        wan,
        "blocks.3.cross_attn.k_img",
        &[8, 8],
        "blocks.3.attn2.add_k_proj",
        "0..8<-0..8",
    );
    check_both(wan, "head.head", &[8, 8], "proj_out", "0..8<-0..8");
    let krea2: &[(&str, &[usize])] = &[
        ("txtfusion.projector.weight", &[1, 12]),
        ("blocks.0.attn.wq.weight", &[8, 8]),
    ];
    check_both(
        krea2,
        "txtfusion.layerwise_blocks.1.mlp.down",
        &[8, 8],
        "text_fusion.layerwise_blocks.1.ff.down",
        "0..8<-0..8",
    );
    let anima: &[(&str, &[usize])] = &[
        ("blocks.0.self_attn.q_proj.weight", &[8, 8]),
        ("x_embedder.proj.1.weight", &[8, 8]),
    ];
    let modulation = "blocks.2.adaln_modulation_cross_attn.1";
    check_both(
        anima,
        modulation,
        &[4, 8],
        "transformer_blocks.2.norm2.linear_1",
        "0..4<-0..4",
    );
    let z_image: &[(&str, &[usize])] = &[
        ("layers.0.attention.qkv.weight", &[24, 8]),
        ("cap_embedder.1.weight", &[8, 8]),
    ];
    let refiner = "noise_refiner.1.attention.qkv";
    check_both(
        z_image,
        refiner,
        &[24, 8],
        "noise_refiner.1.attention.to_k",
        "8..16<-0..8",
    );
    let sd3: &[(&str, &[usize])] = &[("joint_blocks.0.x_block.attn.qkv.weight", &[24, 8])];
    let context = "joint_blocks.1.context_block.attn.qkv";
    check_both(
        sd3,
        context,
        &[24, 8],
        "transformer_blocks.1.attn.add_v_proj",
        "16..24<-0..8",
    );
    let flux2: &[(&str, &[usize])] = &[("double_stream_modulation_img.lin.weight", &[48, 8])];
    let fused = "single_blocks.4.linear1";
    let other = "single_transformer_blocks.4.attn.to_qkv_mlp_proj";
    check_both(flux2, fused, &[56, 8], other, "0..56<-0..56");
}

/// Both encoders of SDXL as Stability saves them, one of them with query, key and value in one parameter.
#[test]
fn text_encoders_answer_to_every_programs_name() {
    let clip = "conditioner.embedders.0.transformer.text_model.encoder.layers.0.self_attn.q_proj";
    let open_clip = "conditioner.embedders.1.model.transformer.resblocks.0.attn";
    let catalog = catalog(&[
        (&format!("{clip}.weight"), &[8, 8]),
        (&format!("{open_clip}.in_proj_weight"), &[3840, 1280]),
        (&format!("{open_clip}.out_proj.weight"), &[1280, 1280]),
    ]);
    assert_eq!(
        catalog.families(),
        ["CLIP text encoder", "OpenCLIP text encoder"]
    );
    let path = "text_model.encoder.layers.0.self_attn";
    for encoder in [
        "lora_te",
        "lora_te1",
        "text_encoder",
        "text_encoders.clip_l.transformer",
    ] {
        check(
            &catalog,
            &format!("{encoder}.{path}.q_proj"),
            &format!("{clip} 0..8<-0..8"),
        );
    }
    for encoder in [
        "lora_te2",
        "text_encoder_2",
        "text_encoders.clip_g.transformer",
    ] {
        check(
            &catalog,
            &format!("{encoder}.{path}.k_proj"),
            &format!("{open_clip}.in_proj 1280..2560<-0..1280"),
        );
    }
}

#[test]
fn a_text_encoder_the_model_lacks_is_said_so() {
    let set = PatchSet::from_tensors(
        "adapter",
        [
            (
                "lora_te1_text_model_encoder_layers_0_mlp_fc1.lora_down.weight",
                [1, 8],
            ),
            (
                "lora_te1_text_model_encoder_layers_0_mlp_fc1.lora_up.weight",
                [8, 1],
            ),
        ]
        .map(|(key, shape)| (key.to_owned(), TensorData::new(vec![1.0_f32; 8], shape))),
        None,
        &Device::flex(),
    );
    let report = catalog(FLUX_BFL).fit(&set.unwrap()).unwrap().report;
    let outcome = &report.targets[0].outcome;
    assert!(
        matches!(outcome, KeyOutcome::NotLoaded { .. }),
        "{outcome:?}"
    );
    assert_eq!(report.keys_unmatched(), 2);
    assert_eq!(
        outcome.reason(),
        "it is for a CLIP text encoder, and this model does not hold the layer"
    );
}
