//! Lookups of rows: against Burn's embedding, and with patches against the rows of the patched weight.

use std::sync::Arc;

use burn::{
    module::Param,
    nn::{Embedding, EmbeddingConfig},
    tensor::{DType, Device, Int, Tensor, TensorData},
};
use overglaze_core::{
    LayerLoader, LoaderConfig, PatchedEmbedding, PatchedLayer, Path, merge, mount, restore, unmount,
};
use overglaze_patches::{Patch, TensorGroup, registry};
use overglaze_stream::MemorySource;

use crate::{
    numbers::{
        assert_close, bits, flex, message, ndarray, packed, plain, roundoff, stored, tensor, wave,
    },
    single::Single,
    test_patch::TestPatch,
    toy::patch_set,
};

/// Rows of one `Q8_0` block.
const SHAPE: [usize; 2] = [10, 32];

/// A product of two thin factors, in two orders.
const TOLERANCE: f32 = 1e-5;

fn burn_layer(dtype: DType) -> Embedding {
    let mut embedding = EmbeddingConfig::new(SHAPE[0], SHAPE[1]).init(&flex());
    embedding.weight = Param::from_tensor(tensor::<2>(SHAPE, 1, &flex(), dtype));
    embedding
}

fn ids(device: &Device) -> Tensor<2, Int> {
    let ids = TensorData::from([[3_i64, 0, 3], [9, 1, 3]]);
    Tensor::from_data(ids, (device, DType::I64))
}

/// Row of each of [`ids`].
const ROWS: [usize; 6] = [3, 0, 3, 9, 1, 3];

/// The rows of `weight` that [`ids`] look up.
fn looked_up(weight: &Tensor<2>) -> Tensor<3> {
    let rows = ROWS.map(|row| weight.clone().slice([row..row + 1, 0..SHAPE[1]]));
    Tensor::cat(rows.to_vec(), 0).reshape([2, 3, SHAPE[1]])
}

fn loaded(tag: &str, config: LoaderConfig) -> PatchedEmbedding {
    let mut source = MemorySource::new("tokens.safetensors");
    let bytes = stored(&wave(&SHAPE, 1), tag);
    source
        .insert("tokens.weight", tag, SHAPE.to_vec(), bytes)
        .expect("the size is right");
    let mut loader = LayerLoader::new(Arc::new(source), config);
    let layer = loader.embedding("tokens").expect("it is there");
    loader.finish().expect("it fits the budget");
    layer
}

fn lora(rank: usize, seed: usize) -> Arc<dyn Patch> {
    let tensors = [
        ("lora_up.weight", wave(&[SHAPE[0], rank], seed)),
        ("lora_down.weight", wave(&[rank, SHAPE[1]], seed + 1)),
    ];
    let tensors = tensors.map(|(key, data)| (String::from(key), data));
    let group = TensorGroup::new("layer", tensors.into());
    registry::load(group, &flex()).expect("the factors fit")
}

#[test]
fn a_bare_layer_gives_the_rows_of_burns() {
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let burn = burn_layer(dtype);
        let expected = burn.forward(ids(&flex()));
        let layer = PatchedEmbedding::from(burn);
        let output = layer.forward(ids(&flex()));
        assert_eq!((output.dims(), output.dtype()), (expected.dims(), dtype));
        assert_eq!(bits(&output), bits(&expected), "{dtype:?}");
        assert_eq!(layer.path(&flex()).expect("it is there"), Path::Native);
    }
}

#[test]
fn packed_rows_are_the_decoded_weights() {
    for (tag, dtype) in [
        ("F32", DType::F32),
        ("BF16", DType::BF16),
        ("F16", DType::F16),
        ("Q8_0", DType::F32),
    ] {
        let resident = loaded(tag, LoaderConfig::resident(flex()));
        let (weight, _) = resident.base_values(&flex()).expect("it is there");
        let output = resident.forward(ids(&flex()));
        assert_eq!((output.dims(), output.dtype()), ([2, 3, 32], dtype));
        assert_eq!(bits(&output), bits(&looked_up(&weight)), "{tag}");
        let streamed = loaded(tag, LoaderConfig::streamed(flex(), 4096));
        assert!(!streamed.is_resident());
        let again = streamed.forward(ids(&flex()));
        assert_eq!(
            (bits(&again), again.dtype()),
            (bits(&output), dtype),
            "{tag}"
        );
    }
}

#[test]
fn patches_add_their_rows() {
    let bases = [
        ("burn", PatchedEmbedding::from(burn_layer(DType::F32))),
        ("burn bf16", burn_layer(DType::BF16).into()),
        ("f32", loaded("F32", LoaderConfig::resident(flex()))),
        ("f16", loaded("F16", LoaderConfig::resident(flex()))),
        ("q8_0", loaded("Q8_0", LoaderConfig::resident(flex()))),
        (
            "streamed",
            loaded("Q8_0", LoaderConfig::streamed(flex(), 4096)),
        ),
    ];
    for (name, mut layer) in bases {
        let (weight, _) = layer.base_values(&flex()).expect("it is there");
        let before = layer.forward(ids(&flex()));
        let dense = TestPatch::new(Some(plain(SHAPE, 40)), None);
        for (adapter, patch, strength) in [
            ("lora", lora(2, 20), 0.5),
            ("dense", dense.shared(), -0.25),
            ("gain", TestPatch::gain(0.5).shared(), 2.0),
            ("idle", lora(3, 60), 0.0),
        ] {
            layer.add_patch(adapter, patch, strength).expect("it fits");
        }
        assert_eq!(layer.path(&flex()).expect("it is there"), Path::Patched);
        let product = plain([SHAPE[0], 2], 20).matmul(plain([2, SHAPE[1]], 21));
        let patched =
            weight.mul_scalar(2.0) + product.mul_scalar(0.5) - plain(SHAPE, 40).mul_scalar(0.25);
        let output = layer.forward(ids(&flex()));
        assert_eq!(output.dtype(), before.dtype());
        let tolerance = TOLERANCE + roundoff(output.dtype()) * 4.0;
        assert_close(name, &output, &looked_up(&patched), tolerance);
        let again = layer.forward(ids(&flex()));
        assert_eq!(bits(&again), bits(&output), "{name}");
        layer.clear_patches();
        assert_eq!(bits(&layer.forward(ids(&flex()))), bits(&before), "{name}");
    }
}

#[test]
fn a_packed_weight_is_decoded_once_a_pass() {
    let mut layer = loaded("Q8_0", LoaderConfig::resident(flex()));
    let _ = layer.forward(ids(&flex()));
    assert_eq!(layer.traffic().num_decodes(), 1);
    for (name, gain) in [("one", 0.5), ("two", 2.0)] {
        layer
            .add_patch(name, TestPatch::gain(gain).shared(), 1.0)
            .expect("it fits");
    }
    for pass in 2..4 {
        let _ = layer.forward(ids(&flex()));
        assert_eq!(layer.traffic().num_decodes(), pass);
    }
}

#[test]
fn merging_equals_mounting_and_is_undone_exactly() {
    for dtype in [DType::F32, DType::BF16] {
        let mut model = Single::new(PatchedEmbedding::from(burn_layer(dtype)));
        let base = bits(&model.layer.forward(ids(&flex())));
        let set = patch_set(vec![("layer", lora(2, 20))]);
        mount(&mut model, "set", &set, 0.5).expect("it fits");
        let expected = model.layer.forward(ids(&flex()));
        unmount(&mut model, "set").expect("it is there");
        merge(&mut model, &[("set", &set, 0.5)]).expect("it fits");
        let merged = model.layer.forward(ids(&flex()));
        assert_eq!(merged.dtype(), dtype);
        // Both round the same f32 sum once.
        assert_eq!(bits(&merged), bits(&expected));
        assert_ne!(bits(&merged), base);
        restore(&mut model);
        assert_eq!(bits(&model.layer.forward(ids(&flex()))), base);
    }
}

#[test]
fn indices_without_a_row_are_refused() {
    for layer in [
        PatchedEmbedding::from(burn_layer(DType::F32)),
        loaded("Q8_0", LoaderConfig::resident(flex())),
    ] {
        for id in [10_i64, -1, i64::MAX] {
            let ids =
                Tensor::<2, Int>::from_data(TensorData::from([[0, id]]), (&flex(), DType::I64));
            let expected =
                format!("the index {id} is outside the embedding, which has the rows 0..10");
            assert_eq!(message(layer.try_forward(ids)), expected);
        }
        let none = Tensor::<2, Int>::from_data(
            TensorData::new(Vec::<i64>::new(), [2, 0]),
            (&flex(), DType::I64),
        );
        assert_eq!(layer.forward(none).dims(), [2, 0, 32]);
        let one = Tensor::<1, Int>::from_data([4], (&flex(), DType::I64));
        let row = layer.try_rows(&one).expect("it is there");
        let (weight, _) = layer.base_values(&flex()).expect("it is there");
        assert_eq!(bits(&row), bits(&weight.slice([4..5, 0..32])));
    }
}

#[test]
fn a_residual_on_the_bias_has_no_meaning() {
    let mut layer = PatchedEmbedding::from(burn_layer(DType::F32));
    let patch = TestPatch::new(None, Some(plain([SHAPE[0]], 5)));
    let found = message(layer.add_patch("bias", patch.shared(), 1.0));
    assert!(found.contains("has no meaning on an embedding"), "{found}");
    let set = patch_set(vec![("layer", patch.shared())]);
    let found = message(mount(&mut Single::new(layer), "set", &set, 1.0));
    assert!(found.contains("has no meaning on an embedding"), "{found}");
}

#[test]
fn a_weight_elsewhere_follows_the_indices_unless_told_not_to() {
    let nd = ndarray();
    for mut layer in [
        PatchedEmbedding::from(burn_layer(DType::F32)),
        PatchedEmbedding::from_weight(packed("q8_0", SHAPE, 1), flex()),
    ] {
        let expected = layer.forward(ids(&flex()));
        let output = layer.forward(ids(&nd));
        assert_eq!(output.device(), nd);
        assert_eq!(bits(&output), bits(&expected));
        layer.set_autocast(false);
        let is_dense = layer.weight.is_some();
        assert_eq!(layer.try_forward(ids(&nd)).is_err(), is_dense);
    }
}

#[test]
fn parameters_are_shared_with_burns_layer() {
    let burn = burn_layer(DType::F32);
    let id = burn.weight.id;
    let layer = PatchedEmbedding::from(burn);
    assert_eq!(layer.into_inner().expect("it is Burn's").weight.id, id);
    let refused =
        "the layer's weight is packed or streamed, so there is no Burn layer to hand back";
    let packed = loaded("BF16", LoaderConfig::resident(flex()));
    assert_eq!(message(packed.into_inner()), refused);
}
