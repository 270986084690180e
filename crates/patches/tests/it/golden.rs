//! Outputs of `InvokeAI` (see `tests/data/README.md`), by sidecar and by residual.

use std::{collections::BTreeMap, fs, sync::Arc};

use burn::tensor::{DType, FloatDType, Tensor, TensorData};
use overglaze_patches::{Patch, RowPart, RowRanges, TensorGroup, registry};
use safetensors::SafeTensors;

use crate::fixtures::{assert_close, delta, device, matrix};

struct Case {
    tensors: BTreeMap<String, TensorData>,
    strength: f32,
    expect: String,
    expect_merged: Vec<String>,
}

#[derive(serde::Deserialize)]
struct Mounted {
    weight: f32,
}

/// Reads one case.
fn read(name: &str) -> Case {
    let path = format!(
        "{}/tests/data/{name}.safetensors",
        env!("CARGO_MANIFEST_DIR")
    );
    let bytes = fs::read(path).expect("the case is there");
    let (_, header) = SafeTensors::read_metadata(&bytes).expect("a safetensors file");
    let metadata = header.metadata().clone().expect("metadata");
    let views = SafeTensors::deserialize(&bytes)
        .expect("a safetensors file")
        .tensors();
    let tensors = views.into_iter().map(|(key, view)| {
        let dtype = match view.dtype() {
            safetensors::Dtype::F32 => DType::F32,
            safetensors::Dtype::F16 => DType::F16,
            safetensors::Dtype::BF16 => DType::BF16,
            safetensors::Dtype::I64 => DType::I64,
            other => panic!("{key} has dtype {other:?}"),
        };
        (
            key,
            TensorData::from_bytes_vec(view.data().to_vec(), view.shape(), dtype),
        )
    });
    let patches: Vec<Mounted> = serde_json::from_str(&metadata["patches"]).expect("JSON");
    let merged = metadata
        .get("expect_merged")
        .map(String::as_str)
        .unwrap_or_default();
    Case {
        tensors: tensors.collect(),
        strength: patches[0].weight,
        expect: metadata["expect"].clone(),
        expect_merged: merged.split_terminator(',').map(String::from).collect(),
    }
}

impl Case {
    fn tensor<const D: usize>(&self, key: &str) -> Tensor<D> {
        Tensor::from_data(self.tensors[key].clone(), (&device(), DType::F32))
    }

    fn patch(&self, prefix: &str) -> Arc<dyn Patch> {
        let tensors = self
            .tensors
            .iter()
            .filter_map(|(key, data)| Some((key.strip_prefix(prefix)?.to_owned(), data.clone())));
        let group = TensorGroup {
            target: prefix.into(),
            tensors: tensors.collect(),
        };
        registry::load(group, &device()).expect("the patch is understood")
    }

    /// Base, plus strength times the patch, by both paths; `compute` is the copy's dtype.
    fn check(&self, patch: &dyn Patch, compute: FloatDType, tolerance: f32) {
        let patch = patch.to_device(&device(), compute);
        let (x, weight) = (self.tensor::<2>("in.x"), self.tensor::<2>("param.weight"));
        let shape = weight.dims();
        let bias = self
            .tensors
            .contains_key("param.bias")
            .then(|| self.tensor::<1>("param.bias"));
        let delta_bias = patch
            .delta_bias()
            .map(|bias| bias.mul_scalar(self.strength));
        let bias = match (bias, delta_bias) {
            (Some(bias), Some(delta)) => Some(bias + delta),
            (bias, delta) => bias.or(delta),
        };
        let sidecar = patch
            .sidecar_linear(x.clone())
            .expect("a low-rank patch has a sidecar");
        let by_sidecar =
            x.clone().matmul(weight.clone().transpose()) + sidecar.mul_scalar(self.strength);
        let merged = weight + delta(patch.as_ref(), shape).mul_scalar(self.strength);
        let by_merge = x.matmul(merged.clone().transpose());
        for output in [by_sidecar, by_merge] {
            let output = match &bias {
                Some(bias) => output + bias.clone().unsqueeze(),
                None => output,
            };
            assert_close(output, self.tensor(&self.expect), tolerance);
        }
        for key in &self.expect_merged {
            match key.rsplit_once('.').expect("a parameter").1 {
                "weight" => assert_close(merged.clone(), self.tensor(key), tolerance),
                "bias" => {
                    assert_close(bias.clone().expect("a bias"), self.tensor(key), tolerance);
                }
                other => panic!("unknown parameter {other}"),
            }
        }
    }
}

/// The case's own suggestion: f32 sums of 16 and 4 products of numbers near 1.
const F32: f32 = 1e-5;

#[test]
fn lora() {
    for name in [
        "linear_lora_alpha2_bias_f32",
        "linear_lora_alpha2_nobias_f32",
        "linear_lora_noalpha_bias_f32",
        "linear_lora_noalpha_nobias_f32",
        "linear_lora_negweight_bias_f32",
        "linear_lora_negweight_nobias_f32",
        "linear_lora_dense_bias_bias_f32",
        "linear_lora_dense_bias_nobias_f32",
        "linear_lora_rank_mismatch_bias_f32",
        "linear_lora_rank_mismatch_nobias_f32",
        "linear_lora_sparse_bias_bias_f32",
    ] {
        let case = read(name);
        case.check(case.patch("patch.0.").as_ref(), FloatDType::F32, F32);
    }
}

/// The peer rounds its output to the dtype: 8 and 11 bits of numbers up to about 4.
#[test]
fn half_precision() {
    for (name, compute, tolerance) in [
        ("linear_lora_alpha2_bias_bf16", FloatDType::BF16, 0.03),
        ("linear_lora_alpha2_bias_f16", FloatDType::F16, 0.004),
    ] {
        let case = read(name);
        let patch = case.patch("patch.0.");
        case.check(patch.as_ref(), compute, tolerance);
        case.check(patch.as_ref(), FloatDType::F32, tolerance);
    }
}

#[test]
fn fused_rows() {
    for name in ["linear_merged_qkv_bias_f32", "linear_merged_qkv_nobias_f32"] {
        let case = read(name);
        let parts = (0..3_usize).map(|part| RowPart {
            rows: 8 * part..8 * (part + 1),
            patch: case.patch(&format!("patch.0.sub.{part}.")),
        });
        let patch = RowRanges::new(24, parts.collect()).expect("the parts lie apart");
        case.check(&patch, FloatDType::F32, F32);
    }
}

/// The cut rows of the whole patch give the same rows of the output.
#[test]
fn split_rows() {
    let case = read("linear_lora_dense_bias_bias_f32");
    let (whole, rows) = (case.patch("patch.0."), 8..20);
    let x = matrix(case.tensors["in.x"].clone());
    let expected = whole
        .sidecar_linear(x.clone())
        .expect("a sidecar")
        .slice([0..5, rows.clone()]);
    let part = overglaze_patches::slice_rows(&whole, rows.clone());
    assert_close(part.sidecar_linear(x).expect("a sidecar"), expected, F32);
    let expected = whole.delta_bias().expect("a bias").slice([rows]);
    assert_close(part.delta_bias().expect("a bias"), expected, F32);
}
