//! Comparing an output with what a peer computed.

use burn::tensor::{DType, TensorData};

use crate::Case;

/// `|found − expected| ≤ absolute + relative · |expected|`, element by element. The values are the case's
/// own: they follow from the dtype the peer computed in.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    absolute: f64,
    relative: f64,
    /// Rounding step of the dtype the case is stated in; smaller errors are not told apart.
    step: f64,
}

/// How far an output is from the expected one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// max|found − expected| / max|expected|.
    pub relative_error: f64,
    /// max over elements of the error over its tolerance; at most 1 passes.
    pub of_tolerance: f64,
    /// Rounding step of the dtype the case is stated in.
    pub step: f64,
}

impl Tolerance {
    /// The tolerance of `case`.
    #[must_use]
    pub fn of(case: &Case) -> Self {
        let step = match case.meta("dtype") {
            Some("bf16") => 1.0 / 128.0,
            Some("f16") => 1.0 / 1024.0,
            _ => 1e-6,
        };
        let number = |key| case.number(key).unwrap_or(0.0);
        Self {
            absolute: number("atol"),
            relative: number("rtol"),
            step,
        }
    }

    /// The same with no error allowed.
    #[must_use]
    pub fn exact(self) -> Self {
        Self {
            absolute: 0.0,
            relative: 0.0,
            ..self
        }
    }

    /// Compares `found` with `expected`.
    ///
    /// # Errors
    /// When shapes differ, when an output is not finite, or when everything expected is zero, which
    /// would prove nothing.
    pub fn compare(self, found: &TensorData, expected: &TensorData) -> Result<Comparison, String> {
        if found.shape() != expected.shape() {
            return Err(format!(
                "shape {:?}, expected {:?}",
                found.shape(),
                expected.shape()
            ));
        }
        let (found, expected) = (values(found), values(expected));
        let largest = expected
            .iter()
            .fold(0.0_f64, |largest, value| largest.max(value.abs()));
        if largest == 0.0 && !expected.is_empty() && found.iter().all(|value| *value == 0.0) {
            return Err("every expected value is zero, which proves nothing".into());
        }
        let mut comparison = Comparison {
            relative_error: 0.0,
            of_tolerance: 0.0,
            step: self.step,
        };
        for (found, expected) in found.iter().zip(&expected) {
            let error = (found - expected).abs();
            if !error.is_finite() {
                return Err(format!("found {found}, expected {expected}"));
            }
            let allowed = self.absolute + self.relative * expected.abs();
            comparison.relative_error = comparison.relative_error.max(error / largest);
            let share = if error == 0.0 { 0.0 } else { error / allowed };
            comparison.of_tolerance = comparison.of_tolerance.max(share);
        }
        Ok(comparison)
    }
}

impl Comparison {
    /// The worse of two.
    #[must_use]
    pub fn worst(self, other: Self) -> Self {
        Self {
            relative_error: self.relative_error.max(other.relative_error),
            of_tolerance: self.of_tolerance.max(other.of_tolerance),
            step: self.step.max(other.step),
        }
    }

    /// The relative error as a power of ten, rounded up; errors below the rounding step of the case's
    /// dtype all read as that step, so that the figure does not depend on the processor.
    #[must_use]
    pub fn power_of_ten(&self) -> String {
        let error = self.relative_error.max(self.step);
        format!("1e{:+}", error.log10().ceil())
    }
}

fn values(data: &TensorData) -> Vec<f64> {
    data.clone()
        .convert_dtype(DType::F64)
        .iter::<f64>()
        .collect()
}
