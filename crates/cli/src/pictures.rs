//! From image tokens to pictures: decoded for the demo, a preview for other models.

use burn::tensor::{Device, Tensor};
use image::RgbImage;
use overglaze_models::{ModelError, pixels};

use crate::{
    CliError, Latents,
    model_source::LoadedModel,
    preview,
    sampling::Scene,
    sheet::{Layout, SheetColumn, grey_picture},
};

/// One sheet column for each of `results`, under these labels.
pub(crate) fn pictures(
    model: &LoadedModel,
    scene: &Scene,
    labels: Vec<String>,
    results: &[&Latents],
) -> Result<Vec<SheetColumn>, CliError> {
    let cells = match model.is_demo() {
        true => results
            .iter()
            .map(|latents| decoded(latents, &model.device))
            .collect::<Result<_, _>>()?,
        false => preview::previews(results, scene.grid),
    };
    Ok(labels
        .into_iter()
        .zip(cells)
        .map(|(label, cells)| SheetColumn { label, cells })
        .collect())
}

/// Refuses, before anything is sampled, a sheet that would be too large.
pub(crate) fn check_size(
    model: &LoadedModel,
    scene: &Scene,
    columns: &[&str],
    rows: &[String],
) -> Result<(), CliError> {
    let [.., channels] = scene.noise.shape();
    let size = match model.is_demo() {
        true => [pixels::SIDE; 2],
        false => preview::picture_size(channels, scene.grid),
    };
    Layout::planned(columns, rows, size.map(side)).map(drop)
}

fn side(side: usize) -> u32 {
    u32::try_from(side).unwrap_or(u32::MAX)
}

/// The demo's pictures, one a prompt: 28 x 28 grey pixels.
///
/// # Errors
/// [`CliError::Model`] for tokens that are not the demo's.
pub fn decoded(latents: &Latents, device: &Device) -> Result<Vec<RgbImage>, CliError> {
    let [prompts, ..] = latents.shape();
    let images: Tensor<3> = pixels::decode(latents.rows(0..prompts, device))?;
    let values = images
        .try_into_vec_as::<f32>()
        .map_err(|source| ModelError::Readback {
            what: "the pictures",
            source,
        })?;
    Ok(values
        .chunks_exact(pixels::SIDE * pixels::SIDE)
        .map(|picture| grey_picture(picture, [SIDE; 2]))
        .collect())
}

/// Pixels along an edge of the demo's pictures.
#[expect(clippy::cast_possible_truncation, reason = "it is 28")]
const SIDE: u32 = pixels::SIDE as u32;
