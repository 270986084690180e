//! A packed format that nobody can decode: only its own product reads the values.

use bytes::Bytes;
use overglaze_quant::{
    Block, FormatEntry, QuantFormat,
    kernels::{InputRows, OutputTile, WeightRows},
};

overglaze_quant::inventory::submit! { FormatEntry(&Closed) }

/// Numbers of 32 bits, each with the [`MASK`] over its bits.
#[derive(Debug)]
struct Closed;

impl QuantFormat for Closed {
    fn name(&self) -> &'static str {
        "closed"
    }

    fn tags(&self) -> &'static [&'static str] {
        &[TAG]
    }

    fn block(&self) -> Option<Block> {
        Some(BLOCK)
    }

    fn has_values(&self) -> bool {
        false
    }

    fn decode_rows(&self, _rows: &WeightRows<'_>, _values: &mut [f32]) {
        panic!("a closed weight was asked for its values");
    }

    fn dot_rows(&self, rows: &WeightRows<'_>, input: InputRows<'_>, output: &mut OutputTile<'_>) {
        for (column, row) in rows.iter().enumerate() {
            let (numbers, _) = row.blocks(BLOCK).as_chunks::<4>();
            for index in 0..input.num_rows() {
                let products = numbers.iter().zip(input.row(index));
                let sum = products
                    .map(|(number, input)| opened(*number) * input)
                    .sum();
                output.write(index, column, [sum]);
            }
        }
    }
}

/// `values` in this format.
pub(crate) fn closed(values: &[f32]) -> Bytes {
    let numbers = values.iter().map(|value| value.to_bits() ^ MASK);
    numbers.flat_map(u32::to_le_bytes).collect()
}

fn opened(number: [u8; 4]) -> f32 {
    f32::from_bits(u32::from_le_bytes(number) ^ MASK)
}

/// The type tag of such a tensor.
pub(crate) const TAG: &str = "CLOSED";
const MASK: u32 = 0x5a5a_5a5a;
const BLOCK: Block = Block { len: 1, bytes: 4 };
