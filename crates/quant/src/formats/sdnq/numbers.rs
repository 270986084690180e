//! Scales and zero points, which may be codes themselves.

use crate::{Part, Parts, kernels::Scalars};

/// Numbers that may be codes of other numbers.
pub(super) struct Numbers<'a> {
    numbers: Scalars<'a>,
    scale: f32,
    start: f32,
}

impl<'a> Numbers<'a> {
    /// The numbers `part`, where there are any; their scale and start are the first numbers of parts that may be absent.
    pub(super) fn of(parts: &'a Parts, part: &str, [scale, start]: [&str; 2]) -> Option<Self> {
        let scalars = |name: &str| parts.get(name).and_then(Part::scalars);
        let first = |name: &str| Some(scalars(name)?.get(0));
        Some(Self {
            numbers: scalars(part)?,
            scale: first(scale).unwrap_or(1.0),
            start: first(start).unwrap_or(0.0),
        })
    }

    /// Number `index`; the only one where there is one.
    pub(super) fn get(&self, index: usize) -> f32 {
        let index = if self.numbers.len() == 1 { 0 } else { index };
        self.numbers.get(index) * self.scale + self.start
    }
}
