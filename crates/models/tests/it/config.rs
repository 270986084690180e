//! Inference of the geometry from tensors, and documents that contradict it.

use overglaze_models::{FluxConfig, FluxConfigFile, FluxModel, TensorShapes, flux::Naming};

use crate::golden::{self, CHECKPOINTS};

fn golden_config() -> FluxConfig {
    FluxConfig {
        in_channels: 16,
        out_channels: 16,
        num_layers: 2,
        num_single_layers: 2,
        attention_head_dim: 16,
        num_attention_heads: 4,
        joint_attention_dim: 32,
        pooled_projection_dim: 16,
        guidance_embeds: true,
        axes_dims_rope: vec![4, 6, 6],
    }
}

fn infer(file: &str, config: Option<&FluxConfigFile>) -> Result<FluxConfig, String> {
    let shapes = TensorShapes::of(golden::source(file).as_ref());
    let (naming, _) = Naming::detect(&shapes).unwrap();
    FluxConfig::infer(&shapes, naming, config).map_err(|error| error.to_string())
}

#[test]
fn both_namings_tell_the_geometry() {
    let axes = FluxConfigFile {
        axes_dims_rope: Some(vec![4, 6, 6]),
        ..Default::default()
    };
    for file in CHECKPOINTS {
        assert_eq!(infer(file, Some(&axes)).unwrap(), golden_config());
        assert_eq!(
            infer(file, Some(&golden::config())).unwrap(),
            golden_config()
        );
        let message = infer(file, None).unwrap_err();
        assert!(
            message.contains("head width 16")
                && message.contains("--config")
                && message.contains(file),
            "{message}"
        );
    }
}

#[test]
fn flux1_dev_needs_no_document() {
    let json = include_str!("../data/flux1_dev_bfl_shapes.json");
    let shapes = TensorShapes::new("dev", serde_json::from_str::<Shapes>(json).unwrap());
    let config = FluxConfig::infer(&shapes.below("model.diffusion_model."), Naming::Bfl, None);
    let config = config.unwrap();
    assert_eq!(config.axes_dims_rope, [16, 56, 56]);
    assert_eq!([config.num_layers, config.num_single_layers], [19, 38]);
    assert_eq!(
        [config.num_attention_heads, config.attention_head_dim],
        [24, 128]
    );
    assert_eq!(
        [config.joint_attention_dim, config.pooled_projection_dim],
        [4096, 768]
    );
    assert_eq!([config.in_channels, config.out_channels], [64, 64]);
    assert!(config.guidance_embeds);
}

type Shapes = std::collections::BTreeMap<String, Vec<usize>>;

#[test]
fn a_contradiction_names_both_sides() {
    type Change = fn(&mut FluxConfigFile);
    let cases: [(&str, Change); 9] = [
        ("in_channels = 64, but the tensors say 16", |c| {
            c.in_channels = Some(64);
        }),
        ("out_channels = 8, but the tensors say 16", |c| {
            c.out_channels = Some(8);
        }),
        ("num_layers = 19, but the tensors say 2", |c| {
            c.num_layers = Some(19);
        }),
        ("num_single_layers = 38, but the tensors say 2", |c| {
            c.num_single_layers = Some(38);
        }),
        ("attention_head_dim = 32, but the tensors say 16", |c| {
            c.attention_head_dim = Some(32);
        }),
        ("num_attention_heads = 2, but the tensors say 4", |c| {
            c.num_attention_heads = Some(2);
        }),
        ("joint_attention_dim = 1, but the tensors say 32", |c| {
            c.joint_attention_dim = Some(1);
        }),
        ("pooled_projection_dim = 1, but the tensors say 16", |c| {
            c.pooled_projection_dim = Some(1);
        }),
        ("guidance_embeds = false, but the tensors say true", |c| {
            c.guidance_embeds = Some(false);
        }),
    ];
    for file in CHECKPOINTS {
        for (expected, change) in &cases {
            let mut config = golden::config();
            change(&mut config);
            let message = infer(file, Some(&config)).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }
}

#[test]
fn impossible_rotary_axes_are_refused() {
    let cases: [(&[usize], &str); 6] = [
        (&[], "3 axes"),
        (&[8, 8], "3 axes"),
        (&[3, 7, 6], "even widths above 0"),
        (&[0, 8, 8], "even widths above 0"),
        (&[4, 6, 4], "a sum of attention_head_dim = 16"),
        (&[usize::MAX - 1, 4, 14], "a sum of attention_head_dim = 16"),
    ];
    for (axes, expected) in cases {
        let config = FluxConfigFile {
            axes_dims_rope: Some(axes.to_vec()),
            ..Default::default()
        };
        let message = infer(CHECKPOINTS[0], Some(&config)).unwrap_err();
        assert!(
            message.contains(expected) && message.contains("axes_dims_rope"),
            "{message}"
        );
    }
}

#[test]
fn impossible_sizes_are_refused() {
    type Change = fn(&mut FluxConfig);
    let cases: [(&str, Change); 7] = [
        ("in_channels = 0, expected 1 to", |c| c.in_channels = 0),
        ("out_channels = 0, expected 1 to", |c| c.out_channels = 0),
        ("num_attention_heads = 0", |c| c.num_attention_heads = 0),
        ("num_attention_heads = 1048576", |c| {
            c.num_attention_heads = 1 << 20;
        }),
        ("pooled_projection_dim = 18446744073709551615", |c| {
            c.pooled_projection_dim = usize::MAX;
        }),
        ("num_layers = 5000, expected at most 4096", |c| {
            c.num_layers = 5000;
        }),
        ("num_layers = 0, expected at least one", |c| {
            (c.num_layers, c.num_single_layers) = (0, 0);
        }),
    ];
    assert!(golden_config().check().is_ok());
    for (expected, change) in cases {
        let mut config = golden_config();
        change(&mut config);
        let message = config.check().unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn documents_of_other_networks_are_refused() {
    let parse = |json: &str| FluxConfigFile::from_json(json.as_bytes()).map_err(|e| e.to_string());
    assert!(parse(r#"{"_class_name": "FluxTransformer2DModel", "out_channels": null}"#).is_ok());
    assert!(parse("{}").is_ok());
    let cases = [
        (
            r#"{"_class_name": "SD3Transformer2DModel"}"#,
            "is of the network `SD3Transformer2DModel`, expected FluxTransformer2DModel",
        ),
        (r#"{"patch_size": 2}"#, "patch_size = 2, expected 1"),
        (r#"{"num_layers": -1}"#, "is not JSON of the expected form"),
        (r#"{"num_layers": "2"}"#, "is not JSON of the expected form"),
        ("", "is not JSON of the expected form"),
        ("[1]", "is not JSON of the expected form"),
    ];
    for (json, expected) in cases {
        let message = parse(json).unwrap_err();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_config_survives_the_round_trip() {
    let json = serde_json::to_vec(&FluxConfigFile::from(golden_config())).unwrap();
    let file = FluxConfigFile::from_json(&json).unwrap();
    assert_eq!(infer(CHECKPOINTS[1], Some(&file)).unwrap(), golden_config());
}

#[test]
fn damaged_checkpoints_are_refused() {
    type Edit = fn(&str, &[usize]) -> Option<(String, Vec<usize>)>;
    let keep = |name: &str, shape: &[usize]| Some((name.to_owned(), shape.to_vec()));
    assert!(FluxModel::load(golden::edited(CHECKPOINTS[0], keep), golden::options()).is_ok());
    let cases: [(&str, Edit); 6] = [
        ("`transformer_blocks.1.ff.net.2.weight`", |name, shape| {
            (name != "transformer_blocks.1.ff.net.2.weight").then(|| (name.into(), shape.into()))
        }),
        (
            "`transformer_blocks.0.attn.norm_q.weight`",
            |name, shape| {
                let is_norm = name == "transformer_blocks.0.attn.norm_q.weight";
                Some((name.into(), if is_norm { vec![4, 4] } else { shape.into() }))
            },
        ),
        (
            "`transformer_blocks.0.attn.norm_added_q.weight` has shape [8], expected [16]",
            |n, s| {
                let is_norm = n == "transformer_blocks.0.attn.norm_added_q.weight";
                Some((n.into(), if is_norm { vec![8] } else { s.into() }))
            },
        ),
        ("`x_embedder.weight` has shape [64]", |name, shape| {
            Some((
                name.into(),
                if name == "x_embedder.weight" {
                    vec![64]
                } else {
                    shape.into()
                },
            ))
        }),
        ("`x_embedder.weight` has shape [60, 16]", |name, shape| {
            let is_it = name == "x_embedder.weight";
            Some((name.into(), if is_it { vec![60, 16] } else { shape.into() }))
        }),
        (
            "`single_transformer_blocks.1.proj_mlp.weight` has shape [128, 64], expected [256, 64]",
            {
                |name, shape| {
                    let rows = [128, 64];
                    let is_it = name.starts_with("single_transformer_blocks.1.proj_mlp.");
                    let shape = if is_it {
                        rows[..shape.len()].into()
                    } else {
                        shape.into()
                    };
                    Some((name.into(), shape))
                }
            },
        ),
    ];
    for (expected, edit) in cases {
        let result = FluxModel::load(golden::edited(CHECKPOINTS[0], edit), golden::options());
        let message = result.map(|_| ()).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}
