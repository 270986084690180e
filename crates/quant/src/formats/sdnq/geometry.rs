//! The shape of a weight, which packed tensors do not keep, from the shapes of its scales.
//!
//! Scales are `[d_output, 1, kernel…]`, or `[d_output, groups, 1, kernel…]` where channels are in groups, or one number for
//! all; a list of numbers stands where the 1 is. What is left over of the number of values is the number of channels. An
//! unpacked tensor is `[d_output, channels, kernel…]` or `[d_output, groups, channels, kernel…]`, and `[d_input,
//! d_output]` with scales `[1, d_output]` where it is kept for products of integers
//! (`sdnq_quantize_layer_weight` of sdnq 0.2.8).

use crate::TensorHead;

/// Shape of a weight, and how its values share scales.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Logical: `[d_output, channels, kernel…]`.
    pub(super) shape: Vec<usize>,
    pub(super) num_groups: usize,
    pub(super) num_positions: usize,
    pub(super) has_one_scale: bool,
    pub(super) is_transposed: bool,
}

/// What a shape follows from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence<'a> {
    pub(super) values: TensorHead<'a>,
    pub(super) num_values: usize,
    /// Whether the tensor of values has a shape that tells something.
    pub(super) is_packed: bool,
    pub(super) scale: &'a [usize],
    /// Numbers of a list; 1 where there are no lists.
    pub(super) num_levels: usize,
    /// The first axis of the bias or the low-rank part, where there is one.
    pub(super) d_output: Option<usize>,
    pub(super) has_integer_products: bool,
}

impl Geometry {
    /// The geometry, or what keeps it from being told, as a clause about the scales.
    pub(super) fn new(evidence: &Evidence<'_>) -> Result<Self, String> {
        let wrong = || {
            format!(
                "are {:?} for values of shape {:?}",
                evidence.scale, evidence.values.shape
            )
        };
        let geometry = match evidence.scale {
            scale if scale.iter().all(|len| *len == 1) && evidence.num_levels == 1 => {
                Self::of_one_scale(evidence)
            }
            [_] if evidence.num_levels > 1 => Self::of_one_scale(evidence),
            [1, d_output] if !evidence.is_packed => Self::transposed(evidence, *d_output),
            scale => Self::of_scales(evidence, scale),
        };
        geometry.ok_or_else(wrong)
    }

    /// One number, or one list of them, for all values.
    fn of_one_scale(evidence: &Evidence<'_>) -> Option<Self> {
        let shape = match (evidence.values.shape, evidence.d_output) {
            ([d_input, d_output], _) if !evidence.is_packed && evidence.stores_transposed() => {
                return Some(Self::one_scale(vec![*d_output, *d_input], true));
            }
            (shape, _) if !evidence.is_packed => shape.to_vec(),
            (_, d_output) => {
                let d_output = d_output.filter(|len| *len > 0)?;
                let is_whole = evidence.num_values.is_multiple_of(d_output);
                is_whole.then(|| vec![d_output, evidence.num_values / d_output])?
            }
        };
        Some(Self::one_scale(shape, false))
    }

    fn one_scale(shape: Vec<usize>, is_transposed: bool) -> Self {
        Self {
            shape,
            num_groups: 1,
            num_positions: 1,
            has_one_scale: true,
            is_transposed,
        }
    }

    fn transposed(evidence: &Evidence<'_>, d_output: usize) -> Option<Self> {
        let [d_input, found] = evidence.values.shape else {
            return None;
        };
        (*found == d_output).then(|| Self {
            shape: vec![d_output, *d_input],
            num_groups: 1,
            num_positions: 1,
            has_one_scale: false,
            is_transposed: true,
        })
    }

    fn of_scales(evidence: &Evidence<'_>, scale: &[usize]) -> Option<Self> {
        let (d_output, num_groups, kernel) = match levels_axis(evidence, scale)? {
            Some(1) => (scale[0], 1, &scale[2..]),
            Some(axis) => (scale[0], scale[1], &scale[axis + 1..]),
            None => match scale {
                [d_output] => (*d_output, 1, &[][..]),
                [d_output, 1, kernel @ ..] => (*d_output, 1, kernel),
                [d_output, num_groups] => (*d_output, *num_groups, &[][..]),
                [d_output, num_groups, 1, kernel @ ..] => (*d_output, *num_groups, kernel),
                _ => return None,
            },
        };
        let num_positions = kernel
            .iter()
            .try_fold(1_usize, |num, len| num.checked_mul(*len))?;
        let num_rows = d_output.checked_mul(num_positions)?;
        let channels = evidence.num_values.checked_div(num_rows)?;
        let is_whole = evidence.num_values.is_multiple_of(num_rows) && channels > 0;
        if !is_whole || num_groups == 0 || !channels.is_multiple_of(num_groups) {
            return None;
        }
        let grouped = [&[d_output, num_groups, channels / num_groups], kernel].concat();
        let shape = [&[d_output, channels], kernel].concat();
        let is_stored = [&grouped, &shape].contains(&&evidence.values.shape.to_vec());
        (evidence.is_packed || is_stored).then_some(Self {
            shape,
            num_groups,
            num_positions,
            has_one_scale: false,
            is_transposed: false,
        })
    }
}

/// Which axis of the scales holds the lists of numbers, if they are lists.
fn levels_axis(evidence: &Evidence<'_>, scale: &[usize]) -> Option<Option<usize>> {
    let num_levels = evidence.num_levels;
    if num_levels == 1 {
        return Some(None);
    }
    let is_list = |axis: &usize| scale.get(*axis) == Some(&num_levels);
    // Where both fit, a matrix or an image's kernel in groups rather than a kernel that is as long as a list.
    let axes = if scale.len() % 2 == 1 { [2, 1] } else { [1, 2] };
    axes.into_iter().find(is_list).map(Some)
}

impl Evidence<'_> {
    /// Whether sdnq keeps a matrix of this size transposed, which scales do not tell where there is only one.
    fn stores_transposed(&self) -> bool {
        let is_even = |len: &usize| *len >= 32 && len.is_multiple_of(16);
        self.has_integer_products && self.values.shape.iter().all(is_even)
    }
}
