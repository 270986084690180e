//! Drawing text and enlarged pictures into an RGB image.

use std::convert::Infallible;

use embedded_graphics::{
    Drawable, Pixel,
    draw_target::DrawTarget,
    geometry::{OriginDimensions, Point, Size},
    mono_font::{MonoTextStyle, iso_8859_1::FONT_7X13},
    pixelcolor::{Rgb888, RgbColor},
    text::{Baseline, Text},
};
use image::{Rgb, RgbImage};

use super::layout::{Area, LINE_HEIGHT};

/// An image that text can be drawn on.
pub(crate) struct Canvas(RgbImage);

impl Canvas {
    /// White, of this width and height.
    pub(crate) fn new([width, height]: [u32; 2]) -> Self {
        Self(RgbImage::from_pixel(width, height, Rgb([255; 3])))
    }

    pub(crate) fn into_image(self) -> RgbImage {
        self.0
    }

    /// Writes lines into `area`, from its top.
    pub(crate) fn lines(&mut self, area: Area, lines: &[String]) {
        let style = MonoTextStyle::new(&FONT_7X13, Rgb888::BLACK);
        for (index, line) in (0..).zip(lines) {
            let place = Point::new(coordinate(area.x), coordinate(area.y + index * LINE_HEIGHT));
            let Ok(_) = Text::with_baseline(line, place, style, Baseline::Top).draw(self);
        }
    }

    /// Fills `area` with `picture`, every pixel a square.
    pub(crate) fn picture(&mut self, area: Area, picture: &RgbImage) {
        for y in 0..area.height {
            for x in 0..area.width {
                let (width, height) = picture.dimensions();
                let pixel = picture.get_pixel(x * width / area.width, y * height / area.height);
                self.0.put_pixel(area.x + x, area.y + y, *pixel);
            }
        }
    }
}

impl OriginDimensions for Canvas {
    fn size(&self) -> Size {
        Size::new(self.0.width(), self.0.height())
    }
}

impl DrawTarget for Canvas {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(
        &mut self,
        pixels: I,
    ) -> Result<(), Infallible> {
        for Pixel(place, color) in pixels {
            let place = u32::try_from(place.x).ok().zip(u32::try_from(place.y).ok());
            if let Some(pixel) = place.and_then(|(x, y)| self.0.get_pixel_mut_checked(x, y)) {
                *pixel = Rgb([color.r(), color.g(), color.b()]);
            }
        }
        Ok(())
    }
}

/// A place on a picture, whose pixels are counted in fewer than 31 bits.
fn coordinate(place: u32) -> i32 {
    i32::try_from(place).unwrap_or(i32::MAX)
}
