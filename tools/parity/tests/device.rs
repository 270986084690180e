//! Every format on a device with a memory of its own, against the host: the first Vulkan device, which may be Mesa's lavapipe.
#![cfg(feature = "vulkan")]

use std::sync::Arc;

use burn::tensor::{Device, DeviceType, FloatDType, Tensor, TensorData};
use overglaze_core::{LayerLoader, LoaderConfig};
use overglaze_quant::{Parts, QuantFormat, QuantizedTensor, formats_by_name};
use overglaze_stream::{MemorySource, WeightSource};

#[test]
fn every_format_of_blocks_is_decoded_as_on_the_host() {
    let device = device();
    for (format, weight) in block_weights(0xff) {
        let uploaded = weight
            .to_device(&device)
            .unwrap_or_else(|| panic!("{} has no kernels", format.name()));
        assert_eq!(uploaded.device(), Some(device.clone()));
        let found = uploaded.to_dense(&device, FloatDType::F32).into_data();
        let expected = weight.decoded(FloatDType::F32);
        compare(format.name(), &found, &expected, 0.0);
    }
}

#[test]
fn every_format_of_blocks_is_multiplied_as_on_the_host() {
    let device = device();
    // Without the upper two bits no scale is large or no number.
    for (format, weight) in block_weights(0x3f) {
        let uploaded = weight.to_device(&device).expect("as above");
        for num_rows in [1, 3, 9] {
            let d_input = weight.shape()[1];
            let input: Vec<f32> = (0..num_rows * d_input)
                .map(|index| ((index * 37 % 101) as f32 - 50.0) / 64.0)
                .collect();
            let input = TensorData::new(input, [num_rows, d_input]);
            let found = uploaded.linear(Tensor::from_data(input.clone(), &device));
            let expected = weight.linear(Tensor::from_data(input, &Device::flex()));
            let (found, expected) = (found.into_data(), expected.into_data());
            // Sums of 512 products in another order.
            compare(format.name(), &found, &expected, 2e-5);
        }
    }
}

#[test]
fn the_bytes_of_a_device_come_back_as_they_went() {
    let device = device();
    for (format, weight) in block_weights(0xff) {
        let uploaded = weight.to_device(&device).expect("as above");
        let back = uploaded.to_host();
        assert_eq!(back.device(), None);
        let [went, came] = [&weight, &back].map(|weight| {
            let parts = weight.parts().iter();
            parts
                .map(|part| (part.name, part.bytes.clone()))
                .collect::<Vec<_>>()
        });
        assert!(went == came, "{}", format.name());
    }
}

#[test]
fn a_streamed_layer_takes_its_packed_bytes_there_and_decodes_nothing() {
    let device = device();
    let [d_output, d_input] = SHAPE;
    let num_bytes = d_output * d_input / 32 * 18;
    let mut source = MemorySource::new("memory");
    let bytes: Vec<u8> = (0..61).cycle().take(num_bytes).collect();
    let inserted = source.insert("fc.weight", "Q4_0", SHAPE.to_vec(), bytes.into());
    inserted.expect("the size is right");
    let source: Arc<dyn WeightSource> = Arc::new(source);
    let run = |device: &Device| {
        let config = LoaderConfig::streamed(device.clone(), num_bytes as u64);
        let mut loader = LayerLoader::new(Arc::clone(&source), config);
        let layer = loader.linear("fc").expect("it is there");
        let base = loader.finish().expect("it fits");
        let input = Tensor::<2>::ones([2, d_input], device) * 0.25;
        let outputs = [0, 1].map(|_| layer.forward(input.clone()).into_data());
        (base.traffic, outputs)
    };
    let (traffic, outputs) = run(&device);
    assert_eq!(traffic.num_decodes(), 0);
    // One layer is all there is room for, so it stays.
    assert_eq!(traffic.moved_bytes(), num_bytes as u64);
    let (_, expected) = run(&Device::flex());
    for (found, expected) in outputs.iter().zip(&expected) {
        compare("q4_0", found, expected, 2e-5);
    }
}

fn device() -> Device {
    let devices = Device::enumerate(DeviceType::Wgpu);
    devices
        .into_iter()
        .next()
        .expect("there is a Vulkan device; Mesa's lavapipe (mesa-vulkan-drivers) is one on the CPU")
}

/// A matrix of every format of blocks, its bytes from a fixed sequence with the bits of `mask`.
fn block_weights(mask: u8) -> Vec<(&'static dyn QuantFormat, QuantizedTensor)> {
    let formats = formats_by_name().into_iter();
    let weights = formats.filter_map(|format| {
        let block = format.block()?;
        let num_bytes = SHAPE[0] * SHAPE[1] / block.len * block.bytes;
        let mut state = 0x1234_5678_u32;
        let bytes: Vec<u8> = (0..num_bytes)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state.to_be_bytes()[0] & mask
            })
            .collect();
        let weight = QuantizedTensor::new(format, SHAPE, Parts::values(bytes.into()));
        Some((format, weight.expect("any bytes are a weight")))
    });
    weights.collect()
}

const SHAPE: [usize; 2] = [5, 512];

/// Asserts `|found - expected| <= relative * largest`; what is no finite number must be none on both sides, and a number that
/// is too small for its exponent may be zero, as devices have it.
fn compare(name: &str, found: &TensorData, expected: &TensorData, relative: f32) {
    let [found, expected] =
        [found, expected].map(|data| data.try_to_vec::<f32>().expect("it is f32"));
    assert_eq!(found.len(), expected.len(), "{name}");
    let finite = expected.iter().filter(|value| value.is_finite());
    let largest = finite.fold(0.0_f32, |largest, value| largest.max(value.abs()));
    for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let is_close = if expected.is_finite() {
            (found - expected).abs() <= (relative * largest).max(f32::MIN_POSITIVE)
        } else {
            !found.is_finite()
        };
        assert!(
            is_close,
            "{name}: {found} at {index}, expected {expected} of {largest}"
        );
    }
}
