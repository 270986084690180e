//! The tanh form of GELU: `x·½·(1 + tanh(√(2/π)·(x + 0.044715·x³)))`.
//!
//! Written as `x·σ(2·√(2/π)·x·(1 + 0.044715·x²))`, which is the same since `½·(1 + tanh z) = σ(2z)`: on a CPU
//! one exponential a value instead of a power and a hyperbolic tangent, which were half of a forward pass.
//! Reference: Hendrycks and Gimpel, "Gaussian Error Linear Units", section 2.

use burn::tensor::{Tensor, activation::sigmoid};

/// GELU of every value.
pub(crate) fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let factor = x.clone() * x.clone() * (SLOPE * CUBIC) + SLOPE;
    sigmoid(factor * x.clone()) * x
}

/// 2·√(2/π).
const SLOPE: f64 = 1.595_769_121_605_730_7;

const CUBIC: f64 = 0.044_715;

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, activation::gelu_approximate};

    use super::*;

    /// Both round a few times in f32, on values of up to `|x|`.
    const TOLERANCE: f32 = 1e-6;

    #[test]
    fn it_is_burns() {
        let values: Vec<f32> = (-1200..=1200)
            .map(|step: i16| f32::from(step) / 100.0)
            .collect();
        let x = Tensor::<1>::from_data(values.as_slice(), &Device::flex());
        let read = |tensor: Tensor<1>| {
            tensor
                .try_into_vec_as::<f32>()
                .expect("it is in host memory")
        };
        let (found, expected) = (read(gelu(x.clone())), read(gelu_approximate(x)));
        assert!(expected.iter().any(|value| *value > 11.0));
        for ((x, found), expected) in values.iter().zip(found).zip(expected) {
            let error = (found - expected).abs();
            assert!(
                error <= TOLERANCE * x.abs().max(1.0),
                "gelu({x}) = {found}, not {expected}"
            );
        }
    }
}
