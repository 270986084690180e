//! Fields of bits, taken out of many bytes at once: each as a loop over arrays with a constant shift, which is what becomes
//! vector instructions.

/// The bits of `MASK` from bit `SHIFT` on, of every byte.
#[inline(always)]
pub(super) fn bits<const SHIFT: u32, const MASK: u8, const N: usize>(bytes: &[u8; N]) -> [u8; N] {
    let mut fields = [0; N];
    for (field, byte) in fields.iter_mut().zip(bytes) {
        *field = byte >> SHIFT & MASK;
    }
    fields
}

/// The lower and the upper four bits of every byte.
#[inline(always)]
pub(super) fn halves<const N: usize>(bytes: &[u8; N]) -> [[u8; N]; 2] {
    [bits::<0, 15, N>(bytes), bits::<4, 15, N>(bytes)]
}

/// The four pairs of bits of every byte, the lowest first.
#[inline(always)]
pub(super) fn pairs<const N: usize>(bytes: &[u8; N]) -> [[u8; N]; 4] {
    [
        bits::<0, 3, N>(bytes),
        bits::<2, 3, N>(bytes),
        bits::<4, 3, N>(bytes),
        bits::<6, 3, N>(bytes),
    ]
}

/// The eight bits of every byte, the lowest first.
#[inline(always)]
pub(super) fn planes<const N: usize>(bytes: &[u8; N]) -> [[u8; N]; 8] {
    [
        bits::<0, 1, N>(bytes),
        bits::<1, 1, N>(bytes),
        bits::<2, 1, N>(bytes),
        bits::<3, 1, N>(bytes),
        bits::<4, 1, N>(bytes),
        bits::<5, 1, N>(bytes),
        bits::<6, 1, N>(bytes),
        bits::<7, 1, N>(bytes),
    ]
}

/// `fields` less `offset`, as codes.
#[inline(always)]
pub(super) fn put<const N: usize>(fields: &[u8; N], offset: i8, codes: &mut [i8]) {
    let codes: &mut [i8; N] = codes.first_chunk_mut().expect("there are as many");
    for (code, field) in codes.iter_mut().zip(fields) {
        *code = field.cast_signed() - offset;
    }
}

/// `fields` with the bits of `upper` from bit `SHIFT` on.
#[inline(always)]
pub(super) fn joined<const SHIFT: u32, const N: usize>(
    fields: &[u8; N],
    upper: &[u8; N],
) -> [u8; N] {
    let mut joined = [0; N];
    for l in 0..N {
        joined[l] = fields[l] | upper[l] << SHIFT;
    }
    joined
}

/// Codes of five bits: `qh: u32 | qs: [u8; 16]`, value i in the low half of byte i of `qs`, value i + 16 in the high half, the
/// fifth bit of value i in bit i of `qh`; less `offset`.
#[inline(always)]
pub(super) fn put_fives(bytes: &[u8; 20], offset: i8, codes: &mut [i8; 32]) {
    let high = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let mut fields = [0; 32];
    for i in 0..16 {
        let byte = u32::from(bytes[4 + i]);
        let [low, ..] = ((byte & 15) | (high >> i << 4 & 16)).to_le_bytes();
        let [up, ..] = ((byte >> 4) | (high >> i >> 12 & 16)).to_le_bytes();
        fields[i] = low;
        fields[16 + i] = up;
    }
    put(&fields, offset, codes);
}
