//! The logical shape of a weight, from the shapes of its tensors: packed codes have lost it.
//!
//! Scales are `[d_output, 1]` for a row, `[d_output, groups, 1]` for groups of it; of a convolution `[d_output, 1, kernel…]`
//! and `[d_output, groups, 1, kernel…]`; `[1, …, 1]` for a whole tensor. A codebook has its table where the others have the 1.

use super::codes::Codes;

/// Shape, groups and kernel positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) shape: Vec<usize>,
    pub(super) num_groups: usize,
    pub(super) num_positions: usize,
    pub(super) is_transposed: bool,
}

/// Shapes of the tensors of a weight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shapes<'a> {
    /// Of the values as stored.
    pub(super) values: &'a [usize],
    pub(super) scale: &'a [usize],
    /// Of `svd_up`, where there is one.
    pub(super) up: Option<&'a [usize]>,
}

impl Layout {
    /// The layout of a weight with these shapes; `None` where they do not go together.
    pub(super) fn of(shapes: Shapes<'_>, codes: Codes, is_codebook: bool) -> Option<Self> {
        let product = |shape: &[usize]| {
            let mut sizes = shape.iter();
            sizes.try_fold(1_usize, |product, size| product.checked_mul(*size))
        };
        let [chunk_len, chunk_bytes] = codes.chunk();
        let stored = product(shapes.values)?;
        let num_values = (stored / chunk_bytes).checked_mul(chunk_len)?;
        let is_whole = codes.bits == 8;
        if let (true, [d_input, d_output], [1, scales]) = (is_whole, shapes.values, shapes.scale)
            && scales == d_output
            && *scales > 1
        {
            return Some(Self::plain(vec![*d_output, *d_input], true));
        }
        let is_one_scale = product(shapes.scale)? == 1;
        let first = shapes.values.first().copied().filter(|_| is_whole);
        let known = first.or(shapes.up.and_then(|up| up.first().copied()));
        let d_output = match known {
            Some(d_output) => d_output,
            None if is_one_scale => return None,
            None => *shapes.scale.first()?,
        };
        let num_columns = num_values.checked_div(d_output)?;
        if num_columns.checked_mul(d_output)? != num_values {
            return None;
        }
        if is_one_scale {
            let shape = match is_whole {
                true => shapes.values.to_vec(),
                false => vec![d_output, num_columns],
            };
            return Some(Self::plain(shape, false));
        }
        let table = if is_codebook { 1 << codes.bits } else { 1 };
        let (num_groups, kernel) = match shapes.scale {
            [_, reduced] if *reduced == table => (1, &[][..]),
            [_, groups, reduced, kernel @ ..] if *reduced == table => (*groups, kernel),
            [_, reduced, kernel @ ..] if *reduced == table => (1, kernel),
            _ => return None,
        };
        let num_positions = product(kernel)?;
        let num_channels = num_columns.checked_div(num_positions)?;
        if num_groups == 0 || num_channels % num_groups != 0 {
            return None;
        }
        let mut shape = vec![d_output, num_channels];
        shape.extend(kernel);
        Some(Self {
            shape,
            num_groups,
            num_positions,
            is_transposed: false,
        })
    }

    fn plain(shape: Vec<usize>, is_transposed: bool) -> Self {
        Self {
            shape,
            num_groups: 1,
            num_positions: 1,
            is_transposed,
        }
    }
}
