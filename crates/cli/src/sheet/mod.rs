//! The contact sheet: rows are prompts, columns are adapters, each labelled.

mod canvas;
mod label;
mod layout;

use std::io::Cursor;

use image::{ImageFormat, RgbImage};

use crate::{CliError, output_file::OutputFile};

use canvas::Canvas;
pub use label::{sanitized, wrapped};
pub use layout::{Area, Layout};

/// Pictures in columns and rows, with their labels.
#[derive(Clone, Debug)]
pub struct Sheet {
    /// What it shows, on one line above everything.
    pub title: String,
    /// Columns, from left to right.
    pub columns: Vec<SheetColumn>,
    /// Labels of the rows, from top to bottom.
    pub rows: Vec<String>,
}

/// One column.
#[derive(Clone, Debug)]
pub struct SheetColumn {
    /// What stands above it.
    pub label: String,
    /// One picture a row, all of one size.
    pub cells: Vec<RgbImage>,
}

impl Sheet {
    /// Draws the sheet; every picture is enlarged by the layout's whole-number scale.
    ///
    /// # Errors
    /// [`CliError::PictureTooLarge`].
    pub fn draw(&self) -> Result<RgbImage, CliError> {
        let layout = Layout::of(self)?;
        let mut canvas = Canvas::new(layout.size());
        canvas.lines(layout.title(), &layout.title_lines(&self.title));
        for (row, label) in self.rows.iter().enumerate() {
            canvas.lines(layout.row_label(row), &layout.row_lines(label));
        }
        for (index, column) in self.columns.iter().enumerate() {
            canvas.lines(
                layout.column_label(index),
                &layout.column_lines(&column.label),
            );
            for (row, picture) in column.cells.iter().enumerate() {
                canvas.picture(layout.cell(index, row), picture);
            }
        }
        Ok(canvas.into_image())
    }
}

/// Writes a picture as PNG.
pub(crate) fn write_png(place: OutputFile, picture: &RgbImage) -> Result<(), CliError> {
    let mut bytes = Cursor::new(Vec::new());
    picture
        .write_to(&mut bytes, ImageFormat::Png)
        .map_err(|source| CliError::Encode {
            path: place.path().to_owned(),
            source,
        })?;
    place.write(bytes.get_ref())
}

/// A picture of grey values 0 (black) to 1, `[height, width]` row by row.
///
/// # Panics
/// Where there are not `width` times `height` values.
#[must_use]
pub fn grey_picture(values: &[f32], [height, width]: [u32; 2]) -> RgbImage {
    let bytes = values
        .iter()
        .flat_map(|value| [grey_byte(*value); 3])
        .collect();
    RgbImage::from_raw(width, height, bytes).expect("there are three bytes a pixel")
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to 0 to 255; what is not a number is black"
)]
fn grey_byte(value: f32) -> u8 {
    (value.clamp(0.0, 1.0) * 255.0).round() as u8
}
