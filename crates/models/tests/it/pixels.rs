//! The demo's tokens as pixels.

use burn::tensor::{Device, Tensor, TensorData};
use overglaze_models::pixels::decode;

use crate::golden;

#[test]
fn pixels_stand_where_their_token_and_channel_say() {
    let values: Vec<f32> = (0..1024).map(|index| index as f32 / 1024.0).collect();
    let tokens = Tensor::<3>::from_data(TensorData::new(values, [1, 64, 16]), &Device::flex());
    let image = golden::values(decode(tokens).unwrap());
    assert_eq!(image.len(), 28 * 28);
    for (y, x) in [(0, 0), (0, 27), (13, 5), (27, 27)] {
        let (row, column) = (y + 2, x + 2);
        let index = ((row / 4) * 8 + column / 4) * 16 + (row % 4) * 4 + column % 4;
        assert_eq!(image[y * 28 + x], (index as f32 / 1024.0 + 1.0) / 2.0);
    }
}

#[test]
fn values_are_clamped_and_shapes_checked() {
    let tokens = |shape: [usize; 3], value: f32| Tensor::<3>::full(shape, value, &Device::flex());
    assert!(
        golden::values(decode(tokens([2, 64, 16], 3.0)).unwrap())
            .iter()
            .all(|v| *v == 1.0)
    );
    assert!(
        golden::values(decode(tokens([2, 64, 16], -3.0)).unwrap())
            .iter()
            .all(|v| *v == 0.0)
    );
    let message = decode(tokens([1, 60, 16], 0.0)).unwrap_err().to_string();
    assert_eq!(
        message,
        "input `tokens` has shape [1, 60, 16], expected [batch, 64, 16]"
    );
}
