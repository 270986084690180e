//! The contact sheet of the demo: numbers, cells and the file on disk.

use std::path::Path;

use clap::Parser;
use image::RgbImage;
use overglaze_cli::{
    Console,
    args::{Cli, Command},
    commands::sweep::{Sweep, sweep},
    decoded, demo, device,
    restoration::Restoration,
    sheet::{Area, Layout},
};

use crate::{
    overglaze::text,
    reference::{self, assert_close},
};

fn swept(sheet: &Path) -> Sweep {
    let noise = reference::path();
    let arguments = [
        "overglaze",
        "sweep",
        "--quiet",
        "--noise",
        text(&noise),
        "-o",
        text(sheet),
    ];
    let cli = Cli::try_parse_from(arguments).expect("the arguments are right");
    let Command::Sweep(args) = &cli.command else {
        panic!("sweep is a sweep")
    };
    sweep(args, &cli.global, &Console::new(&cli.global)).expect("the demo can be swept")
}

/// A cell of the sheet, reduced to one pixel a picture's pixel; each must fill its square.
fn cell(sheet: &RgbImage, area: Area, scale: u32) -> RgbImage {
    let at = |x: u32, y: u32| *sheet.get_pixel(area.x + x, area.y + y);
    for (x, y) in (0..area.height).flat_map(|y| (0..area.width).map(move |x| (x, y))) {
        assert_eq!(at(x, y), at(x / scale * scale, y / scale * scale));
    }
    RgbImage::from_fn(area.width / scale, area.height / scale, |x, y| {
        at(x * scale, y * scale)
    })
}

#[test]
fn the_swept_demo_is_pytorchs_in_numbers_and_in_pixels() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sheet.png");
    let sweep = swept(&path);
    assert_eq!(sweep.restoration, Restoration::Identical);
    assert_close(&sweep.base, "out.base");
    let labels: Vec<_> = sweep
        .columns
        .iter()
        .map(|column| column.label.as_str())
        .collect();
    assert_eq!(labels, demo::LORA_NAMES);
    for column in &sweep.columns {
        assert_close(&column.latents, &format!("out.{}", column.label));
        assert_eq!(column.report.base_bytes_moved, 0, "{}", column.label);
        assert_eq!(
            (column.report.keys_applied, column.report.keys_unmatched),
            (78, 0)
        );
    }

    let image = image::open(&path).unwrap().into_rgb8();
    let device = device::host().unwrap();
    let layout = Layout::of(&sweep.sheet).unwrap();
    assert_eq!(<[u32; 2]>::from(image.dimensions()), layout.size());
    let names = ["base"].into_iter().chain(demo::LORA_NAMES);
    for (index, name) in names.enumerate() {
        let expected = reference::latents(&format!("out.{name}"));
        for (row, expected) in decoded(&expected, &device).unwrap().iter().enumerate() {
            let found = cell(&image, layout.cell(index, row), layout.scale());
            let worst = found
                .iter()
                .zip(expected.iter())
                .map(|(a, b)| a.abs_diff(*b))
                .max();
            assert!(
                worst.unwrap() <= 1,
                "{name}, row {row}: off by {worst:?} of 255"
            );
            assert!(
                expected.iter().any(|byte| *byte > 128),
                "{name}, row {row} shows something"
            );
        }
    }
}
