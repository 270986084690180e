//! Convolutions against Burn's own, with patches against Burn's over the patched weight.

use std::sync::Arc;

use burn::{
    module::Param,
    nn::{
        PaddingConfig1d, PaddingConfig2d, PaddingConfig3d,
        conv::{Conv1d, Conv1dConfig, Conv2d, Conv2dConfig, Conv3d, Conv3dConfig},
    },
    tensor::{DType, Tensor},
};
use overglaze_core::{
    BaseWeights, Error, LayerLoader, LoaderConfig, PatchedConv2d, PatchedConv3d, PatchedLayer,
    Path, Weight, merge, mount, restore, unmount,
};
use overglaze_stream::MemorySource;

use crate::{
    numbers::{
        assert_close, bits, flex, largest, lora, lora_delta, message, ndarray, plain, roundoff,
        stored, tensor, wave,
    },
    single::Single,
    test_patch::TestPatch,
    toy::patch_set,
};

/// Sums of at most 288 products of numbers below 1, in two orders.
pub(crate) const TOLERANCE: f32 = 1e-4;

/// 2 groups of 32 · 3 · 3 values, so that rows are whole blocks of every format.
pub(crate) fn grouped() -> Conv2dConfig {
    Conv2dConfig::new([64, 6], [3, 3])
        .with_stride([2, 1])
        .with_dilation([1, 2])
        .with_padding(PaddingConfig2d::Explicit(1, 2, 0, 3))
        .with_groups(2)
}

pub(crate) fn whole() -> Conv2dConfig {
    Conv2dConfig::new([32, 6], [3, 2]).with_padding(PaddingConfig2d::Same)
}

/// Burn's layer with a weight of wave 1 and a bias of wave 2, both rounded to `dtype` and kept in it.
pub(crate) fn burn_2d(config: &Conv2dConfig, dtype: DType) -> Conv2d {
    let mut conv = config.init(&flex());
    let dims = conv.weight.lazy_shape().dims();
    conv.weight = Param::from_tensor(tensor::<4>(dims, 1, &flex(), dtype));
    conv.bias = config
        .bias
        .then(|| Param::from_tensor(tensor::<1>([dims[0]], 2, &flex(), dtype)));
    conv
}

/// Burn's layer in f32 over what the layer's own values are with `weight` and `bias` added.
pub(crate) fn reference(
    layer: &PatchedConv2d,
    config: &Conv2dConfig,
    (weight, bias): (Tensor<2>, Tensor<1>),
) -> Conv2d {
    let (base, base_bias) = layer.base_values(&flex()).expect("it has values");
    let mut conv = config.init(&flex());
    let dims = layer.layer_shape().dims().to_vec();
    let dims = [dims[0], dims[1], dims[2], dims[3]];
    conv.weight = Param::from_tensor((base + weight).reshape(dims));
    let bias = base_bias.map_or(bias.clone(), |base| base + bias);
    conv.bias = Some(Param::from_tensor(bias));
    conv
}

/// The tensors of a layer `conv`, the weight in the form `tag`.
pub(crate) fn source(config: &Conv2dConfig, tag: &str) -> MemorySource {
    let mut source = MemorySource::new("conv.safetensors");
    let [d_input, d_output] = config.channels;
    let [height, width] = config.kernel_size;
    let dims = vec![d_output, d_input / config.groups, height, width];
    let weight = stored(&wave(&dims, 1), tag);
    let bias = stored(&wave(&[d_output], 2), "F32");
    source
        .insert("conv.weight", tag, dims, weight)
        .expect("the size is right");
    source
        .insert("conv.bias", "F32", vec![d_output], bias)
        .expect("the size is right");
    source
}

pub(crate) fn load(
    source: MemorySource,
    config: &Conv2dConfig,
    loader: LoaderConfig,
) -> Result<(PatchedConv2d, BaseWeights), Error> {
    let mut loader = LayerLoader::new(Arc::new(source), loader);
    let conv = loader.conv2d("conv", config)?;
    Ok((conv, loader.finish()?))
}

pub(crate) fn resident(config: &Conv2dConfig, tag: &str) -> PatchedConv2d {
    let loaded = load(source(config, tag), config, LoaderConfig::resident(flex()));
    loaded.expect("it is all there").0
}

pub(crate) fn input(config: &Conv2dConfig) -> Tensor<4> {
    plain([2, config.channels[0], 7, 5], 3)
}

#[test]
fn a_bare_layer_gives_the_bits_of_burns() {
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        for config in [grouped(), whole(), whole().with_bias(false)] {
            let burn = burn_2d(&config, dtype);
            let input = input(&config).cast(dtype);
            let expected = burn.forward(input.clone());
            let layer = PatchedConv2d::from(burn);
            assert_eq!(
                layer.path(&flex(), dtype).expect("it is there"),
                Path::Native
            );
            let output = layer.forward(input);
            assert_eq!((output.dims(), output.dtype()), (expected.dims(), dtype));
            assert!(largest(&expected) > 0.0);
            assert_eq!(bits(&output), bits(&expected), "{dtype:?}");
        }
    }
    let burn: Conv1d = Conv1dConfig::new(4, 6, 4)
        .with_padding(PaddingConfig1d::Same)
        .init(&flex());
    let input = plain([2, 4, 9], 3);
    let expected = bits(&burn.forward(input.clone()));
    let layer = overglaze_core::PatchedConv1d::from(burn);
    assert_eq!(bits(&layer.forward(input)), expected);
    let burn: Conv3d = Conv3dConfig::new([4, 6], [3, 1, 3])
        .with_padding(PaddingConfig3d::Explicit(1, 0, 2))
        .with_stride([1, 2, 1])
        .init(&flex());
    let input = plain([2, 4, 3, 4, 5], 3);
    let expected = bits(&burn.forward(input.clone()));
    assert_eq!(bits(&PatchedConv3d::from(burn).forward(input)), expected);
}

#[test]
fn three_axes_take_the_uneven_padding_that_burn_does_not() {
    let config = Conv3dConfig::new([2, 3], [2, 2, 2]).with_padding(PaddingConfig3d::Same);
    let (weight, bias): (Tensor<2>, Tensor<1>) = (plain([3, 16], 1), plain([3], 2));
    let layer = PatchedConv3d::from_weights(
        Weight::Dense(weight.clone()),
        Some(bias.clone()),
        &config,
        flex(),
    );
    let layer = layer.expect("it is of that shape");
    let input: Tensor<5> = plain([1, 2, 3, 4, 5], 3);
    // One zero behind every axis.
    let padded = Tensor::zeros([1, 2, 4, 5, 6], &flex());
    let padded = padded.slice_assign([0..1, 0..2, 0..3, 0..4, 0..5], input.clone());
    let mut valid = Conv3dConfig::new([2, 3], [2, 2, 2]).init(&flex());
    valid.weight = Param::from_tensor(weight.reshape([3, 2, 2, 2, 2]));
    valid.bias = Some(Param::from_tensor(bias));
    let expected = valid.forward(padded);
    assert_eq!(expected.dims(), [1, 3, 3, 4, 5]);
    assert_close("same", &layer.forward(input), &expected, TOLERANCE);
}

/// The patches of one layer, with ΔW and Δb of them all.
pub(crate) fn mount_on(layer: &mut PatchedConv2d) -> (Tensor<2>, Tensor<1>) {
    let shape = layer.weight_shape();
    let dense = TestPatch::new(Some(plain(shape, 40)), Some(plain([shape[0]], 41)));
    let (delta, delta_bias) = lora_delta(shape, 2, 20);
    let (base, _) = layer.base_values(&flex()).expect("it has values");
    let patches = [
        ("lora", lora(shape, 2, 20), 0.5),
        ("dense", dense.shared(), -0.25),
        ("gain", TestPatch::gain(0.5).shared(), 2.0),
        ("idle", lora(shape, 3, 60), 0.0),
    ];
    for (name, patch, strength) in patches {
        layer.add_patch(name, patch, strength).expect("it fits");
    }
    let weight = delta.mul_scalar(0.5) - plain(shape, 40).mul_scalar(0.25) + base;
    let bias = delta_bias.mul_scalar(0.5) - plain([shape[0]], 41).mul_scalar(0.25);
    (weight, bias)
}

fn check_patched(name: &str, layer: PatchedConv2d, config: &Conv2dConfig, dtype: DType) {
    let input = input(config).cast(dtype);
    let before = bits(&layer.forward(input.clone()));
    let mut patched = layer;
    let delta = mount_on(&mut patched);
    assert_eq!(
        patched.path(&flex(), dtype).expect("it is there"),
        Path::Patched
    );
    let output = patched.forward(input.clone());
    assert_eq!(output.dtype(), dtype, "{name}");
    let expected = reference(&patched, config, delta).forward(input.clone().cast(DType::F32));
    let tolerance = TOLERANCE + roundoff(dtype) * largest(&expected);
    assert_close(name, &output, &expected, tolerance);
    assert_eq!(
        bits(&patched.forward(input.clone())),
        bits(&output),
        "{name}"
    );
    patched.clear_patches();
    assert_eq!(bits(&patched.forward(input)), before, "{name}");
}

#[test]
fn patches_add_their_convolution_over_every_base_and_dtype() {
    for config in [grouped(), whole()] {
        for input in [DType::F32, DType::BF16, DType::F16] {
            for tag in ["F32", "BF16", "F16", "Q8_0"] {
                let name = format!("{tag}, {} groups, {input:?}", config.groups);
                check_patched(&name, resident(&config, tag), &config, input);
            }
            for dtype in [DType::F32, DType::BF16, DType::F16] {
                let name = format!("{dtype:?}, {} groups, {input:?}", config.groups);
                check_patched(&name, burn_2d(&config, dtype).into(), &config, input);
            }
        }
    }
}

#[test]
fn one_and_three_axes_take_patches() {
    let mut line = overglaze_core::PatchedConv1d::from(
        Conv1dConfig::new(4, 6, 3)
            .with_padding(PaddingConfig1d::Explicit(2, 0))
            .with_dilation(2)
            .init(&flex()),
    );
    let input = plain([2, 4, 9], 3);
    let base = line.forward(input.clone());
    line.add_patch("lora", lora([6, 12], 2, 20), 0.5)
        .expect("it fits");
    let mut conv = line.clone();
    conv.clear_patches();
    let mut conv = conv.into_inner().expect("it is Burn's");
    let (weight, bias) = lora_delta([6, 12], 2, 20);
    conv.weight = Param::from_tensor(weight.mul_scalar(0.5).reshape([6, 4, 3]));
    conv.bias = Some(Param::from_tensor(bias.mul_scalar(0.5)));
    let expected = base + conv.forward(input.clone());
    assert_close("one axis", &line.forward(input), &expected, TOLERANCE);
    let mut volume = PatchedConv3d::from(Conv3dConfig::new([4, 6], [1, 3, 2]).init(&flex()));
    let input = plain([2, 4, 2, 4, 5], 3);
    let base = volume.forward(input.clone());
    volume
        .add_patch("lora", lora([6, 24], 2, 20), 0.5)
        .expect("it fits");
    let mut conv = volume.clone();
    conv.clear_patches();
    let mut conv = conv.into_inner().expect("it is Burn's");
    let (weight, bias) = lora_delta([6, 24], 2, 20);
    conv.weight = Param::from_tensor(weight.mul_scalar(0.5).reshape([6, 4, 1, 3, 2]));
    conv.bias = Some(Param::from_tensor(bias.mul_scalar(0.5)));
    let expected = base + conv.forward(input.clone());
    assert_close("three axes", &volume.forward(input), &expected, TOLERANCE);
}

#[test]
fn residency_changes_no_bit() {
    let config = grouped();
    for tag in ["F32", "BF16", "F16", "Q8_0"] {
        let mut resident = resident(&config, tag);
        let streaming = LoaderConfig::streamed(flex(), 64 << 10);
        let loaded = load(source(&config, tag), &config, streaming);
        let (mut streamed, _) = loaded.expect("it fits the budget");
        assert!(!streamed.is_resident());
        assert_eq!(streamed.layer_shape(), resident.layer_shape());
        let input = input(&config);
        let base = bits(&resident.forward(input.clone()));
        assert_eq!(bits(&streamed.forward(input.clone())), base, "{tag}");
        mount_on(&mut resident);
        mount_on(&mut streamed);
        let expected = bits(&resident.forward(input.clone()));
        assert_ne!(expected, base);
        assert_eq!(bits(&streamed.forward(input)), expected, "{tag}");
    }
}

#[test]
fn a_packed_weight_is_decoded_once_a_pass() {
    let mut layer = resident(&grouped(), "Q8_0");
    for (index, gain) in [0.5, 0.25, -2.0].into_iter().enumerate() {
        let name = format!("gain {index}");
        layer
            .add_patch(&name, TestPatch::gain(gain).shared(), 1.0)
            .expect("it fits");
    }
    for pass in 1..4 {
        let _ = layer.forward(input(&grouped()));
        assert_eq!(layer.traffic().num_decodes(), pass);
    }
}

#[test]
fn merging_equals_mounting_and_is_undone_exactly() {
    let config = grouped();
    for (name, layer, dtype) in [
        ("f32", resident(&config, "F32"), DType::F32),
        ("bf16", burn_2d(&config, DType::BF16).into(), DType::BF16),
    ] {
        let shape = layer.weight_shape();
        let set = patch_set(vec![("layer", lora(shape, 2, 20))]);
        let mut model = Single::new(layer);
        let input = input(&config);
        let base = bits(&model.layer.forward(input.clone()));
        mount(&mut model, "set", &set, 0.5).expect("it fits");
        let expected = model.layer.forward(input.clone());
        unmount(&mut model, "set").expect("it is there");
        merge(&mut model, &[("set", &set, 0.5)]).expect("it fits");
        let merged = model.layer.forward(input.clone());
        // 288 products with a merged weight below 2 that is rounded once.
        let tolerance = TOLERANCE + roundoff(dtype) * 2.0 * 288.0_f32;
        assert_close(name, &merged, &expected, tolerance);
        assert_ne!(bits(&merged), base);
        restore(&mut model);
        assert_eq!(bits(&model.layer.forward(input)), base, "{name}");
    }
}

#[test]
fn parameters_are_shared_with_burns_layer() {
    let burn = burn_2d(&whole(), DType::F32);
    let ids = (burn.weight.id, burn.bias.as_ref().map(|bias| bias.id));
    let mut layer = PatchedConv2d::from(burn);
    layer
        .add_patch("lora", lora([6, 192], 2, 20), 1.0)
        .expect("it fits");
    let refused = "patches are mounted on this layer; unmount them before `into_inner`";
    assert_eq!(message(layer.clone().into_inner()), refused);
    layer.clear_patches();
    let burn = layer.into_inner().expect("it is Burn's");
    assert_eq!(
        (burn.weight.id, burn.bias.as_ref().map(|bias| bias.id)),
        ids
    );
    let config = whole();
    assert_eq!(
        (burn.stride, burn.kernel_size),
        (config.stride, config.kernel_size)
    );
    assert_eq!(burn.padding, config.padding);
    let packed = resident(&whole(), "BF16");
    let refused =
        "the layer's weight is packed or streamed, so there is no Burn layer to hand back";
    assert_eq!(message(packed.into_inner()), refused);
}

#[test]
fn a_weight_elsewhere_follows_the_input_unless_told_not_to() {
    let (config, nd) = (whole(), ndarray());
    let mut layer = PatchedConv2d::from(burn_2d(&config, DType::F32));
    let expected = layer.forward(input(&config));
    let elsewhere: Tensor<4> = tensor([2, 32, 7, 5], 3, &nd, DType::F32);
    assert_eq!(
        layer.path(&nd, DType::F32).expect("it is there"),
        Path::Moved
    );
    let output = layer.forward(elsewhere.clone());
    assert_eq!(output.device(), nd);
    assert_close("moved", &output, &expected, TOLERANCE);
    assert_eq!(layer.traffic().num_moves(), 2);
    layer.set_autocast(false);
    let refused = format!(
        "the weight is on {:?} and the input on {nd:?}, and autocast is off for this layer; turn it on \
         with `set_autocast(true)` or move one of them",
        flex()
    );
    assert_eq!(message(layer.try_forward(elsewhere)), refused);
}
