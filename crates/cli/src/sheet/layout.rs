//! Where everything on a sheet is: a pure function of the labels and the pictures' size.

use crate::CliError;

use super::{Sheet, label::wrapped};

/// A rectangle of pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Left edge.
    pub x: u32,
    /// Top edge.
    pub y: u32,
    /// Width.
    pub width: u32,
    /// Height.
    pub height: u32,
}

/// The geometry of one sheet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    scale: u32,
    cell: [u32; 2],
    row_label_width: u32,
    column_label_height: u32,
    size: [u32; 2],
}

impl Layout {
    /// The geometry of `sheet`.
    ///
    /// # Errors
    /// [`CliError::PictureTooLarge`].
    pub fn of(sheet: &Sheet) -> Result<Self, CliError> {
        let first = sheet.columns.iter().find_map(|column| column.cells.first());
        let size = first.map_or((1, 1), image::RgbImage::dimensions);
        let columns = sheet.columns.iter().map(|column| column.label.as_str());
        Self::planned(&columns.collect::<Vec<_>>(), &sheet.rows, size.into())
    }

    /// The geometry of a sheet of pictures of this width and height, under and beside these labels.
    ///
    /// # Errors
    /// [`CliError::PictureTooLarge`].
    pub fn planned(
        columns: &[&str],
        rows: &[String],
        [width, height]: [u32; 2],
    ) -> Result<Self, CliError> {
        let scale = MIN_CELL.div_ceil(width.max(height).max(1));
        let cell = [width.saturating_mul(scale), height.saturating_mul(scale)];
        let longest = rows
            .iter()
            .map(|label| label.chars().count())
            .max()
            .unwrap_or(0);
        let mut layout = Self {
            scale,
            cell,
            row_label_width: pixels(longest.min(MAX_ROW_CHARS)) * CHAR_WIDTH,
            column_label_height: 0,
            size: [0, 0],
        };
        let lines = |label: &&str| pixels(layout.column_lines(label).len());
        layout.column_label_height = columns.iter().map(lines).max().unwrap_or(0) * LINE_HEIGHT;
        layout.size = layout.measure(pixels(columns.len()), pixels(rows.len()))?;
        Ok(layout)
    }

    /// How many times each picture is enlarged.
    #[must_use]
    pub fn scale(&self) -> u32 {
        self.scale
    }

    /// Width and height of the sheet.
    #[must_use]
    pub fn size(&self) -> [u32; 2] {
        self.size
    }

    /// Where the picture of a column and a row is.
    #[must_use]
    pub fn cell(&self, column: usize, row: usize) -> Area {
        let [width, height] = self.cell;
        let x = self.left() + pixels(column) * (width + GAP);
        let y = self.top() + pixels(row) * (height + GAP);
        Area {
            x,
            y,
            width,
            height,
        }
    }

    /// Where a column's label is: above its first picture.
    #[must_use]
    pub(crate) fn column_label(&self, column: usize) -> Area {
        let cell = self.cell(column, 0);
        Area {
            y: GAP + LINE_HEIGHT + GAP,
            height: self.column_label_height,
            ..cell
        }
    }

    /// Where a row's label is: left of its first picture.
    #[must_use]
    pub(crate) fn row_label(&self, row: usize) -> Area {
        Area {
            x: GAP,
            width: self.row_label_width,
            ..self.cell(0, row)
        }
    }

    /// Where the title is.
    #[must_use]
    pub(crate) fn title(&self) -> Area {
        Area {
            x: GAP,
            y: GAP,
            width: self.size[0].saturating_sub(2 * GAP),
            height: LINE_HEIGHT,
        }
    }

    pub(crate) fn title_lines(&self, title: &str) -> Vec<String> {
        wrapped(title, chars(self.title().width), 1)
    }

    pub(crate) fn column_lines(&self, label: &str) -> Vec<String> {
        wrapped(label, chars(self.cell[0]), MAX_LINES)
    }

    pub(crate) fn row_lines(&self, label: &str) -> Vec<String> {
        wrapped(label, chars(self.row_label_width), MAX_LINES)
    }

    fn left(&self) -> u32 {
        GAP + self.row_label_width + if self.row_label_width > 0 { GAP } else { 0 }
    }

    fn top(&self) -> u32 {
        GAP + LINE_HEIGHT + GAP + self.column_label_height + GAP
    }

    fn measure(&self, columns: u32, rows: u32) -> Result<[u32; 2], CliError> {
        let extent = |start: u32, count: u32, side: u32| {
            u64::from(start) + u64::from(count) * (u64::from(side) + u64::from(GAP))
        };
        let width = extent(self.left(), columns, self.cell[0]);
        let height = extent(self.top(), rows, self.cell[1]);
        let refuse = || CliError::PictureTooLarge {
            width,
            height,
            limit: MAX_PIXELS,
        };
        match width.checked_mul(height) {
            Some(count) if count <= MAX_PIXELS => {}
            _ => return Err(refuse()),
        }
        let side = |side| u32::try_from(side).map_err(|_| refuse());
        Ok([side(width)?, side(height)?])
    }
}

/// A count as pixels; more than fit end as a picture that is too large.
fn pixels(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX / 4096)
}

fn chars(width: u32) -> usize {
    (width / CHAR_WIDTH) as usize
}

/// Small pictures are enlarged to at least this many pixels, which two or three words fit under.
const MIN_CELL: u32 = 140;

/// Between everything.
pub(crate) const GAP: u32 = 8;

/// Pixels of a character of the font.
const CHAR_WIDTH: u32 = 7;

/// Pixels from line to line.
pub(crate) const LINE_HEIGHT: u32 = 14;

/// Characters of a row's label on one line.
const MAX_ROW_CHARS: usize = 22;

/// Lines of a label; what is longer is shortened in the middle.
const MAX_LINES: usize = 3;

/// 400 megapixels: 1.2 GB while it is drawn.
const MAX_PIXELS: u64 = 400_000_000;
