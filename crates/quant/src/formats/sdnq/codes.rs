//! Codes of 1 to 8 bits out of bytes, 8 at a time.
//!
//! A code of 3, 5, 6 or 7 bits has the low bits of a byte of its own, and the codes that have none are put together from
//! what is left above them: 8 codes of 5 bits stand in 5 bytes `b`, as `b[i] & 31` for the first 5, then
//! `b[0] >> 5 | (b[3] >> 5 & 3) << 3` and so on. Codes of 1, 2 and 4 bits follow each other from the lowest bits of a
//! byte up (`packed_int` of sdnq 0.2.8).

/// Where codes stand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Codes<'a> {
    pub(super) bits: u32,
    /// Whether a byte of single bits is kept as a number of 64 bits.
    pub(super) is_wide: bool,
    pub(super) bytes: &'a [u8],
}

impl Codes<'_> {
    /// Bytes of `len` codes; `None` where they do not fill a pack.
    pub(super) fn num_bytes(bits: u32, is_wide: bool, len: usize) -> Option<usize> {
        let bytes = if is_wide { 8 } else { bits as usize };
        let divisor = Self::pack_len(bits);
        let num_packs = len.is_multiple_of(divisor).then_some(len / divisor)?;
        num_packs.checked_mul(bytes * divisor / 8)
    }

    /// How many codes `num_bytes` bytes hold.
    pub(super) fn len(bits: u32, is_wide: bool, num_bytes: usize) -> Option<usize> {
        let bytes = if is_wide { 8 } else { bits as usize } * Self::pack_len(bits) / 8;
        let num_packs = num_bytes
            .is_multiple_of(bytes)
            .then_some(num_bytes / bytes)?;
        num_packs.checked_mul(Self::pack_len(bits))
    }

    /// Codes that are packed together.
    pub(super) fn pack_len(bits: u32) -> usize {
        match bits {
            2 | 6 => 4,
            4 => 2,
            8 => 1,
            _ => 8,
        }
    }

    /// How many codes there are, with those that fill up the last pack.
    pub(super) fn num_codes(&self) -> usize {
        Self::len(self.bits, self.is_wide, self.bytes.len()).unwrap_or(0)
    }

    /// Codes number `first` and following.
    #[inline(always)]
    pub(super) fn unpack(&self, first: usize, codes: &mut [u8]) {
        match (self.bits, self.is_wide) {
            (1, false) => self.steps(first, codes, |[byte]: &[u8; 1]| bits_of(*byte)),
            (1, true) => self.steps(first, codes, |bytes: &[u8; 8]| bits_of(bytes[0])),
            (2, _) => self.steps(first, codes, unpack_2),
            (3, _) => self.steps(first, codes, unpack_3),
            (4, _) => self.steps(first, codes, unpack_4),
            (5, _) => self.steps(first, codes, unpack_5),
            (6, _) => self.steps(first, codes, unpack_6),
            (7, _) => self.steps(first, codes, unpack_7),
            _ => codes.copy_from_slice(&self.bytes[first..][..codes.len()]),
        }
    }

    #[inline(always)]
    fn steps<const BYTES: usize>(
        &self,
        first: usize,
        codes: &mut [u8],
        unpack: impl Fn(&[u8; BYTES]) -> [u8; 8],
    ) {
        let (steps, tail) = self.bytes[first / 8 * BYTES..].as_chunks::<BYTES>();
        let mut padded = [0; BYTES];
        padded[..tail.len()].copy_from_slice(tail);
        let mut steps = steps.iter().chain([&padded]);
        let mut next = || steps.next().map_or([0; 8], &unpack);
        let head_len = (first.next_multiple_of(8) - first).min(codes.len());
        let (head, codes) = codes.split_at_mut(head_len);
        if head_len > 0 {
            head.copy_from_slice(&next()[first % 8..][..head_len]);
        }
        let (whole, rest) = codes.as_chunks_mut::<8>();
        for codes in whole {
            *codes = next();
        }
        if !rest.is_empty() {
            rest.copy_from_slice(&next()[..rest.len()]);
        }
    }
}

/// The tag of numbers of 64 bits that hold a byte of single bits each.
pub(super) const WIDE: &str = "I64";

#[inline(always)]
fn bits_of(byte: u8) -> [u8; 8] {
    std::array::from_fn(|bit| byte >> bit & 1)
}

#[inline(always)]
fn unpack_2(bytes: &[u8; 2]) -> [u8; 8] {
    std::array::from_fn(|index| bytes[index / 4] >> (index % 4 * 2) & 3)
}

#[inline(always)]
fn unpack_3([a, b, c]: &[u8; 3]) -> [u8; 8] {
    [
        a & 7,
        b & 7,
        c & 7,
        a >> 3 & 7,
        b >> 3 & 7,
        c >> 3 & 7,
        a >> 6 | c >> 4 & 4,
        b >> 6 | c >> 5 & 4,
    ]
}

#[inline(always)]
fn unpack_4(bytes: &[u8; 4]) -> [u8; 8] {
    std::array::from_fn(|index| bytes[index / 2] >> (index % 2 * 4) & 15)
}

#[inline(always)]
fn unpack_5([a, b, c, d, e]: &[u8; 5]) -> [u8; 8] {
    [
        a & 31,
        b & 31,
        c & 31,
        d & 31,
        e & 31,
        a >> 5 | d >> 2 & 24,
        b >> 5 | e >> 2 & 24,
        c >> 5 | e >> 4 & 8 | d >> 3 & 16,
    ]
}

#[inline(always)]
fn unpack_6(bytes: &[u8; 6]) -> [u8; 8] {
    let [a, b, c, d, e, f] = bytes;
    [
        a & 63,
        b & 63,
        c & 63,
        c >> 6 | b >> 4 & 12 | a >> 2 & 48,
        d & 63,
        e & 63,
        f & 63,
        f >> 6 | e >> 4 & 12 | d >> 2 & 48,
    ]
}

#[inline(always)]
fn unpack_7(bytes: &[u8; 7]) -> [u8; 8] {
    let mut codes = [0; 8];
    for (index, byte) in bytes.iter().enumerate() {
        codes[index] = byte & 127;
        codes[7] |= byte >> 7 << (6 - index);
    }
    codes
}
