//! A preview of latents: their first three principal components as red, green and blue.
//!
//! With pixels `p` of `c` channels: `C = mean((p − p̄)(p − p̄)ᵀ)` over every pixel of every picture, so that
//! pictures can be compared; `rgb = Eᵀ(p − p̄)` with the eigenvectors `E` of the three largest eigenvalues, each turned
//! so that its largest entry is positive. The 1st and 99th percentiles of each component become 0 and 255.
//!
//! FLUX packs 2 × 2 latent pixels of 16 channels into a token of 64: channel `4c + 2·row + column`. Tokens of other
//! widths are taken as pixels themselves.

use image::{Rgb, RgbImage};
use nalgebra::{DMatrix, DVector, SymmetricEigen};

use crate::Latents;

/// Pictures of every prompt of every column, on one scale: `[column][prompt]`.
///
/// # Panics
/// Where a column's tokens are not those of `grid` `[rows, columns]`.
#[must_use]
pub fn previews(columns: &[&Latents], grid: [usize; 2]) -> Vec<Vec<RgbImage>> {
    let unpacked: Vec<Vec<Unpacked>> = columns
        .iter()
        .map(|column| {
            (0..column.shape()[0])
                .map(|prompt| unpack(column, prompt, grid))
                .collect()
        })
        .collect();
    let colors = Colors::of(&unpacked);
    unpacked
        .iter()
        .map(|column| column.iter().map(|pixels| colors.picture(pixels)).collect())
        .collect()
}

/// Width and height of the preview of a token grid `[rows, columns]`.
pub(crate) fn picture_size(token_channels: usize, [rows, columns]: [usize; 2]) -> [usize; 2] {
    let pack = pack(token_channels);
    [columns * pack, rows * pack]
}

/// Latent pixels along an edge of a token.
fn pack(token_channels: usize) -> usize {
    if token_channels == PACKED_CHANNELS {
        2
    } else {
        1
    }
}

/// Latent pixels `[height, width, channels]`.
struct Unpacked {
    values: Vec<f32>,
    height: usize,
    width: usize,
    channels: usize,
}

fn unpack(latents: &Latents, prompt: usize, [rows, columns]: [usize; 2]) -> Unpacked {
    let [_, tokens, token_channels] = latents.shape();
    assert_eq!(tokens, rows * columns, "the grid is that of the tokens");
    let pack = pack(token_channels);
    let channels = token_channels / (pack * pack);
    let (height, width) = (rows * pack, columns * pack);
    let packed = latents.prompt(prompt);
    let mut values = Vec::with_capacity(packed.len());
    for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
        let token = (y / pack) * columns + x / pack;
        let corner = (y % pack) * pack + x % pack;
        let channel = |c: usize| packed[token * token_channels + c * pack * pack + corner];
        values.extend((0..channels).map(channel));
    }
    Unpacked {
        values,
        height,
        width,
        channels,
    }
}

impl Unpacked {
    fn pixels(&self) -> impl Iterator<Item = &[f32]> {
        self.values.chunks_exact(self.channels)
    }
}

/// Pixels that can be computed with.
fn is_finite(pixel: &&[f32]) -> bool {
    pixel.iter().all(|value| value.is_finite())
}

/// From a pixel to a color.
struct Colors {
    mean: DVector<f64>,
    /// Three rows of as many values as channels; rows of zeros where there are fewer components.
    components: DMatrix<f64>,
    /// Low and high end of each component.
    ranges: [[f64; 2]; 3],
}

impl Colors {
    fn of(columns: &[Vec<Unpacked>]) -> Self {
        let pictures = || columns.iter().flatten();
        let channels = pictures().next().map_or(1, |picture| picture.channels);
        let pixels = || pictures().flat_map(Unpacked::pixels).filter(is_finite);
        let count = pixels().count().max(1) as f64;
        let mut mean = DVector::zeros(channels);
        for pixel in pixels() {
            mean += vector(pixel) / count;
        }
        let mut covariance = DMatrix::zeros(channels, channels);
        for pixel in pixels() {
            let away = vector(pixel) - &mean;
            covariance.ger(1.0 / count, &away, &away, 1.0);
        }
        let components = principal(covariance);
        let mut colors = Self {
            mean,
            components,
            ranges: [[0.0, 0.0]; 3],
        };
        let projected: Vec<[f64; 3]> = pixels().map(|pixel| colors.project(pixel)).collect();
        let ranges =
            [0, 1, 2].map(|axis| range(projected.iter().map(|point| point[axis]).collect()));
        let width = |[low, high]: [f64; 2]| high - low;
        // What is flat but for rounding has nothing to show.
        let is_flat = |range: [f64; 2]| width(range) <= FLAT * width(ranges[0]);
        colors.ranges = ranges.map(|range| if is_flat(range) { [0.0, 0.0] } else { range });
        colors
    }

    fn project(&self, pixel: &[f32]) -> [f64; 3] {
        let point = &self.components * (vector(pixel) - &self.mean);
        [point[0], point[1], point[2]]
    }

    fn picture(&self, pixels: &Unpacked) -> RgbImage {
        let mut colors = pixels.pixels().map(|pixel| self.color(pixel));
        let side = |side: usize| u32::try_from(side).expect("an image has at most 2^20 tokens");
        RgbImage::from_fn(side(pixels.width), side(pixels.height), |_, _| {
            colors.next().expect("there is a color for every pixel")
        })
    }

    /// The color of a pixel; black where it is not a number.
    fn color(&self, pixel: &[f32]) -> Rgb<u8> {
        if !is_finite(&pixel) {
            return Rgb([0; 3]);
        }
        let point = self.project(pixel);
        Rgb([0, 1, 2].map(|axis| byte(point[axis], self.ranges[axis])))
    }
}

/// The three components of the largest eigenvalues, as rows.
fn principal(covariance: DMatrix<f64>) -> DMatrix<f64> {
    let channels = covariance.nrows();
    let eigen = SymmetricEigen::new(covariance);
    let mut order: Vec<usize> = (0..channels).collect();
    order.sort_by(|a, b| eigen.eigenvalues[*b].total_cmp(&eigen.eigenvalues[*a]));
    let mut components = DMatrix::zeros(3, channels);
    for (row, index) in order.into_iter().take(3).enumerate() {
        let component = eigen.eigenvectors.column(index);
        let sign = component[component.iamax()].signum();
        components.set_row(row, &(component * sign).transpose());
    }
    components
}

/// The 1st and 99th percentile.
fn range(mut values: Vec<f64>) -> [f64; 2] {
    if values.is_empty() {
        return [0.0, 0.0];
    }
    let last = values.len() - 1;
    [last / 100, last - last / 100]
        .map(|index| *values.select_nth_unstable_by(index, f64::total_cmp).1)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to 0 to 255"
)]
fn byte(value: f64, [low, high]: [f64; 2]) -> u8 {
    if high <= low {
        return 128;
    }
    ((value - low) / (high - low) * 255.0)
        .clamp(0.0, 255.0)
        .round() as u8
}

fn vector(pixel: &[f32]) -> DVector<f64> {
    DVector::from_iterator(pixel.len(), pixel.iter().map(|value| f64::from(*value)))
}

/// Channels of a FLUX token: 16 latent channels of 2 x 2 pixels.
const PACKED_CHANNELS: usize = 64;

/// A component this much narrower than the first is rounding.
const FLAT: f64 = 1e-6;
