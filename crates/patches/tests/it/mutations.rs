//! Damaged files: thousands of seeded changes to good ones, each of which gives a value or an error.

use std::{collections::HashMap, path::Path};

use burn::tensor::{DType, Tensor, TensorData};
use overglaze_patches::{AdapterConfig, BaseLayer, LayerShape, Patch, PatchEntry, PatchSet};
use safetensors::{Dtype, serialize, tensor::TensorView};

use crate::fixtures::{cast, device, load, scalar, wave};

/// Numbers that look random and are the same in every run (a linear congruential generator).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        let Self(state) = self;
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(*state >> 33).expect("31 bits fit") % limit
    }

    /// Changes up to four bytes, and in one case of four cuts the end off.
    fn mutate(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.below(4) {
            let index = self.below(bytes.len());
            bytes[index] = match self.below(3) {
                0 => bytes[index] ^ 1 << self.below(8),
                // Digits and brackets keep a text parsable more often.
                1 => b"0123456789[]{},:"[self.below(16)],
                _ => u8::try_from(self.below(256)).expect("it is below 256"),
            };
        }
        if self.below(4) == 0 {
            bytes.truncate(self.below(bytes.len()));
        }
        bytes
    }
}

impl Random {
    /// Small whole numbers, often of `shape`, else of some other one.
    fn tensor(&mut self, shape: &[usize]) -> TensorData {
        let mut shape = shape.to_vec();
        while self.below(4) == 0 {
            let size = [0, 1, 2, 4, 5, 6, 8][self.below(7)];
            match self.below(3) {
                0 => shape.push(size),
                1 => drop(shape.pop()),
                _ if shape.is_empty() => {}
                _ => {
                    let axis = self.below(shape.len());
                    shape[axis] = size;
                }
            }
        }
        let numel = shape.iter().product();
        let values = (0..numel).map(|_| self.below(7) as f32).collect();
        let dtype = [DType::F32, DType::F16, DType::I64, DType::U8][self.below(4)];
        cast(TensorData::new::<f32, _>(values, shape), dtype)
    }
}

/// A small file with every tensor the low-rank kind knows, in several dtypes, and a configuration.
fn adapter() -> Vec<u8> {
    let tensors: [(&str, Dtype, TensorData); 8] = [
        ("lora_unet_a.lora_down.weight", Dtype::F32, wave(&[4, 5], 1)),
        ("lora_unet_a.lora_up.weight", Dtype::F32, wave(&[6, 4], 2)),
        ("lora_unet_a.alpha", Dtype::F32, scalar(2.0)),
        (
            "lora_unet_a.bias_indices",
            Dtype::I16,
            TensorData::from([[0_i16, 5], [4, 1]]),
        ),
        ("lora_unet_a.bias_values", Dtype::F32, wave(&[2], 3)),
        (
            "lora_unet_a.bias_size",
            Dtype::I64,
            TensorData::from([6_i64, 5]),
        ),
        (
            "transformer.b.lora_A.default.weight",
            Dtype::F16,
            cast(wave(&[2, 3], 4), DType::F16),
        ),
        (
            "transformer.b.lora_B.default.weight",
            Dtype::BF16,
            cast(wave(&[3, 2], 5), DType::BF16),
        ),
    ];
    let views = tensors.iter().map(|(key, dtype, data)| {
        let view = TensorView::new(*dtype, data.shape().to_vec(), data.as_bytes());
        (*key, view.expect("a view"))
    });
    let config = (String::from("lora_adapter_metadata"), CONFIG.into());
    serialize(views, Some(HashMap::from([config]))).expect("a file")
}

/// What a layer of the good file's first target does with a patch that fits it.
fn use_patch(entry: &PatchEntry) {
    let shape = LayerShape::linear(6, 5);
    if entry.patch.check(&shape).is_ok() {
        let delta = entry.patch.delta_weight(&BaseLayer::of_shape(&shape));
        assert_eq!(delta.expect("no values").expect("ΔW").dims(), [6, 5]);
    }
}

#[test]
fn a_damaged_file_is_a_value_or_an_error() {
    let good = adapter();
    let read = |bytes: Vec<u8>| PatchSet::from_bytes("file", &bytes.into(), &device());
    assert_eq!(read(good.clone()).expect("an adapter").entries.len(), 2);
    let (mut random, mut num_read) = (Random(1), 0);
    for _ in 0..3000 {
        if let Ok(set) = read(random.mutate(&good)) {
            num_read += 1;
            assert_eq!(set.num_keys(), 8, "no key is lost");
            set.entries.iter().for_each(use_patch);
        }
    }
    assert!(
        (1..3000).contains(&num_read),
        "{num_read} of 3000 were read"
    );
}

/// Changes inside the header only, where they are most telling.
#[test]
fn a_damaged_header_is_a_value_or_an_error() {
    let good = adapter();
    let header_bytes = 8 + usize::from(good[0]) + 256 * usize::from(good[1]);
    let (mut random, mut num_read) = (Random(2), 0);
    for _ in 0..3000 {
        let mut bytes = random.mutate(&good[8..header_bytes]);
        bytes.resize(header_bytes - 8, b' ');
        let bytes = [&good[..8], &bytes, &good[header_bytes..]].concat();
        num_read += usize::from(PatchSet::from_bytes("file", &bytes.into(), &device()).is_ok());
    }
    assert!(
        (1..3000).contains(&num_read),
        "{num_read} of 3000 were read"
    );
}

/// What a whole file with other shapes and dtypes would bring to the low-rank kind.
#[test]
fn tensors_of_any_shape_are_a_value_or_an_error() {
    let (mut random, mut num_read) = (Random(4), 0);
    for _ in 0..3000 {
        let mut tensors = vec![
            ("lora_up.weight", random.tensor(&[6, 4])),
            ("lora_down.weight", random.tensor(&[4, 5])),
        ];
        for (key, shape) in [
            ("alpha", &[][..]),
            ("lora_up.bias", &[6]),
            ("bias_indices", &[2, 3]),
            ("bias_values", &[3]),
            ("bias_size", &[2]),
        ] {
            if random.below(3) == 0 {
                tensors.push((key, random.tensor(shape)));
            }
        }
        num_read += usize::from(load(&tensors).is_ok());
    }
    assert!(
        (1..3000).contains(&num_read),
        "{num_read} of 3000 were built"
    );
}

/// The same for every other kind: what is built and fits some layer gives residuals of the layer's shape.
#[test]
fn tensors_of_any_kind_and_shape_are_a_value_or_an_error() {
    let (mut random, mut num_fitting) = (Random(5), 0);
    for _ in 0..300 {
        for shapes in KINDS {
            let tensors: Vec<_> = shapes
                .iter()
                .map(|(key, shape)| (*key, random.tensor(shape)))
                .collect();
            let Ok(patch) = load(&tensors) else { continue };
            for layer in layers() {
                if patch.check(&layer).is_ok() {
                    num_fitting += 1;
                    use_on(patch.as_ref(), &layer);
                }
            }
        }
    }
    assert!(num_fitting > 300, "{num_fitting} patches were used");
}

fn layers() -> [LayerShape; 6] {
    [
        LayerShape::linear(6, 4),
        LayerShape::conv(&[6, 4, 1, 2], 1),
        LayerShape::conv(&[6, 4, 2, 1], 2),
        LayerShape::embedding(6, 4),
        LayerShape::norm(6),
        LayerShape::parameter(&[6, 4]),
    ]
}

fn use_on(patch: &dyn Patch, layer: &LayerShape) {
    let weight = Tensor::ones(layer.matrix(), &device());
    let base = BaseLayer {
        weight: Some(&weight),
        ..BaseLayer::of_shape(layer)
    };
    if let Some(delta) = patch.delta_weight(&base).expect("the base is there") {
        assert_eq!(delta.dims(), layer.matrix());
    }
    if let Some(delta) = patch.delta_bias(&base).expect("the base is there") {
        assert_eq!(delta.dims(), [6]);
    }
    let input = Tensor::ones([2, layer.fan_in()], &device());
    if let Some(output) = patch.sidecar_linear(input) {
        assert_eq!(output.dims(), [2, 6]);
    }
    if let Some(pair) = patch.low_rank() {
        assert_eq!(pair.product().dims(), layer.matrix());
    }
    if let Some(rows) = patch.slice_rows(2..5) {
        rows.check(&layer.with_rows(3)).expect("the rows fit");
    }
}

/// Keys and shapes of a layer `[6, 4]`, or `[6, 4, 1, 2]`.
const KINDS: &[&[(&str, &[usize])]] = &[
    &[
        ("lora_up.weight", &[6, 2]),
        ("lora_mid.weight", &[2, 2, 1, 2]),
        ("lora_down.weight", &[2, 4]),
        ("lora_up.bias", &[6]),
    ],
    &[("lora_embedding_A", &[2, 6]), ("lora_embedding_B", &[4, 2])],
    &[
        ("hada_w1_a", &[6, 2]),
        ("hada_w1_b", &[2, 4]),
        ("hada_w2_a", &[6, 2]),
        ("hada_w2_b", &[2, 4]),
    ],
    &[
        ("hada_w1_a", &[2, 6]),
        ("hada_w1_b", &[2, 4]),
        ("hada_t1", &[2, 2, 1, 2]),
        ("hada_w2_a", &[2, 6]),
        ("hada_w2_b", &[2, 4]),
        ("hada_t2", &[2, 2, 1, 2]),
    ],
    &[("lokr_w1", &[2, 2]), ("lokr_w2", &[3, 2])],
    &[("lokr_w1", &[2, 2]), ("lokr_w2", &[3, 2, 1, 2])],
    &[
        ("lokr_w1_a", &[2, 1]),
        ("lokr_w1_b", &[1, 2]),
        ("lokr_w2_a", &[3, 2]),
        ("lokr_w2_b", &[2, 4]),
        ("alpha", &[]),
    ],
    &[
        ("a1.weight", &[4, 2]),
        ("a2.weight", &[2, 4]),
        ("b1.weight", &[6, 2]),
        ("b2.weight", &[2, 4]),
    ],
    &[("diff", &[6, 4]), ("diff_b", &[6])],
    &[("diff", &[6, 4, 1, 2])],
    &[("diff_b", &[6])],
    &[("w_norm", &[6]), ("b_norm", &[6])],
    &[("scale", &[6])],
    &[("set_weight", &[6, 4]), ("diff_b", &[6])],
    &[
        ("bias_indices", &[1, 2]),
        ("bias_values", &[2]),
        ("bias_size", &[1]),
    ],
];

#[test]
fn a_damaged_configuration_is_a_value_or_an_error() {
    let (mut random, mut num_read) = (Random(3), 0);
    for _ in 0..3000 {
        let text = random.mutate(CONFIG.as_bytes());
        if let Ok(config) = AdapterConfig::from_json(Path::new("c.json"), text) {
            num_read += 1;
            let _ = config.layer("blocks.1.ff").effective_alpha(4);
        }
    }
    assert!(
        (1..3000).contains(&num_read),
        "{num_read} of 3000 were read"
    );
}

const CONFIG: &str = r#"{"peft_type": "LORA", "lora_alpha": 8, "use_rslora": true, "init_lora_weights": true,
    "alpha_pattern": {"blocks\\.[0-9]+\\.ff": 4, "to_q|to_k": 2.5}, "layer_replication": null}"#;
