//! 4-bit weights on a device.
//!
//! Words: the block length, the nested one (0 where scales are numbers), the nested offset, the table of sixteen, and where the
//! parts of [`PARTS`] begin.

use cubecl::prelude::*;

use crate::{
    DeviceWords, Part, Parts,
    cube::{DecodeEight, Kernels, bits::byte_at},
};

use super::scales::{ABSMAX, GEOMETRY, Geometry, NESTED_ABSMAX, NESTED_TABLE, TABLE};

/// The words of a weight whose codes choose from `table`; `None` where eight values may be of two blocks.
pub(super) fn words(table: &[f32; 16], parts: &Parts) -> Option<DeviceWords> {
    let geometry = Geometry::of(parts);
    if !geometry.block_len.is_multiple_of(8) {
        return None;
    }
    let is_nested = parts.get(ABSMAX)?.tag == "U8";
    let nested_len = if is_nested { geometry.nested_len } else { 0 };
    let mut numbers = vec![
        u32::try_from(geometry.block_len).ok()?,
        u32::try_from(nested_len).ok()?,
        geometry.offset.to_bits(),
    ];
    numbers.extend(table.iter().map(|value| value.to_bits()));
    let kernels = Kernels::<FourBitOnDevice>::shared();
    Some(DeviceWords::of_parts(kernels, &numbers, &PARTS, parts))
}

/// In the order of their places, which follow the numbers.
const PARTS: [&str; 6] = [
    Part::VALUES,
    ABSMAX,
    NESTED_TABLE,
    NESTED_ABSMAX,
    TABLE,
    GEOMETRY,
];

struct FourBitOnDevice;

#[cube]
impl DecodeEight for FourBitOnDevice {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / words[0] as usize;
        let absmax = words[20] as usize;
        // Codes have a quarter of the words.
        let place = select(words[1] == 0, block, block / 4);
        let mut scale = f32::reinterpret(words[absmax + place]);
        if words[1] > 0 {
            let code = byte_at(words, 4 * absmax + block);
            let entry = f32::reinterpret(words[words[21] as usize + code as usize]);
            let nested = f32::reinterpret(words[words[22] as usize + block / words[1] as usize]);
            scale = entry * nested + f32::reinterpret(words[2]);
        }
        // Of each byte the upper half comes first.
        let codes = words[words[19] as usize + start / 8];
        #[unroll]
        for k in 0..8usize {
            let code = (codes >> (4 * (k as u32 ^ 1))) & 15;
            values[k] = f32::reinterpret(words[code as usize + 3]) * scale;
        }
    }
}
