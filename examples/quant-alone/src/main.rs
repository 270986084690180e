//! `overglaze-quant` with nothing but Burn: a product on packed bytes, decoded tile by tile.
#![expect(clippy::print_stdout, reason = "an example program")]

use std::error::Error;

use burn::tensor::{Device, Tensor};
use overglaze_quant::{Parts, QuantizedTensor, format_by_name, formats_by_name};

fn main() -> Result<(), Box<dyn Error>> {
    let names: Vec<_> = formats_by_name()
        .iter()
        .map(|format| format.name())
        .collect();
    println!("formats: {names:?}");

    // Two rows of 32 values in blocks of 32: an f16 scale (1.0 = 0x3C00), then 32 signed bytes.
    let block = |value: u8| [vec![0x00, 0x3C], vec![value; 32]].concat();
    let bytes = [block(1), block(2)].concat();
    let weight = QuantizedTensor::new(
        format_by_name("q8_0")?,
        [2, 32],
        Parts::values(bytes.into()),
    )?;

    let output = weight.linear(Tensor::ones([1, 32], &Device::flex()));
    println!(
        "32 ones times W: {:?}",
        output.into_data().iter::<f32>().collect::<Vec<_>>()
    );
    Ok(())
}
